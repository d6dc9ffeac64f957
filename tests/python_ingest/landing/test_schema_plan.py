"""What plan-schema reports of a schema is what landing its records then does."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.schema_registry import Schema

from python_common.errors import UserError
from python_ingest.kafka.registry import Registry
from python_ingest.landing.schema_plan import plan_of_file, plans_of_newest
from tests.support.avro_versions import aliased
from tests.support.in_process import Lakehouse
from tests.support.topic_fixture import TopicFixture, record

LINE = record("line", sku="string", count="int")
FIRST = record("sale", id="int", price="float", gone="string", lines={"type": "array", "items": LINE})
WIDER = aliased(
    record(
        "sale",
        number="long",
        price="double",
        note=["null", "string"],
        place=record("place", city="string"),
        lines={"type": "array", "items": record("line", sku="string", tax="double", count="int")},
    ),
    number=["id"],
)


def register(topic: TopicFixture, schema: Any, side: str = "value") -> int:
    return topic.registry.register_schema(f"{topic.name}-{side}", Schema(json.dumps(schema), "AVRO"))


def columns(topic: TopicFixture) -> dict[str, str]:
    """Return every path of the table and its type, but for the ingester's columns."""
    schema = topic.table().schema()
    paths = {schema.find_column_name(field_id): schema.find_type(field_id) for field_id in schema.field_ids}
    return {path: str(kind) for path, kind in paths.items() if not path.startswith(("kafka_", "ingest", "decode"))}


def test_a_plan_comes_true(topic: TopicFixture, ingest: Lakehouse) -> None:
    topic.produce(topic.encode(register(topic, FIRST), {"id": 1, "price": 0.5, "gone": "g", "lines": []}))
    topic.land_well()
    before, location = columns(topic), topic.table().metadata_location
    schema_id = register(topic, WIDER)
    result = ingest("plan-schema", topic.name, "--json")
    assert (result.returncode, result.stderr) == (0, "")
    (plan,) = json.loads(result.stdout)
    assert plan == {
        "source": f"{topic.name}-value",
        "schema_id": schema_id,
        "table": topic.declaration.identifier,
        "added": {"lines.element.tax": "double", "note": "string", "place.city": "string"},
        "widened": {"id": "long", "price": "double"},
        "not_written": ["gone"],
        "notes": ["gone was dropped and note added, as a separate column"],
        "refused": None,
    }
    (same,) = plans_of_newest(Registry(topic.settings, 10), topic.table(), topic.declaration)
    assert list(same.lines())[1:] == [
        "  adds       lines.element.tax double",
        "  adds       note string",
        "  adds       place.city string",
        "  widens     id to long",
        "  widens     price to double",
        "  omits      gone (stays, NULL from then on)",
        "  note       gone was dropped and note added, as a separate column",
    ]
    assert topic.table().metadata_location == location
    value = {"number": 2, "price": 1.5, "note": None, "place": {"city": "c"}, "lines": []}
    topic.produce(topic.encode(schema_id, value))
    assert topic.land_well().dead_letters == 0
    after = columns(topic)
    assert {path for path in after if path not in before} == {"lines.element.tax", "note", "place", "place.city"}
    assert {path for path in before if after[path] != before[path] and "<" not in before[path]} == {"id", "price"}
    (row,) = [row for row in topic.rows() if row["id"] == 2]
    assert (row["gone"], row["place"]) == (None, {"city": "c"})
    (again,) = plans_of_newest(Registry(topic.settings, 10), topic.table(), topic.declaration)
    assert (again.added, again.widened) == ({}, {})


def test_without_a_table_every_column_is_added_and_keys_are_planned_too(topic: TopicFixture, tmp_path: Path) -> None:
    avro = replace(topic.declaration, key="avro")
    registry = Registry(topic.settings, 10)
    with pytest.raises(UserError, match=f"No schema is registered under {topic.name}-value"):
        plans_of_newest(registry, None, avro)
    register(topic, record("sale", id="int", kafka_offset="long"))
    assert [len(plan.added) for plan in plans_of_newest(registry, None, avro)] == [2]
    register(topic, "long", side="key")
    value, key = plans_of_newest(registry, None, avro)
    assert value.added == {"id": "int", "value_kafka_offset": "long"}
    assert key.added == {"kafka_key": "long"}


def test_a_proposed_schema_is_read_from_a_file(topic: TopicFixture, ingest: Lakehouse, tmp_path: Path) -> None:
    proposed = tmp_path / "sale.avsc"
    proposed.write_text(json.dumps(FIRST))
    result = ingest("plan-schema", topic.name, "--schema-file", str(proposed))
    assert result.returncode == 0
    assert result.stdout.splitlines() == [
        f"{proposed} into {topic.declaration.identifier}:",
        "  adds       id int",
        "  adds       price float",
        "  adds       gone string",
        "  adds       lines.element.sku string",
        "  adds       lines.element.count int",
    ]
    proposed.write_text("{")
    result = ingest("plan-schema", topic.name, "--schema-file", str(proposed))
    assert (result.returncode, result.stdout.splitlines()[1:]) == (1, ["  refused    the schema is not JSON"])
    with pytest.raises(UserError, match="cannot be read"):
        plan_of_file(tmp_path / "missing.avsc", None, topic.declaration, Registry(topic.settings, 10))
