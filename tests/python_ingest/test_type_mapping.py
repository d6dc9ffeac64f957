"""docs/type-mapping.md is true: each row of its tables goes through broker, registry, ingester and PyIceberg."""

import json
import re
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql import SparkSession

from python_common.config.settings import Settings
from python_ingest.avro.expanded_schema import expand_schema
from python_ingest.avro.types import omitted_fields
from tests.support.topic_fixture import (
    TopicFixture,
    assert_columns_hold_what_bytes_encode,
    record,
)
from tests.support.type_mapping import (
    EVERY_TYPE,
    EVERY_VALUE,
    MOMENT,
    READ_VALUE,
    TYPES,
    VALUES,
    a_topic,
    columns,
    table,
)

NO_COLUMN = table("field `x`")
FITTING = table("change | before | after")


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


def iceberg_types(topic: TopicFixture) -> dict[str, str]:
    """Return the types of the columns, by name."""
    fields = topic.table().schema().fields
    return {field.name: re.sub(r"\b\d+: |optional ", "", str(field.field_type)) for field in fields}


def test_each_type_is_landed_as_documented(services: Settings, spark: SparkSession) -> None:
    topic = a_topic(services, spark)
    assert list(VALUES) == [row[0] for row in TYPES]
    topic.produce(topic.encode(topic.register(EVERY_TYPE), EVERY_VALUE))
    assert topic.land_well().dead_letters == 0
    assert_columns_hold_what_bytes_encode(topic, 1)
    in_iceberg = iceberg_types(topic)
    in_spark = {name: kind.simpleString() for name, kind in topic.spark_types().items()}
    (landed,) = topic.rows()
    for number, row in enumerate(TYPES):
        name = f"f{number}"
        assert (in_iceberg.get(name, "-"), in_spark.get(name, "-")) == (row[1], row[2]), row[0]
        assert landed.get(name) == READ_VALUE[name], row[0]


@pytest.mark.parametrize(("schema", "reason"), NO_COLUMN)
def test_what_cannot_be_a_column_is_omitted_as_documented(schema: str, reason: str) -> None:
    form = expand_schema(json.dumps(record("r", k="int", x=json.loads(schema))))
    assert list(omitted_fields(form)) == [("x", reason)]


def test_each_change_that_fits_is_landed_as_documented(services: Settings, spark: SparkSession) -> None:
    """A batch of the versions before, then one of both versions mixed."""
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
    types, rows = iceberg_types(topic), topic.rows()
    for number, row in enumerate(FITTING):
        name, (_, _, read_before, read_after) = f"f{number}", CHANGES[row[0]]
        assert types[name] == row[3], row[0]
        assert [landed[name] for landed in rows] == [read_before, read_after, read_before, read_after], row[0]
