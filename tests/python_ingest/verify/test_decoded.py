"""Columns are compared with what another decoder makes of the bytes: whatever is changed is named by its place."""

import random
import re

import pytest
from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from python_ingest.verify import bronze_rows
from python_ingest.verify import report as verify_report
from python_ingest.verify.report import Sample
from tests.support.in_process import Lakehouse
from tests.support.topic_fixture import TopicFixture, assert_columns_hold_what_bytes_encode, record
from tests.support.type_mapping import EVERY_TYPE, EVERY_VALUE, READ_VALUE, TYPES

ROUNDS = 3


# SQL for another value than one of a type.
OTHER = {
    "boolean": "not {}",
    **dict.fromkeys(("integer", "long"), "{} ^ 1"),
    **dict.fromkeys(("float", "double", "decimal"), "{} - 1"),
    "date": "date_add({}, 1)",
    **dict.fromkeys(("timestamp", "timestamp_ntz"), "{} + interval 1 microsecond"),
    "binary": "concat({}, x'21')",
    "string": "concat({}, 'private')",
}


def changed(rng: random.Random, name: str, kind: DataType) -> str:
    """Return SQL for another value than the one that a column, field or element has, somewhere inside it."""
    if isinstance(kind, StructType):
        chosen = rng.choice(kind.names)
        parts = {field.name: f"{name}.{field.name}" for field in kind}
        parts[chosen] = changed(rng, parts[chosen], kind[chosen].dataType)
        fields = [f"'{field}', {part}" for field, part in parts.items()]
        return f"named_struct({', '.join(fields)})"
    if isinstance(kind, ArrayType):
        within = changed(rng, "element", kind.elementType)
        return rng.choice([f"transform({name}, element -> {within})", f"slice({name}, 1, size({name}) - 1)"])
    if isinstance(kind, MapType):
        within = changed(rng, "found", kind.valueType)
        keys = f"transform_keys({name}, (known, found) -> concat(known, '!'))"
        return rng.choice([f"transform_values({name}, (known, found) -> {within})", keys])
    text = kind.simpleString()
    other = OTHER[kind.typeName()].format(name)
    # Of NULL the other value is NULL, too.
    return f"coalesce(cast({other} as {text}), try_cast('1' as {text}), try_cast('2000-01-01' as {text}))"


def test_a_changed_value_of_some_type_is_not_found(topic: TopicFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    """The columns of docs/type-mapping.md, each changed in other rows: at random inside, and to NULL."""
    monkeypatch.setattr(verify_report, "ISSUES_NAMED", 1000)
    monkeypatch.setattr(bronze_rows, "PIECE_ROWS", 7)
    rng = random.Random(11)
    value = topic.encode(topic.register(EVERY_TYPE), EVERY_VALUE)
    topic.produce(value)
    topic.land_well()
    columns = topic.spark_types()
    types = {name: columns[name] for name in ("kafka_key", "value_schema_id", "key_schema_id")}
    types |= {name: kind for name, kind in columns.items() if re.fullmatch(r"f\d+", name)}
    assert len(types) == len(TYPES) + 1  # but for the two that have no column
    # In turn: neighbouring rows are not changed in the same column.
    plan = [(name, changed(rng, name, kind)) for _ in range(ROUNDS) for name, kind in types.items()]
    # Avro decodes a NULL union and an empty record to nothing that could be lost.
    never_null = {name for name, read in READ_VALUE.items() if read is not None} | {"kafka_key", "value_schema_id"}
    plan += [(name, "null") for name in types if name in never_null]
    for _ in plan:
        topic.produce(value, key=b"person")
    topic.land_well()
    assert_columns_hold_what_bytes_encode(topic, len(plan) + 1)
    cases = {
        name: " ".join(f"when {offset} then {sql}" for offset, (column, sql) in enumerate(plan, 1) if column == name)
        for name in types
    }
    changes = [f"{name} = case kafka_offset {whens} else {name} end" for name, whens in cases.items()]
    topic.sql("update {table} set " + ", ".join(changes))
    report = topic.verify(decoded=True)
    issue = re.compile(r"partition 0: offset (\d+): another (\w+)[\w.]* than in its bytes")
    named = [match.groups() for match in map(issue.fullmatch, report.issues) if match]
    assert sorted(named) == sorted((str(offset), name) for offset, (name, _) in enumerate(plan, 1)), report.issues
    assert len(named) == len(report.issues)
    assert "private" not in report.line() + "".join(report.issues + report.notes)


def test_a_disagreement_of_decoders_is_not_named(topic: TopicFixture) -> None:
    sale = topic.register(record("sale", id="int"))
    for value in (topic.encode(sale, {"id": 1}), topic.encode(sale, {"id": 2}), b"no schema", None):
        topic.produce(value)
    topic.land_well()
    assert_columns_hold_what_bytes_encode(topic, 4)
    topic.sql("update {table} set decode_error = 'decode_failed: schema id 1', id = null where kafka_offset = 0")
    topic.sql("update {table} set decode_error = null where kafka_offset = 2")
    topic.sql("update {table} set id = 5 where kafka_offset = 3")
    assert topic.verify(decoded=True).issues == [
        "partition 0: offset 0: is a dead letter, and its bytes can be decoded",
        "partition 0: offset 2: is decoded, and its bytes cannot be",
        "partition 0: offset 3: another id than in its bytes",
    ]
    topic.sql("update {table} set decode_error = 'unknown_schema_id: schema id 1' where kafka_offset = 0")
    assert topic.verify(decoded=True).notes == [
        f"1 dead letters can be decoded by now: `lakehouse ingest replay {topic.name}`"
    ]


def test_rows_beyond_retention_or_of_a_lost_schema_are_ignored(
    topic: TopicFixture,
) -> None:
    first, second = (topic.register(record("sale", id="int", **more)) for more in ({}, {"note": ["null", "string"]}))
    topic.produce(topic.encode(first, {"id": 1}))
    topic.produce(topic.encode(second, {"id": 2, "note": "n"}))
    topic.land_well()
    topic.delete_records(0, 2)
    assert_columns_hold_what_bytes_encode(topic, 2)
    lost = second + 1_000_000
    raw = f"concat(x'00{lost.to_bytes(4, 'big').hex()}', substring(kafka_raw_value, 6))"
    topic.sql(f"update {{table}} set kafka_raw_value = {raw}, value_schema_id = {lost} where kafka_offset = 1")
    topic.sql(f"alter table {{table}} set tblproperties ('lakehouse.value-schema.{lost}' = '[]')")
    report = topic.verify(decoded=True)
    assert (report.issues, report.decoded) == ([], 1)
    assert report.notes == [f"1 rows were not compared: the registry lacks schema {lost}"]


def test_a_sample_decodes_a_part_and_deleted_rows_are_skipped(
    topic: TopicFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bronze_rows, "PIECE_ROWS", 10)
    schema_id = topic.register(record("sale", id="int"))
    for index in range(200):
        topic.produce(topic.encode(schema_id, {"id": index}), index % 2)
    topic.land_well()
    assert topic.verify(Sample(10, 1), decoded=True).decoded == 20
    topic.sql("alter table {table} set tblproperties ('write.delete.mode' = 'merge-on-read')")
    topic.sql("update {table} set id = -1 where kafka_offset = 47")
    topic.sql("delete from {table} where kafka_offset = 47")
    report = topic.verify(decoded=True)
    assert report.decoded == 198
    assert not [issue for issue in report.issues if "than in its bytes" in issue]


def test_fields_named_like_columns_of_the_ingester_are_found(topic: TopicFixture, ingest: Lakehouse) -> None:
    schema_id = topic.register(record("sale", kafka_offset="int", _file="string"))
    topic.produce(topic.encode(schema_id, {"kafka_offset": 5, "_file": "f"}))
    topic.land_well()
    assert_columns_hold_what_bytes_encode(topic, 1)
    topic.sql("update {table} set value_kafka_offset = 6, value__file = 'g'")
    assert ingest("verify").returncode == 0
    result = ingest("verify", "--decoded")
    assert (result.returncode, result.stdout.splitlines()) == (
        1,
        [
            f"{topic.name}: 1 records compared, 1 rows decoded again: 2 issues, the first are",
            "  partition 0: offset 0: another value_kafka_offset than in its bytes",
            "  partition 0: offset 0: another value__file than in its bytes",
        ],
    )
