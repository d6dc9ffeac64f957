"""docs/type-mapping.md is true: each row of its tables goes through broker, registry, ingester and PyIceberg."""

import datetime as dt
import json
import re
import uuid
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql import SparkSession

from python_common.config.environment import PROJECT_ROOT
from python_common.config.settings import Settings
from python_ingest.avro.expanded_schema import expand_schema
from python_ingest.avro.types import omitted_fields
from tests.support.topic_fixture import (
    TopicFixture,
    assert_columns_hold_what_bytes_encode,
    assert_no_column_differs,
    new_declaration,
    record,
)

DOCUMENT = (PROJECT_ROOT / "docs" / "type-mapping.md").read_text()


def table(first_column: str) -> list[list[str]]:
    """Return the cells of the table that a first column heads, without backticks."""
    lines = DOCUMENT.split(f"\n| {first_column} |")[1].split("\n\n")[0].splitlines()[2:]
    return [[cell.strip().strip("`") for cell in line.strip("|").split("|")] for line in lines]


TYPES = table("Avro type")
NO_COLUMN = table("field `x`")
FITTING = table("change | before | after")
REFUSED = table("change of field `x`")

DAY = dt.date(2026, 11, 16)
MOMENT = dt.datetime(2026, 11, 16, 12, 30, 15, 250_000, tzinfo=dt.UTC)
LOCAL = MOMENT.replace(tzinfo=None)
UUID = uuid.UUID(int=2**100)


def timestamp(unit: str) -> str:
    return json.dumps({"type": "long", "logicalType": unit})


# What is written and what is read back, by the Avro type's text in the document; one value if they are the same.
VALUES: dict[str, Any] = {
    '"boolean"': True,
    '"int"': -(2**31),
    '"long"': 2**63 - 1,
    '"float"': 0.5,
    '"double"': 12.34,
    '"bytes"': b"\x00\xff",
    '"string"': 'na\u00efve \U0001f355, "quoted"\n',
    '"null"': None,
    '{"type": "fixed", "name": "f", "size": 3}': b"abc",
    '{"type": "enum", "name": "e", "symbols": ["A", "B"]}': "B",
    '{"type": "array", "items": "int"}': [1, 2],
    '{"type": "map", "values": "long"}': ({"a": 2**40}, [("a", 2**40)]),
    '{"type": "record", "name": "r", "fields": [{"name": "a", "type": "int"}]}': {"a": 7},
    '{"type": "record", "name": "r", "fields": []}': ({}, None),
    '["null", "string"]': None,
    '["string"]': "only",
    '["null", "int", "string"]': ("text", {"member_int": None, "member_string": "text"}),
    '["long", {"type": "record", "name": "shop.Paid", "fields": [{"name": "a", "type": "int"}]}]': (
        {"a": 3},
        {"member_long": None, "member_paid": {"a": 3}},
    ),
    '["int", "long"]': 5,
    '["null", "float", "double"]': 0.25,
    '{"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}': Decimal("-12345678.90"),
    '{"type": "fixed", "name": "d", "size": 16, "logicalType": "decimal", "precision": 38}': Decimal(10**38 - 1),
    '{"type": "int", "logicalType": "date"}': DAY,
    '{"type": "int", "logicalType": "time-millis"}': (dt.time(0, 0, 1, 2000), 1002),
    '{"type": "long", "logicalType": "time-micros"}': (dt.time(0, 0, 1, 2), 1_000_002),
    timestamp("timestamp-millis"): MOMENT,
    timestamp("timestamp-micros"): MOMENT.replace(microsecond=7),
    timestamp("timestamp-nanos"): 1_800_000_000_123_456_789,
    timestamp("local-timestamp-millis"): LOCAL,
    timestamp("local-timestamp-micros"): LOCAL.replace(microsecond=7),
    timestamp("local-timestamp-nanos"): 1_800_000_000_123_456_789,
    '{"type": "string", "logicalType": "uuid"}': (UUID, str(UUID)),
    '{"type": "fixed", "name": "u", "size": 16, "logicalType": "uuid"}': UUID.bytes,
    '{"type": "fixed", "name": "p", "size": 12, "logicalType": "duration"}': b"\x01\x00\x00\x00" * 3,
    timestamp("unheard-of"): 9,
    '{"type": "string", "logicalType": "date"}': "tomorrow",
}
R = {"a": 1}
# Before and after, as written, then as read, by the change's name in the document.
CHANGES: dict[str, tuple[Any, Any, Any, Any]] = {
    "field added": (None, "new", None, "new"),
    "field added that is not optional": (None, True, None, True),
    "field dropped": (1, None, 1, None),
    "field added in a record": (R, R | {"b": "new"}, R | {"b": None}, R | {"b": "new"}),
    "field added in array elements": ([R], [{"a": 2**40, "b": "n"}], [R | {"b": None}], [{"a": 2**40, "b": "n"}]),
    "field added in map values": ({"k": R}, {"k": R | {"b": "n"}}, [("k", R | {"b": None})], [("k", R | {"b": "n"})]),
    "int to long": (1, 2**40, 1, 2**40),
    "float to double": (0.5, 12.34, 0.5, 12.34),
    "more digits": (Decimal("1.25"), Decimal("9" * 18 + ".99"), Decimal("1.25"), Decimal("9" * 18 + ".99")),
    "more digits in a longer fixed": (Decimal("-1.25"), Decimal("9" * 16 + ".99")) * 2,
    "required to optional": ("text", None, "text", None),
    "null to a type": (None, "text", None, "text"),
    "symbols added and removed": ("A", "C", "A", "C"),
    "enum to string": ("A", "any", "A", "any"),
    "string to enum": ("any", "B", "any", "B"),
    "another size of fixed": (b"abc", b"abcde", b"abc", b"abcde"),
    "milliseconds to microseconds": (MOMENT, MOMENT.replace(microsecond=7)) * 2,
    "type added to a union, order changed": (
        "text",
        True,
        {"member_int": None, "member_string": "text", "member_boolean": None},
        {"member_int": None, "member_string": None, "member_boolean": True},
    ),
    "wider type in a union": (
        1,
        2**40,
        {"member_int": 1, "member_string": None, "member_long": None},
        {"member_int": None, "member_string": None, "member_long": 2**40},
    ),
    "field added in a record of a union": (
        R,
        {"a": 2**40, "b": "n"},
        {"member_int": None, "member_r": R | {"b": None}},
        {"member_int": None, "member_r": {"a": 2**40, "b": "n"}},
    ),
}


def a_topic(services: Settings, spark: SparkSession) -> TopicFixture:
    topic = TopicFixture(services, spark, new_declaration())
    topic.make_topic(1)
    return topic


def field_type(cell: str, number: int) -> Any:
    """Return the schema in a cell, its named types in a separate namespace: many fields share one record."""

    def apart(schema: Any) -> Any:
        if isinstance(schema, list):
            return [apart(branch) for branch in schema]
        if not isinstance(schema, dict):
            return schema
        named = {"name": schema["name"].rpartition(".")[2], "namespace": f"n{number}"} if "name" in schema else {}
        below = {name: apart(schema[name]) for name in ("items", "values") if name in schema}
        fields = [field | {"type": apart(field["type"])} for field in schema.get("fields", ())]
        return schema | named | below | ({"fields": fields} if "fields" in schema else {})

    return apart(json.loads(cell))


def columns(rows: list[list[str]], cell: int) -> dict[str, Any]:
    """Return the fields of a record: f0, f1, ... by row, without those whose cell is a dash."""
    return {f"f{number}": field_type(row[cell], number) for number, row in enumerate(rows) if row[cell] != "-"}


EVERY_TYPE = record("every", **columns(TYPES, 0))
"""The schema of a record with a field of each type in the document."""
PAIRS = [value if isinstance(value, tuple) else (value, value) for value in VALUES.values()]
EVERY_VALUE = {f"f{number}": written for number, (written, _) in enumerate(PAIRS)}
"""Such a record, as it is written."""
READ_VALUE = {f"f{number}": read for number, (_, read) in enumerate(PAIRS)}
"""What is read of it."""


@dataclass(frozen=True)
class Read:
    """What a table looks like after a batch: its Iceberg and Spark types by column, and its rows."""

    iceberg: dict[str, str]
    spark: dict[str, str]
    rows: list[dict[str, Any]]


def read(topic: TopicFixture) -> Read:
    fields = topic.table().schema().fields
    types = {field.name: re.sub(r"\b\d+: |optional ", "", str(field.field_type)) for field in fields}
    in_spark = topic.spark.table(f"lake.{topic.declaration.identifier}").schema
    return Read(types, {field.name: field.dataType.simpleString() for field in in_spark}, topic.rows())


@pytest.fixture(scope="module")
def typed(services: Settings, spark: SparkSession) -> Read:
    topic = a_topic(services, spark)
    assert list(VALUES) == [row[0] for row in TYPES]
    topic.produce(topic.encode(topic.register(EVERY_TYPE), EVERY_VALUE))
    assert topic.land_well().dead_letters == 0
    assert_columns_hold_what_bytes_encode(topic, 1)
    return read(topic)


@pytest.mark.parametrize(("number", "row"), list(enumerate(TYPES)), ids=[row[0] for row in TYPES])
def test_a_type_is_landed_as_documented(typed: Read, number: int, row: list[str]) -> None:
    _, in_iceberg, in_spark, _ = row
    name = f"f{number}"
    assert typed.iceberg.get(name, "-") == in_iceberg
    assert typed.spark.get(name, "-") == in_spark
    (landed,) = typed.rows
    assert landed.get(name) == READ_VALUE[name]


@pytest.mark.parametrize(("schema", "reason"), NO_COLUMN)
def test_what_cannot_be_a_column_is_omitted_as_documented(schema: str, reason: str) -> None:
    form = expand_schema(json.dumps(record("r", k="int", x=json.loads(schema))))
    assert list(omitted_fields(form)) == [("x", reason)]


def test_what_cannot_be_a_column_costs_the_field_and_not_the_record(services: Settings, spark: SparkSession) -> None:
    topic = a_topic(services, spark)
    values = [None, Decimal(10**38), [None, None], [b""] * 64, {}, "A", 7]
    written = {"k": 1, **{f"f{number}": value for number, value in enumerate(values)}, "ID": 3, "id": 4}
    fields = {f"f{number}": json.loads(schema) for number, (schema, _) in enumerate(NO_COLUMN)}
    schema_id = topic.register(record("r", k="int", **fields, ID="int", id="int"))
    topic.produce(topic.encode(schema_id, written | {"f0": written}))
    result = topic.land_well()
    assert result.dead_letters == 0
    assert len(result.notes) == 1
    for number, (_, reason) in enumerate(NO_COLUMN):
        assert f"f{number} is omitted, {reason}" in result.notes[0]
    landed_table = read(topic)
    assert not {*written} - {"k"} & {*landed_table.iceberg}
    assert landed_table.rows[0]["k"] == 1
    report = topic.verify(decoded=True)
    assert report.issues == []
    assert report.notes == [f"1 rows were not compared: schema {schema_id}: it has items without bytes"]
    # Of the two names the table has one from now on.
    topic.produce(topic.encode(topic.register(record("r", k="int", id="int")), {"k": 2, "id": 5}))
    topic.produce(topic.encode(topic.register(record("r", k="int", id="int", ID="int")), {"k": 3, "id": 6, "ID": 7}))
    assert topic.land_well().dead_letters == 0
    assert [row["id"] for row in topic.rows()] == [None, 5, 6]
    assert_no_column_differs(topic, 3)


@pytest.fixture(scope="module")
def evolved(services: Settings, spark: SparkSession) -> Read:
    """A table that a batch of the versions before, and one of both versions mixed, were landed in."""
    topic = a_topic(services, spark)
    assert list(CHANGES) == [row[0] for row in FITTING]

    def version(cell: int) -> bytes:
        fields = columns(FITTING, cell)
        values = {f"f{number}": change[cell - 1] for number, change in enumerate(CHANGES.values())}
        return topic.encode(topic.register(record("r", **fields)), {name: values[name] for name in fields})

    before, after = version(1), version(2)
    topic.produce(before)
    assert topic.land_well().dead_letters == 0
    for value in (after, before, after):
        topic.produce(value)
    assert topic.land_well().dead_letters == 0
    assert_columns_hold_what_bytes_encode(topic, 4)
    return read(topic)


@pytest.mark.parametrize(("number", "row"), list(enumerate(FITTING)), ids=[row[0] for row in FITTING])
def test_a_change_that_fits_is_landed_as_documented(evolved: Read, number: int, row: list[str]) -> None:
    name = f"f{number}"
    assert evolved.iceberg[name] == row[3]
    _, _, before, after = CHANGES[row[0]]
    assert [landed[name] for landed in evolved.rows] == [before, after, before, after]


@pytest.fixture(scope="module")
def refused(services: Settings, spark: SparkSession) -> Read:
    """A table of one version, to which came a version per row that changes one field."""
    topic = a_topic(services, spark)
    before = columns(REFUSED, 1)
    topic.produce(b"\x00" + topic.register(record("r", **before)).to_bytes(4, "big"))
    topic.land_well()
    schema = topic.table().schema()
    for name, changed in columns(REFUSED, 2).items():
        topic.produce(b"\x00" + topic.register(record("r", **before | {name: changed})).to_bytes(4, "big"))
    assert topic.land_well().dead_letters == len(REFUSED)
    assert topic.table().schema() == schema
    assert_columns_hold_what_bytes_encode(topic, 1 + len(REFUSED))
    return read(topic)


@pytest.mark.parametrize(("number", "row"), list(enumerate(REFUSED)), ids=[row[0] for row in REFUSED])
def test_a_change_that_does_not_fit_makes_dead_letters_as_documented(
    refused: Read, number: int, row: list[str]
) -> None:
    error = refused.rows[1 + number]["decode_error"]
    assert re.sub(r"schema id \d+", "schema id N", error) == (
        f"incompatible_schema: schema id N, {re.sub('^x', f'f{number}', row[3])}"
    )
