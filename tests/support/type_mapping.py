"""The types of docs/type-mapping.md as fields of one record, with a value of each, as written and as read."""

import datetime as dt
import json
import uuid
from decimal import Decimal
from typing import Any

from pyspark.sql import SparkSession

from python_common.config.environment import PROJECT_ROOT
from python_common.config.settings import Settings
from tests.support.topic_fixture import (
    TopicFixture,
    new_declaration,
    record,
)

DOCUMENT = (PROJECT_ROOT / "docs" / "type-mapping.md").read_text()


def table(first_column: str) -> list[list[str]]:
    """Return the cells of the table that a first column heads, without backticks."""
    lines = DOCUMENT.split(f"\n| {first_column} |")[1].split("\n\n")[0].splitlines()[2:]
    return [[cell.strip().strip("`") for cell in line.strip("|").split("|")] for line in lines]


TYPES = table("Avro type")
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
