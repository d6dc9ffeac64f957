"""What plan-schema reports of a schema is what landing its records then does."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from python_common.catalog.catalog import load_catalog
from python_common.errors import UserError
from python_ingest.bronze import tables
from python_ingest.bronze.schema_state import SchemaState
from python_ingest.landing.schema_plan import plan_of_file, plans_of_newest
from tests.support.avro_versions import aliased
from tests.support.in_process import Lakehouse
from tests.support.registered_topic import RegisteredTopic
from tests.support.topic_fixture import TopicFixture, record

Registered = Callable[..., RegisteredTopic]

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


def evolved(topic: RegisteredTopic, catalog: Catalog, *schema_ids: int) -> Table:
    """Return the topic's table once records of these schemas have landed."""
    table = tables.prepared(catalog, topic.declaration)
    state = topic.schemas().resolve_schemas(SchemaState.of(table), schema_ids).state
    return tables.evolve(table, topic.declaration, state)


def columns(table: Table) -> dict[str, str]:
    """Return every path of a table and its type, but for the ingester's columns."""
    schema = table.schema()
    paths = {schema.find_column_name(field_id): schema.find_type(field_id) for field_id in schema.field_ids}
    return {path: str(kind) for path, kind in paths.items() if not path.startswith(("kafka_", "ingest", "decode"))}


def test_a_plan_is_what_landing_does_to_the_table(registered: Registered, catalog: Catalog) -> None:
    topic = registered()
    topic.register(1, FIRST)
    table = evolved(topic, catalog, 1)
    before = columns(table)
    topic.register(2, WIDER)
    [plan] = plans_of_newest(topic.registry, table, topic.declaration)
    assert list(plan.lines()) == [
        "shop-value, schema id 2, into bronze.shop:",
        "  adds       lines.element.tax double",
        "  adds       note string",
        "  adds       place.city string",
        "  widens     id to long",
        "  widens     price to double",
        "  omits      gone (stays, NULL from then on)",
        "  note       gone was dropped and note added, as a separate column",
    ]
    after = columns(evolved(topic, catalog, 2))
    assert after.keys() - before.keys() == {"lines.element.tax", "note", "place", "place.city"}
    assert {path for path in before if after[path] != before[path] and "<" not in before[path]} == {"id", "price"}
    table = evolved(topic, catalog, 2)
    [again] = plans_of_newest(topic.registry, table, topic.declaration)
    assert (again.added, again.widened) == ({}, {})


def test_without_a_table_every_column_is_added(registered: Registered) -> None:
    topic = registered(key="avro")
    with pytest.raises(UserError, match="No schema is registered under shop-value"):
        plans_of_newest(topic.registry, None, topic.declaration)
    topic.register(1, record("sale", id="int", kafka_offset="long"))
    added = {"id": "int", "value_kafka_offset": "long"}
    assert [plan.added for plan in plans_of_newest(topic.registry, None, topic.declaration)] == [added]
    topic.register(2, "long", "shop-key")
    plans = plans_of_newest(topic.registry, None, topic.declaration)
    assert [plan.added for plan in plans] == [added, {"kafka_key": "long"}]


def test_a_plan_compares_with_the_versions_of_its_type(
    registered: Registered, catalog: Catalog, tmp_path: Path
) -> None:
    topic = registered()
    topic.register(9, record("Wide", id="int"))
    topic.register(5, record("Wide", id="long"))
    # Version 2 landed first, under a lower id.
    table = evolved(topic, catalog, 5)
    [planned] = plans_of_newest(topic.registry, table, topic.declaration)
    assert (planned.schema_id, planned.refused) == (5, None)
    proposed = tmp_path / "proposed.avsc"
    for name, refused in (("Narrow", None), ("Wide", "id: long cannot become int")):
        proposed.write_text(json.dumps(record(name, id="int")))
        assert plan_of_file(proposed, table, topic.declaration, topic.registry).refused == refused
    with pytest.raises(UserError, match="cannot be read"):
        plan_of_file(tmp_path / "missing.avsc", None, topic.declaration, topic.registry)


def test_the_command_plans_of_the_registry_or_a_file(topic: TopicFixture, ingest: Lakehouse, tmp_path: Path) -> None:
    load_catalog(topic.settings, create=True)
    schema_id = topic.register(record("sale", id="int"))
    planned = ingest("plan-schema", topic.name, "--json")
    assert (planned.returncode, planned.stderr) == (0, "")
    [plan] = json.loads(planned.stdout)
    assert (plan["source"], plan["schema_id"], plan["added"]) == (f"{topic.name}-value", schema_id, {"id": "int"})
    proposed = tmp_path / "sale.avsc"
    for text, code, line in (
        (json.dumps(record("sale", id="int")), 0, "  adds       id int"),
        ("{", 1, "  refused    the schema is not JSON"),
    ):
        proposed.write_text(text)
        planned = ingest("plan-schema", topic.name, "--schema-file", str(proposed))
        heading = f"{proposed} into {topic.declaration.identifier}:"
        assert (planned.returncode, planned.stdout.splitlines()) == (code, [heading, line])
