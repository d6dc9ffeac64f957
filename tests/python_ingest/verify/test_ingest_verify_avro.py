"""The checker's decoding: random versions land under the names and in the shape that the ingester gives columns."""

import datetime as dt
import json
import random
from functools import partial
from typing import Any

import pytest
from pyiceberg.types import IcebergType, ListType, MapType, StructType

from python_ingest.kafka.message import schema_id
from python_ingest.verify.aliases import renamed
from python_ingest.verify.avro_values import Reader, Unreadable
from tests.python_ingest.avro.test_ingest_evolution import a_value, without_nulls
from tests.python_ingest.avro.test_ingest_schemas import a_version, merged
from tests.support.evolutions import encode
from tests.support.topic_fixture import record

EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
VERSIONS, VALUES = 8, 5


def with_numbers(value: Any) -> Any:
    """Return a value with microseconds in the place of times."""
    if isinstance(value, dict):
        return {name: with_numbers(part) for name, part in value.items()}
    if isinstance(value, list):
        return [with_numbers(part) for part in value]
    return (value - EPOCH) // dt.timedelta(microseconds=1) if isinstance(value, dt.datetime) else value


def without_column(value: Any, column: IcebergType | None, path: str = "") -> list[str]:
    """Return the places of a value that hold something and have no column."""
    if value is None:
        return []
    if column is None:
        return [path]
    match column:
        case StructType():
            types = {field.name: field.field_type for field in column.fields}
            children = [(f"{path}.{name}", part, types.get(name)) for name, part in value.items()]
        case ListType():
            children = [(path, part, column.element_type) for part in value]
        case MapType():
            children = [(path, part, column.value_type) for part in value.values()]
        case _:
            children = []
    return [missing for name, part, kind in children for missing in without_column(part, kind, name)]


def test_random_versions_are_read_into_the_ingesters_columns() -> None:
    for seed in range(20):
        rng = random.Random(seed)
        versions = [a_version(rng) for _ in range(VERSIONS)]
        columns, _ = merged(*versions)
        names = renamed(map(json.dumps, versions))
        for version in versions:
            reader = Reader(json.dumps(version), [], columns, None, names)
            for _ in range(VALUES):
                written, expected = a_value(rng, version)
                value = reader.read(encode(version, 7, written))
                assert without_nulls(value) == with_numbers(expected), seed
                assert without_column(value, columns) == [], seed


@pytest.mark.parametrize("schema", ["not JSON", '{"type": "record"}', '["null", "no.such.type"]', '"nothing"'])
def test_an_invalid_schema_is_reported_as_unreadable(schema: str) -> None:
    with pytest.raises(Unreadable):
        Reader(schema, [], None, None, renamed([schema]))


def test_bytes_that_are_not_of_the_schema_are_unreadable_and_not_quoted() -> None:
    schema = record("sale", id="int", note="string", kind={"type": "enum", "name": "e", "symbols": ["A"]})
    reader = Reader(json.dumps(schema), [], None, None, {})
    good = encode(schema, 7, {"id": 1, "note": "private", "kind": "A"})
    assert reader.read(good) == {"id": 1, "note": "private", "kind": "A"}
    for bad in (good[:-1], good[:-1] + b"\x02", good.replace(b"private", b"privat\xff"), good[:7]):
        with pytest.raises(Unreadable) as caught:
            reader.read(bad)
        assert "privat" not in str(caught.value)


@pytest.mark.parametrize("part", [None, b"", b"\x00\x00\x00\x00", b"\x01\x00\x00\x00\x07", b"\x00\xff\xff\xff\xff"])
def test_what_has_no_header_has_no_schema_id(part: bytes | None) -> None:
    assert schema_id(part) is None
    assert schema_id(b"\x00\x00\x00\x01\x02rest") == 258


@pytest.mark.parametrize(
    ("body", "number"),
    [(b"\xff\xff\xff\xff\x0f", -(2**31)), (b"\xff\xff\xff\xff\x7f", -(2**31)), (b"\x80\x80\x80\x80\x70", 0)],
)
def test_an_int_of_too_many_bits_is_what_java_makes_of_it(body: bytes, number: int) -> None:
    reader = Reader(json.dumps(record("r", x="int")), [], None, None, {})
    assert reader.read(b"\x00\x00\x00\x00\x07" + body) == {"x": number}
    with pytest.raises(Unreadable):
        reader.read(b"\x00\x00\x00\x00\x07\xff\xff\xff\xff\xff\x7f")
    either = Reader(json.dumps(record("r", x=["int", "long"])), [], None, None, {})
    assert either.read(encode(record("r", x=["int", "long"]), 7, {"x": 2**40})) == {"x": 2**40}


def test_what_java_refuses_is_unreadable_on_request() -> None:
    header = b"\x00\x00\x00\x00\x07"
    union = record("r", x=["null", "int", {"type": "enum", "name": "e", "symbols": ["A"]}])
    itself = record("s", me="s")
    for schema, bodies in (
        # An index below 0, or an int in more than five bytes, as an index, a number and a symbol.
        (union, (b"\x01", b"\x03\x00", b"\x82\x80\x80\x80\x80\x00\x00", b"\x02" + b"\x80" * 5 + b"\x00")),
        (union, (b"\x04" + b"\x80" * 5 + b"\x00", b"\x04\x02", b"\x06", b"")),
        (itself, (b"", b"\x00" * 100)),
    ):
        reader = Reader(json.dumps(schema), [], None, None, {})
        for body in bodies:
            with pytest.raises(Unreadable):
                reader.read(header + body, as_java=True)
    # Java keeps 32 bits of an int, of an index and of a symbol too.
    reader = Reader(json.dumps(union), [], None, None, {})
    for body, value in (
        (b"\x82\x80\x80\x80\x10\x02", {"member_int": 1}),
        (b"\x04\x80\x80\x80\x80\x10", {"member_e": "A"}),
    ):
        assert reader.read(header + body) == reader.read(header + body, as_java=True) == {"x": value}


def test_a_long_of_more_bytes_than_java_reads_is_unreadable_on_request() -> None:
    schema = record("r", x="long", note="string")
    reader = Reader(json.dumps(schema), [], None, None, {})
    header, note = b"\x00\x00\x00\x00\x07", b"\x02a"
    read = partial(reader.read, as_java=True)
    assert read(header + b"\xff" * 9 + b"\x01" + note) == {"x": -(2**63), "note": "a"}
    with pytest.raises(Unreadable, match="OverflowError"):
        read(header + b"\xff" * 10 + b"\x01" + note)
    text = {"x": 1, "note": "私人情報" * 3}
    assert read(encode(schema, 7, text)) == text
    # Without the request what has ten such bytes in a row, each in a value, is read.
    of_one_byte = record("r", b="bytes", x="long")
    value = {"b": b"\xff", "x": 2**63 - 1}
    assert Reader(json.dumps(of_one_byte), [], None, None, {}).read(encode(of_one_byte, 7, value)) == value
