"""The checker's decoding: random versions land under the names and in the shape that the ingester gives columns."""

import datetime as dt
import json
import random
from typing import Any

import pytest
from pyiceberg.types import IcebergType, ListType, MapType, StructType

from python_ingest.kafka.message import schema_id
from python_ingest.verify.avro_values import NotCompared, Reader, Unreadable, renamed
from tests.support.avro_versions import a_value, a_version, merged, without_nulls
from tests.support.registry_avro import encode
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


def test_bytes_of_another_schema_are_compared_or_quoted() -> None:
    schema = record("sale", id="int", note="string", kind={"type": "enum", "name": "e", "symbols": ["A"]})
    reader = Reader(json.dumps(schema), [], None, None, {})
    good = encode(schema, 7, {"id": 1, "note": "private", "kind": "A"})
    assert reader.read(good) == {"id": 1, "note": "private", "kind": "A"}
    for bad in (good[:-1], good[:-1] + b"\x02", good.replace(b"private", b"privat\xff"), good[:7]):
        with pytest.raises(Unreadable) as caught:
            reader.read(bad, is_refused=True)
        assert "privat" not in str(caught.value)


@pytest.mark.parametrize("part", [None, b"", b"\x00\x00\x00\x00", b"\x01\x00\x00\x00\x07", b"\x00\xff\xff\xff\xff"])
def test_what_has_no_header_has_no_schema_id(part: bytes | None) -> None:
    assert schema_id(part) is None
    assert schema_id(b"\x00\x00\x00\x01\x02rest") == 258


HEADER = b"\x00\x00\x00\x00\x07"
ENUM = {"type": "enum", "name": "e", "symbols": ["A"]}


def reader_of(kind: Any) -> Reader:
    """Return a reader of records with a field of this type."""
    return Reader(json.dumps(record("r", x=kind)), [], None, None, {})


@pytest.mark.parametrize(
    ("kind", "body", "reason"),
    [
        ("int", b"\x80\x80\x80\x80\x70", "an int has more than 32 bits"),
        (["null", "int"], b"\x80\x80\x80\x80\x10", "an index may have more than 32 bits"),
        (["int", "long", "string"], b"\x00\x02", "a union has two types of number"),
        ({"type": "array", "items": "null"}, b"\x00", "it has items without bytes"),
        (["null", "r"], b"\x00", "a type contains itself"),
        ({"type": "array", "items": "r"}, b"\x00", "a type contains itself"),
        (["null", "no.such.type"], b"\x00", r"^fastavro refuses it \(\w+\)$"),
    ],
)
def test_what_java_may_read_otherwise_is_not_compared(kind: Any, body: bytes, reason: str) -> None:
    with pytest.raises(NotCompared, match=reason):
        reader_of(kind).read(HEADER + body)


def test_a_schema_that_is_not_json_is_not_compared() -> None:
    with pytest.raises(NotCompared, match=r"^fastavro refuses it \(\w+\)$"):
        Reader("not JSON", [], None, None, renamed(["not JSON"]))


def test_the_least_int_and_a_long_of_a_union_are_read() -> None:
    assert reader_of("int").read(HEADER + b"\xff\xff\xff\xff\x0f") == {"x": -(2**31)}
    either = record("r", x=["int", "long"])
    assert reader_of(["int", "long"]).read(encode(either, 7, {"x": 2**40})) == {"x": 2**40}


@pytest.mark.parametrize(("kind", "body"), [(["null", ENUM], b"\x01\x00"), ("long", b"\x80" * 9 + b"\x00")])
def test_what_java_may_refuse_is_no_lost_record(kind: Any, body: bytes) -> None:
    with pytest.raises(NotCompared, match="may refuse their encoding"):
        reader_of(kind).read(HEADER + body, is_refused=True)


def test_a_dead_letter_in_its_one_encoding_is_decoded() -> None:
    schema = record("r", x=["null", record("s", y="long"), ENUM], b="bytes", m={"type": "map", "values": "double"})
    reader = Reader(json.dumps(schema), [], None, None, {})
    body = encode(schema, 7, {"x": ("s", {"y": -(2**63)}), "b": b"\xff", "m": {"k": 0.5, "a": 1.5}})
    expected = {"x": {"member_s": {"y": -(2**63)}}, "b": b"\xff", "m": {"k": 0.5, "a": 1.5}}
    assert reader.read(body + b"behind it", is_refused=True) == expected
    # An omitted field has limits that are the ingester's.
    omitting = Reader(json.dumps(schema), [], None, None, {}, omitted=["b"])
    assert omitting.read(body) == {name: value for name, value in expected.items() if name != "b"}
    with pytest.raises(NotCompared):
        omitting.read(body, is_refused=True)


@pytest.mark.parametrize("kind", ["boolean", {"type": "boolean"}, {"type": {"type": "boolean"}}])
def test_a_boolean_is_true_by_the_byte_1_alone(kind: Any) -> None:
    schema = record("r", x=kind, maybe=["null", kind], all={"type": "array", "items": kind}, one=["int", kind])
    reader = Reader(json.dumps(schema), [], None, None, {})
    for byte, value in ((b"\x00", False), (b"\x01", True), (b"\x02", False)):
        body = byte + b"\x02" + byte + b"\x02" + byte + b"\x00\x02" + byte
        expected = {"x": value, "maybe": value, "all": [value], "one": {"member_boolean": value}}
        assert reader.read(HEADER + body) == expected
