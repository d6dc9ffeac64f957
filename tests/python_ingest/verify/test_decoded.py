"""Columns are compared with what another decoder makes of the bytes: whatever is changed is named by its place."""

import datetime as dt
import random
import re
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.types import IcebergType, ListType, LongType, MapType, StringType, StructType

from python_ingest.bronze import tables
from python_ingest.declare.spark_types import children
from python_ingest.kafka.offset_range import StoredOffsets
from python_ingest.verify import bronze_rows
from python_ingest.verify import report as verify_report
from python_ingest.verify.bronze_rows import BronzeTable
from python_ingest.verify.decoded import compare_decoded
from python_ingest.verify.report import Report, Sample
from tests.support.registered_topic import RegisteredTopic
from tests.support.registry_avro import encode
from tests.support.topic_fixture import TopicFixture, record
from tests.support.type_mapping import EVERY_TYPE, EVERY_VALUE, READ_VALUE, TYPES

ROUNDS = 3
SALE = record("sale", id="int")
Registered = Callable[..., RegisteredTopic]
Row = dict[str, Any]
# Another value than one of a type.
OTHER: dict[type, Callable[[Any], Any]] = {
    bool: lambda value: not value,
    int: lambda value: value ^ 1,
    float: lambda value: value - 1,
    Decimal: Decimal.copy_negate,
    str: lambda value: f"{value}private",
    bytes: lambda value: value + b"!",
    dt.datetime: lambda value: value + dt.timedelta(microseconds=1),
    dt.date: lambda value: value + dt.timedelta(days=1),
}


def compared(topic: RegisteredTopic, catalog: Catalog, rows: list[Row], lost: int | None = None) -> Report:
    """Compare rows of a table that knows all schemas of a topic, of which the registry may have lost one."""
    declaration = replace(topic.declaration, partition_spec=())
    state = topic.state([*topic.registrations.schemas])
    table = tables.evolve(tables.prepared(catalog, declaration), declaration, state)
    at = ({"kafka_partition": 0, "kafka_offset": offset} for offset in range(len(rows)))
    landed = [position | row for position, row in zip(at, rows, strict=True)]
    table.overwrite(pa.Table.from_pylist(landed, table.schema().as_arrow()))
    topic.registrations.schemas.pop(lost, None)
    report = Report(declaration.topic, declaration.identifier)
    with closing(StoredOffsets()) as stored:
        compare_decoded(report, BronzeTable(table, declaration.topic, stored), declaration.key, topic.registry)
    return report


def landed(schema: Any, schema_id: int, value: Row) -> Row:
    """Return the row of a record, without the columns of its fields."""
    return {"kafka_raw_value": encode(schema, schema_id, value), "value_schema_id": schema_id}


def changed(rng: random.Random, value: Any, column: IcebergType) -> Any:
    """Return another value than that of a column, field or element, somewhere inside it."""
    match column:
        case StructType():
            name = rng.choice([*children(column)])
            return value | {name: changed(rng, value[name], children(column)[name])}
        case ListType():
            return rng.choice([value[:-1], [*value[:-1], changed(rng, value[-1], column.element_type)]])
        case MapType():
            [(key, part)] = value
            return rng.choice([[(f"{key}!", part)], [(key, changed(rng, part, column.value_type))]])
    if value is None:
        return "private" if column == StringType() else 1
    return OTHER[type(value)](value)


def test_a_changed_value_of_some_type_is_not_found(
    registered: Registered, catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The columns of docs/type-mapping.md, each changed in other rows: at random inside, and to NULL."""
    monkeypatch.setattr(verify_report, "ISSUES_NAMED", 1000)
    monkeypatch.setattr(bronze_rows, "PIECE_ROWS", 7)
    rng, topic = random.Random(11), registered()
    topic.register(1, EVERY_TYPE)
    types = children(topic.state([1]).columns)
    assert len(types) == len(TYPES) - 2  # that have no column
    good = landed(EVERY_TYPE, 1, EVERY_VALUE) | {
        "kafka_raw_key": b"person",
        "kafka_key": "person",
        "key_schema_id": None,
    }
    good |= {name: READ_VALUE[name] for name in types}
    types |= {"kafka_key": StringType(), "value_schema_id": LongType(), "key_schema_id": LongType()}
    # In turn: neighbouring rows are not changed in the same column.
    plan = [(name, changed(rng, good[name], kind)) for _ in range(ROUNDS) for name, kind in types.items()]
    plan += [(name, None) for name in types if good[name] is not None]
    report = compared(topic, catalog, [good, *(good | {name: value} for name, value in plan)])
    issue = re.compile(r"partition 0: offset (\d+): another (\w+)[\w.]* than in its bytes")
    named = [match.groups() for match in map(issue.fullmatch, report.issues) if match]
    assert sorted(named) == sorted((str(offset), name) for offset, (name, _) in enumerate(plan, 1)), report.issues
    assert (report.issue_count, report.decoded, report.notes) == (len(plan), 1 + len(plan), [])
    assert "private" not in report.line() + "".join(report.issues)


def test_a_disagreement_of_decoders_is_not_named(registered: Registered, catalog: Catalog) -> None:
    topic = registered()
    topic.register(1, SALE)
    dead, good = (landed(SALE, 1, {"id": number}) | {"id": number} for number in (1, 2))
    dead |= {"id": None, "decode_error": "decode_failed: schema id 1"}
    rows = [dead, good, {"kafka_raw_value": b"no schema"}, {"id": 5}]
    assert compared(topic, catalog, rows).issues == [
        "partition 0: offset 0: is a dead letter, and its bytes can be decoded",
        "partition 0: offset 2: is decoded, and its bytes cannot be",
        "partition 0: offset 3: another id than in its bytes",
    ]
    report = compared(topic, catalog, [dead | {"decode_error": "unknown_schema_id: schema id 1"}])
    assert report.issues == []
    assert report.notes == ["1 dead letters can be decoded by now: `lakehouse ingest replay shop`"]


def test_rows_of_a_lost_schema_are_taken_for_compared(registered: Registered, catalog: Catalog) -> None:
    topic = registered()
    second = record("sale", id="int", note=["null", "string"])
    topic.register(1, SALE)
    topic.register(2, second)
    rows = [landed(SALE, 1, {"id": 1}) | {"id": 1}, landed(second, 2, {"id": 2, "note": "n"}) | {"id": 2, "note": "n"}]
    report = compared(topic, catalog, rows, lost=2)
    assert (report.issues, report.decoded) == ([], 1)
    assert report.notes == ["1 rows were not compared: the registry lacks schema 2"]


def test_fields_named_like_columns_of_the_ingester_are_missed(registered: Registered, catalog: Catalog) -> None:
    topic = registered()
    schema = record("sale", kafka_offset="int", _file="string")
    topic.register(1, schema)
    row = landed(schema, 1, {"kafka_offset": 5, "_file": "f"})
    good = {"value_kafka_offset": 5, "value__file": "f"}
    assert compared(topic, catalog, [row | good, row | {"value_kafka_offset": 6, "value__file": "g"}]).issues == [
        "partition 0: offset 1: another value_kafka_offset than in its bytes",
        "partition 0: offset 1: another value__file than in its bytes",
    ]


def test_a_value_of_omitted_fields_needs_a_column(registered: Registered, catalog: Catalog) -> None:
    topic = registered()
    twins = {"type": "array", "items": record("twins", ID="int", id="int")}
    schema = record("sale", k="int", them={"type": "map", "values": twins})
    topic.register(1, schema)
    row = landed(schema, 1, {"k": 2, "them": {"x": [{"ID": 3, "id": 4}]}}) | {"k": 2}
    report = compared(topic, catalog, [row])
    assert (report.issues, report.notes, report.decoded) == ([], [], 1)


def test_a_sample_decodes_a_part_and_deleted_rows_are_skipped(
    topic: TopicFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also of rows that the broker no longer has."""
    monkeypatch.setattr(bronze_rows, "PIECE_ROWS", 10)
    schema_id = topic.register(record("sale", id="int"))
    for index in range(200):
        topic.produce(topic.encode(schema_id, {"id": index}), index % 2)
    topic.land_well()
    assert topic.verify(Sample(10, 1), decoded=True).decoded == 20
    topic.sql("alter table {table} set tblproperties ('write.delete.mode' = 'merge-on-read')")
    topic.sql("update {table} set id = -1 where kafka_offset = 47")
    topic.sql("delete from {table} where kafka_offset = 47")
    topic.delete_records(0, 100)
    report = topic.verify(decoded=True)
    assert report.decoded == 198
    assert not [issue for issue in report.issues if "than in its bytes" in issue]
