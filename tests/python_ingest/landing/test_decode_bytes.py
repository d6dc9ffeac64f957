"""Bytes of any kind: each encoding of a logical type, and noise, is a value or a dead letter to both decoders."""

import io
import json
import random
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from decimal import Context, Decimal
from threading import Timer
from typing import Any

import fastavro
import pytest

from python_ingest.avro.bounded import bounded
from python_ingest.avro.expanded_schema import expand_schema
from python_ingest.kafka.message import HEADER_BYTES
from tests.support.avro_versions import a_value, avro_long
from tests.support.registry_avro import encode
from tests.support.topic_fixture import (
    TopicFixture,
    assert_columns_hold_what_bytes_encode,
    assert_no_column_differs,
    record,
)

SECONDS = 120
"""A batch that takes longer has a record that never ends."""


def padded(number: int) -> bytes:
    """Return an Avro long in ten bytes, the most that Java reads."""
    *groups, last = avro_long(number)
    return bytes([*groups, last | 0x80, *[0x80] * (8 - len(groups)), 0])


def with_length(part: bytes) -> bytes:
    return avro_long(len(part)) + part


def wrapped(kind: Any) -> dict[str, Any]:
    """Return a record schema that has a type in every place where a value may be."""
    named = iter(range(9))

    def again() -> Any:
        return kind | {"name": f"n{next(named)}"} if isinstance(kind, dict) and "name" in kind else kind

    return record(
        "places",
        plain=again(),
        maybe=["null", again()],
        either=["boolean", "null", again()],
        each={"type": "array", "items": again()},
        named={"type": "map", "values": again()},
        below=record("below", inner=record("inner", value=again())),
    )


# A body of `wrapped`.
PLACES = b"%b\x02%b\x04%b\x02%b\0\x02\x02k%b\0%b"


def in_place(place: int, good: bytes, value: bytes) -> bytes:
    """Return a body of `wrapped` that has a value in one of its places, and a good one elsewhere."""
    return PLACES % tuple(value if place % 6 == number else good for number in range(6))


def unscaled(number: int, size: int) -> bytes:
    return number.to_bytes(size, "big", signed=True)


def decimals(precision: int, scale: int, size: int | None = None) -> tuple[Any, list[tuple[bytes, Decimal | None]]]:
    """Return a decimal type, and encodings with the value of each, None where there is none."""
    kind = {"logicalType": "decimal", "precision": precision, "scale": scale}
    kind |= {"type": "bytes"} if size is None else {"type": "fixed", "name": "f", "size": size}
    least = 10**precision
    numbers = [sign * number for number in (0, 5, least - 1, least, 2**31 + 5, 2**63 - 1, 2**63) for sign in (1, -1)]
    numbers += [sign * number for number in (2**64 + 5, 2**64 + 500, 2**72, 2**128 + 1, 10**38) for sign in (1, -1)]
    encodings: list[tuple[bytes, Decimal | None]] = []
    for number in numbers:
        shortest = number.bit_length() // 8 + 1
        for length in [shortest, shortest + 1, 9, 17, 40] if size is None else [size]:
            if length >= shortest:
                part = unscaled(number, length)
                value = Decimal(number).scaleb(-scale, Context(prec=80)) if abs(number) < least else None
                encodings.append((with_length(part) if size is None else part, value))
    return kind, encodings + ([(b"\0", None)] if size is None else [])


@contextmanager
def ending(topic: TopicFixture) -> Iterator[None]:
    """Cancel the jobs of Spark after SECONDS, so that a test fails and does not hang."""
    timer = Timer(SECONDS, topic.spark.sparkContext.cancelAllJobs)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


# Precision, scale, and the size of a fixed.
SHAPES: list[tuple[int, int, int | None]] = [
    *((9, 2, None), (18, 0, None), (18, 18, None), (19, 2, None), (30, 0, None), (38, 38, None)),
    *((2, 1, 1), (9, 2, 4), (18, 2, 8), (9, 2, 9), (10, 2, 16), (38, 0, 16), (18, 6, 40)),
]


def test_a_decimal_is_exact_or_a_dead_letter(topic: TopicFixture) -> None:
    expected: list[Decimal | None] = []
    for number, shape in enumerate(SHAPES):
        kind, encodings = decimals(*shape)
        fields = record("r", **{f"c{number}": ["null", wrapped(kind)]})
        schema_id = topic.register(fields)
        good = next(part for part, value in encodings if value == 0)
        for part, value in encodings:
            body = in_place(len(expected), good, part)
            topic.produce(b"\0" + schema_id.to_bytes(4, "big") + b"\x02" + body)
            expected.append(value)
    topic.land_well()
    for position, (row, value) in enumerate(zip(topic.rows(), expected, strict=True)):
        (places,) = [row[f"c{number}"] for number in range(len(SHAPES)) if row[f"c{number}"]] or [None]
        assert (row["decode_error"] is None) == (places is not None) == (value is not None), (position, value)
        if places is not None:
            [either] = [part for name, part in places["either"].items() if name != "member_boolean"]
            values = [places["plain"], places["maybe"], either, *places["each"], dict(places["named"])["k"]]
            assert [*values, places["below"]["inner"]["value"]][position % 6] == value
    assert_columns_hold_what_bytes_encode(topic, len(expected))


def test_a_decimal_has_its_writers_digits_in_a_wider_column(topic: TopicFixture) -> None:
    numbers = (99_999, 100_000, 999_999_999, 10**9, 2**64 + 5)
    ids = []
    for precision in (5, 9, 25):
        kind = {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": 2}
        ids.append((topic.register(record("r", amount=kind)), precision))
    for schema_id, _ in ids:
        for number in numbers:
            part = with_length(unscaled(number, 9))
            topic.produce(b"\0" + schema_id.to_bytes(4, "big") + part)
    topic.land_well()
    amounts = [row["amount"] for row in topic.rows()]
    cents = [None if amount is None else int(amount.scaleb(2)) for amount in amounts]
    assert cents == [number if number < 10**precision else None for _, precision in ids for number in numbers]
    assert_columns_hold_what_bytes_encode(topic, len(cents))


INTS = [sign * number for number in (0, 1, 2**31 - 1, 2**31, 2**32 + 7, 2**34) for sign in (1, -1)]
LONGS = [sign * number for number in (2**53, 2**63 // 1000, 2**63 // 1000 + 1, 2**63 - 1) for sign in (1, -1)]
LONGS += [-(2**63), -62_135_596_800_000, -14_831_769_600_000, -12_219_292_800_001]
LOGICAL_NUMBERS = {
    "int": ["date", "time-millis"],
    "long": [
        *("time-micros", "timestamp-millis", "timestamp-micros", "timestamp-nanos"),
        *("local-timestamp-millis", "local-timestamp-micros", "local-timestamp-nanos"),
    ],
}


def test_a_time_is_exact_or_a_dead_letter(topic: TopicFixture) -> None:
    produced = 0
    for base, names in LOGICAL_NUMBERS.items():
        numbers = INTS if base == "int" else INTS + LONGS
        encodings = [*map(avro_long, numbers), *map(padded, numbers), b"\xff" * 5 + b"\x01", b"\xff" * 9 + b"\x01", b""]
        for name in names:
            column = name.replace("-", "_")
            fields = record("r", **{column: ["null", wrapped({"type": base, "logicalType": name})]})
            schema_id = topic.register(fields)
            for part in encodings:
                body = in_place(produced, b"\x02", part)
                topic.produce(b"\0" + schema_id.to_bytes(4, "big") + b"\x02" + body)
                produced += 1
    topic.land_well()
    assert_no_column_differs(topic, produced)


def array(items: Any) -> dict[str, Any]:
    return {"type": "array", "items": items}


Encodings = list[tuple[bytes, bool]]
NULLS = array("null")
# Types of which a few bytes could name any amount of work, and encodings of each, with whether it is a value.
COUNTS: Encodings = [
    *((avro_long(count) + b"\0" if count else b"\0", count <= 64) for count in (0, 1, 64, 65, 2**31 - 1, 2**40)),
    # In two blocks, too.
    *((part, False) for part in (b"\x02\x02\0", avro_long(2**62))),
    *((avro_long(-count) + b"\0\0", False) for count in (2**63, 2**40)),
]


def counts_in(before: bytes, after: bytes) -> Encodings:
    return [(before + part + (after if good else b""), good) for part, good in COUNTS]


def deep(before: bytes, after: bytes) -> Encodings:
    """Return records in each other, up to the most levels and beyond."""
    return [(before * levels + b"\0" + after * levels, levels <= 32) for levels in (0, 1, 32, 33, 500, 100_000)]


def lengths(*numbers: int) -> Encodings:
    return [(avro_long(number), False) for number in numbers]


UNBOUNDED: dict[str, tuple[Any, Encodings]] = {
    "nulls": (NULLS, COUNTS),
    "records": (array(record("empty")), COUNTS),
    "fixed": (array({"type": "fixed", "name": "f0", "size": 0}), COUNTS),
    # Names that differ by case alone: there is nothing to land, and bytes to pass over.
    "twins": (array(record("t", A="int", a="int")), [(b"\x02\x02\x04\0", True)]),
    "nested": (array(record("e1", a="null", b=record("e2"))), COUNTS),
    "in_a_union": (["string", NULLS], counts_in(b"\x02", b"")),
    "in_an_array": (array(NULLS), counts_in(b"\x02", b"\0")),
    "in_a_map": ({"type": "map", "values": NULLS}, counts_in(b"\x02\x02k", b"\0")),
    # The type of the record itself, which has an int before and after such a field.
    "list": (["null", "r"], deep(b"\x02\x04", b"\x06")),
    "tree": (array("r"), deep(b"\x02\x04", b"\x06\0")),
    "mapped": ({"type": "map", "values": "r"}, deep(b"\x02\x02k\x04", b"\x06\0")),
    "each_other": (record("b", a=array("r")), deep(b"\x02\x04", b"\x06\0")),
    "numbers": (array("int"), lengths(10_000_001, 2**31 - 1, 2**40, 2**62)),
    "texts": ("string", lengths(2**26 + 1, 2**31 - 1, 2**40, 2**62, -1, -(2**63))),
}


@pytest.mark.parametrize("name", [*UNBOUNDED, "itself"])
def test_a_bounded_schema_reads_no_more_than_its_bytes(name: str) -> None:
    kind, encodings = UNBOUNDED.get(name, (record("s", me="s"), [(b"", False), (bytes(50_000), False)]))
    text = json.dumps(record("r", id="int", **{name: kind}, last="int"))
    landing = fastavro.parse_schema(bounded(expand_schema(text)))
    for part, good in encodings:
        body = io.BytesIO(b"\x04" + part + b"\x06")
        with nullcontext() if good else pytest.raises((IndexError, EOFError, OverflowError)):
            value = fastavro.schemaless_reader(body, landing, None)
            assert (value["id"], value["last"]) == (2, 3)


def test_no_record_costs_more_than_its_bytes(topic: TopicFixture) -> None:
    expected, topic = [], topic.declaring(allow=(*UNBOUNDED,))
    # The local registry fails on a map of the record itself.
    for name, (kind, encodings) in (UNBOUNDED | {"mapped": ("int", [])}).items():
        schema_id = topic.register(record("r", id="int", **{name: kind}, last="int"))
        for part, good in encodings:
            topic.produce(b"\0" + schema_id.to_bytes(4, "big") + b"\x04" + part + b"\x06")
            expected.append(good)
    with ending(topic):
        topic.land_well()
    rows = topic.rows()
    assert [row["decode_error"] is None for row in rows] == expected
    assert {(row["id"], row["last"]) for row in rows if row["decode_error"] is None} == {(2, 3)}
    assert_no_column_differs(topic, len(expected))


PERSON = record("person", name="string", at={"type": "long", "logicalType": "timestamp-micros"}, tags=["null", "bytes"])
LANDED = record(
    "landed",
    id="int",
    at={"type": "long", "logicalType": "timestamp-millis"},
    flag="boolean",
    kind={"type": "enum", "name": "kind", "symbols": ["A", "B", "C"]},
    amount=["null", {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2}],
    last_first=["double", "null"],
    people=array(PERSON),
    by_name={"type": "map", "values": array(["long", "null"])},
    code={"type": "fixed", "name": "code", "size": 3},
    either=["null", "string", record("other", a="int"), array("float")],
)
HUGE = [*map(avro_long, (-1, -2, 64, 2**31 - 1, 2**31, 2**40, 2**63 - 1, -(2**31)))]


def mutations(rng: random.Random, good: bytes, number: int) -> list[bytes]:
    """Return bytes that differ from good ones in one or two places."""
    noise = []
    for _ in range(number):
        body = bytearray(good)
        for _ in range(rng.randint(1, 2)):
            at = rng.randrange(len(body))
            match rng.randrange(5):
                case 0:
                    body[at] ^= 1 << rng.randrange(8)
                case 1:
                    body[at : at + 1] = rng.choice(HUGE)
                case 2:
                    body[at:at] = rng.choice([rng.randbytes(rng.randint(1, 9)), rng.choice(HUGE)])
                case 3:
                    del body[at : at + rng.randint(1, 4)]
                case _:
                    body[at:] = body[at : at + rng.randint(0, 3)] * rng.randint(1, 50)
            body = body or bytearray(1)
        noise.append(bytes(body))
    return noise


def test_noise_is_the_same_to_both_decoders(topic: TopicFixture) -> None:
    rng, schema_id = random.Random(1), topic.register(LANDED)
    for _ in range(40):
        good = encode(LANDED, schema_id, a_value(rng, LANDED)[0])
        for body in mutations(rng, good[HEADER_BYTES:], 50):
            topic.produce(good[:HEADER_BYTES] + body)
    with ending(topic):
        result = topic.land_well()
    assert 0 < result.dead_letters < result.records == 2_000
    assert_no_column_differs(topic, 2_000)
