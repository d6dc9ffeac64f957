"""Bytes of any kind: each encoding of a logical type, and noise, is a value or a dead letter to both decoders."""

import io
import json
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from decimal import Context, Decimal
from threading import Timer
from typing import Any

import fastavro
import pytest

from python_ingest.avro.bounded import bounded
from python_ingest.avro.expanded_schema import expand_schema
from python_ingest.kafka.message import HEADER_BYTES
from tests.support.evolutions import encode
from tests.support.topic_fixture import (
    SALE,
    TopicFixture,
    assert_columns_hold_what_bytes_encode,
    assert_no_column_differs,
    record,
)

SECONDS = 120
"""A batch that takes longer has a record that never ends."""


def avro_long(number: int) -> bytes:
    """Return an Avro long, also one of more than 64 bits."""
    encoded, groups = number * 2 if number >= 0 else -number * 2 - 1, bytearray()
    while encoded > 0x7F:
        groups.append(encoded & 0x7F | 0x80)
        encoded >>= 7
    return bytes([*groups, encoded])


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


def in_places(good: bytes, value: bytes) -> Iterator[bytes]:
    """Yield bodies of `wrapped` that have a value in one place, and a good one elsewhere."""
    for place in range(6):
        each = [value if place == number else good for number in range(6)]
        yield (
            each[0]
            + b"\x02"
            + each[1]
            + b"\x04"
            + each[2]
            + b"\x02"
            + each[3]
            + b"\0\x02\x02k"
            + each[4]
            + b"\0"
            + each[5]
        )


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


def landed_columns(topic: TopicFixture, *names: str) -> list[dict[str, Any]]:
    fields = ("kafka_offset", "decode_error", *names)
    rows: list[dict[str, Any]] = topic.table().scan(selected_fields=fields).to_arrow().to_pylist()
    return sorted(rows, key=lambda row: row["kafka_offset"])


SHAPES: list[tuple[int, int, int | None]] = [
    (9, 2, None),
    (18, 0, None),
    (18, 18, None),
    (19, 2, None),
    (30, 0, None),
    (38, 38, None),
]
SHAPES += [(2, 1, 1), (9, 2, 4), (18, 2, 8), (9, 2, 9), (10, 2, 16), (38, 0, 16), (18, 6, 40)]


def test_a_decimal_is_exact_or_a_dead_letter_however_it_is_encoded(topic: TopicFixture) -> None:
    expected: list[Decimal | None] = []
    for number, shape in enumerate(SHAPES):
        kind, encodings = decimals(*shape)
        fields = record("r", **{f"c{number}": ["null", wrapped(kind)]})
        schema_id = topic.register(fields)
        good = next(part for part, value in encodings if value == 0)
        for part, value in encodings:
            for body in in_places(good, part):
                topic.produce(b"\0" + schema_id.to_bytes(4, "big") + b"\x02" + body)
                expected.append(value)
    topic.land_well()
    rows = landed_columns(topic, *(f"c{number}" for number in range(len(SHAPES))))
    assert len(rows) == len(expected)
    for position, (row, value) in enumerate(zip(rows, expected, strict=True)):
        (places,) = [row[f"c{number}"] for number in range(len(SHAPES)) if row[f"c{number}"]] or [None]
        assert (row["decode_error"] is None) == (places is not None) == (value is not None), (position, value)
        if places is not None:
            either = next(part for name, part in places["either"].items() if name != "member_boolean")
            found = [places["plain"], places["maybe"], either, *places["each"], dict(places["named"])["k"]]
            found.append(places["below"]["inner"]["value"])
            assert found[position % 6] == value
    assert_columns_hold_what_bytes_encode(topic, len(expected))


def test_a_decimal_has_the_digits_of_its_writer_in_a_wider_column(topic: TopicFixture) -> None:
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
    amounts = [row["amount"] for row in landed_columns(topic, "amount")]
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


def test_a_time_is_exact_or_a_dead_letter_however_it_is_encoded(topic: TopicFixture) -> None:
    produced = 0
    for base, names in LOGICAL_NUMBERS.items():
        numbers = INTS if base == "int" else INTS + LONGS
        encodings = [*map(avro_long, numbers), *map(padded, numbers), b"\xff" * 5 + b"\x01", b"\xff" * 9 + b"\x01", b""]
        for name in names:
            column = name.replace("-", "_")
            fields = record("r", **{column: ["null", wrapped({"type": base, "logicalType": name})]})
            schema_id = topic.register(fields)
            for part in encodings:
                for body in in_places(b"\x02", part):
                    topic.produce(b"\0" + schema_id.to_bytes(4, "big") + b"\x02" + body)
                    produced += 1
    topic.land_well()
    assert_no_column_differs(topic, produced)


EMPTY = record("empty")
NULLS = {"type": "array", "items": "null"}
# Types of which a few bytes could name any amount of work, and encodings of each, with whether it is a value.
COUNTS = [(avro_long(count) + b"\0" if count else b"\0", count <= 64) for count in (0, 1, 64, 65, 2**31 - 1, 2**40)]
# In two blocks, too.
COUNTS += [
    (b"\x02\x02\0", False),
    (avro_long(2**62), False),
    (avro_long(-(2**63)) + b"\0\0", False),
    (avro_long(-(2**40)) + b"\0\0", False),
]


def deep(levels: int, before: bytes, after: bytes, end: bytes) -> bytes:
    return before * levels + end + after * levels


DEPTHS = [(0, True), (1, True), (32, True), (33, False), (500, False), (100_000, False)]
UNBOUNDED: dict[str, tuple[Any, list[tuple[bytes, bool]]]] = {
    "nulls": (NULLS, COUNTS),
    "records": ({"type": "array", "items": EMPTY}, COUNTS),
    "fixed": ({"type": "array", "items": {"type": "fixed", "name": "f0", "size": 0}}, COUNTS),
    "nested": ({"type": "array", "items": record("e1", a="null", b=record("e2"))}, COUNTS),
    "in_a_union": (["string", NULLS], [(b"\x02" + part, good) for part, good in COUNTS]),
    "in_an_array": (
        {"type": "array", "items": NULLS},
        [(b"\x02" + part + b"\0" if good else b"\x02" + part, good) for part, good in COUNTS],
    ),
    "in_a_map": (
        {"type": "map", "values": NULLS},
        [(b"\x02\x02k" + part + b"\0" if good else b"\x02\x02k" + part, good) for part, good in COUNTS],
    ),
    # The type of the record itself, which has an int before and after such a field.
    "list": (["null", "r"], [(deep(n, b"\x02\x04", b"\x06", b"\0"), good) for n, good in DEPTHS]),
    "tree": (
        {"type": "array", "items": "r"},
        [(deep(n, b"\x02\x04", b"\x06\0", b"\0"), good) for n, good in DEPTHS],
    ),
    "mapped": (
        {"type": "map", "values": "r"},
        [(deep(n, b"\x02\x02k\x04", b"\x06\0", b"\0"), good) for n, good in DEPTHS],
    ),
    "each_other": (
        record("b", a={"type": "array", "items": "r"}),
        [(deep(n, b"\x02\x04", b"\x06\0", b"\0"), good) for n, good in DEPTHS],
    ),
    "numbers": (
        {"type": "array", "items": "int"},
        [(avro_long(n), False) for n in (10_000_001, 2**31 - 1, 2**40, 2**62)],
    ),
    "texts": ("string", [(avro_long(n), False) for n in (2**26 + 1, 2**31 - 1, 2**40, 2**62, -1, -(2**63))]),
}


def is_readable(read: Callable[[bytes], Any], body: bytes) -> bool:
    """Return whether bytes are a value, whose fields around that of UNBOUNDED are right."""
    try:
        value = read(body)
    except (IndexError, EOFError, OverflowError):
        return False
    return bool((value["id"], value["last"]) == (2, 3))


@pytest.mark.parametrize("name", [*UNBOUNDED, "itself"])
def test_a_bounded_schema_reads_no_more_than_its_bytes(name: str) -> None:
    kind, encodings = UNBOUNDED.get(name, (record("s", me="s"), [(b"", False), (bytes(50_000), False)]))
    text = json.dumps(record("r", id="int", **{name: kind}, last="int"))
    landing = fastavro.parse_schema(bounded(expand_schema(text)))
    for part, good in encodings:
        body = b"\x04" + part + b"\x06"
        assert is_readable(lambda body: fastavro.schemaless_reader(io.BytesIO(body), landing, None), body) == good


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
    rows = landed_columns(topic, "id", "last")
    assert [row["decode_error"] is None for row in rows] == expected
    assert {(row["id"], row["last"]) for row in rows if row["decode_error"] is None} == {(2, 3)}
    assert_no_column_differs(topic, len(expected))


def test_bytes_behind_a_record_are_ignored(topic: TopicFixture) -> None:
    schema_id = topic.register(SALE)
    good = topic.encode(schema_id, {"id": 1, "note": "n"})
    for rest in (b"", b"\0", b"\xff" * 20, good):
        topic.produce(good + rest)
    topic.land_well()
    rows = landed_columns(topic, "id", "note")
    assert [(row["id"], row["note"], row["decode_error"]) for row in rows] == [(1, "n", None)] * 4
    assert_columns_hold_what_bytes_encode(topic, 4)


PERSON = record("person", name="string", born={"type": "int", "logicalType": "date"}, tags=["null", "bytes", "double"])
LANDED = record(
    "landed",
    id="int",
    at={"type": "long", "logicalType": "timestamp-millis"},
    flag="boolean",
    kind={"type": "enum", "name": "kind", "symbols": ["A", "B", "C"]},
    amount=["null", {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}],
    last_first=["string", "null"],
    people={"type": "array", "items": PERSON},
    by_name={"type": "map", "values": {"type": "array", "items": ["long", "null"]}},
    code={"type": "fixed", "name": "code", "size": 3},
    either=["null", "string", record("other", a="int"), {"type": "array", "items": "float"}],
)
LANDED_VALUE = {
    "id": 7,
    "at": 1_800_000_000_000,
    "flag": True,
    "kind": "B",
    "amount": Decimal("12.34"),
    "last_first": None,
    "people": [{"name": "n", "born": 3, "tags": b"t"}, {"name": "", "born": -1, "tags": None}],
    "by_name": {"a": [1, None], "b": []},
    "code": b"abc",
    "either": {"a": 5},
}
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


@pytest.mark.parametrize(("seed", "number"), [(1, 600), pytest.param(2, 30_000, marks=pytest.mark.slow)])
def test_noise_is_the_same_to_both_decoders(topic: TopicFixture, seed: int, number: int) -> None:
    rng = random.Random(seed)
    schema_id = topic.register(LANDED)
    good = encode(LANDED, schema_id, LANDED_VALUE)
    for body in mutations(rng, good[HEADER_BYTES:], number):
        topic.produce(good[:HEADER_BYTES] + body)
    with ending(topic):
        result = topic.land_well()
    assert 0 < result.dead_letters < result.records == number
    assert_no_column_differs(topic, number)
