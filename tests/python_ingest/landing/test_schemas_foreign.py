"""Schemas of other topics: a dead letter that touches neither table nor neighbours, until the declaration allows it."""

import random
import re
from dataclasses import replace

import pytest

from python_common.config.environment import PROJECT_ROOT
from python_common.config.settings import Settings
from python_ingest.avro.expanded_schema import full_name
from python_ingest.bronze.schema_state import SchemaState
from python_ingest.declare.topics import Declaration
from python_ingest.kafka.registry import Registry
from python_ingest.landing.schemas import TopicSchemas
from python_ingest.maintenance import replay
from python_ingest.maintenance.replay import Replayed
from tests.support.avro_versions import a_version
from tests.support.services.http_server import Handler, serving
from tests.support.topic_fixture import TopicFixture, assert_exactly_once, record


def test_neighbours_of_hostile_schemas_are_untouched_and_each_is_named(topic: TopicFixture) -> None:
    rng = random.Random(20261122)
    # Under a separate name: the registry gives equal schemas of several subjects one id.
    rows_of_topic = topic.register(record(f"sale_{topic.declaration.table}", id="int", note="string"))
    # Fields of the same names with other types, fields of other names, random ones, and none at all.
    hostile = [
        record("trade", id="string", note="int", symbol="string"),
        record("empty"),
        record("wide", id="long", note="string", gift=["null", "string"]),
        *(a_version(rng) | {"name": f"random_{number}"} for number in range(5)),
    ]
    foreign = {}
    for number, schema in enumerate(hostile):
        subject = f"{topic.name}-other-{number}"
        foreign[topic.register_under(subject, schema | {"namespace": topic.declaration.table})] = subject
    bodies = [rng.randbytes(length) for length in (0, 1, 20)]
    expected: list[str | None] = []
    for index, (schema_id, subject) in enumerate(foreign.items()):
        topic.produce(b"\x00" + schema_id.to_bytes(4, "big") + rng.choice(bodies))
        topic.produce(topic.encode(rows_of_topic, {"id": index, "note": "good"}))
        expected += [f"foreign_schema: schema id {schema_id} belongs to {subject}", None]
    assert topic.land_well().dead_letters == len(foreign)
    rows = topic.rows()
    assert [row["decode_error"] for row in rows] == expected
    assert [row["id"] for row in rows[1::2]] == list(range(len(foreign)))
    assert list(SchemaState.of(topic.table()).writers["value"]) == [rows_of_topic]
    assert [field.name for field in SchemaState.of(topic.table()).columns.fields] == ["id", "note"]
    assert_exactly_once(topic, 2 * len(foreign))


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ('{"type": "record", "name": "sale", "namespace": "shop", "fields": []}', "shop.sale"),
        ('{"type": "record", "name": "till.sale", "namespace": "shop", "fields": []}', "till.sale"),
        ('"string"', "string"),
        ('{"type": "map", "values": "int"}', ""),
        ("{", ""),
    ],
)
def test_a_schemas_full_name_is_avros(text: str, name: str) -> None:
    assert full_name(text) == name


class OldRegistry(Handler):
    """A registry that returns schemas by id, and ids by subject and schema, but not the subjects of an id."""

    def do_GET(self) -> None:
        self.answer(*((200, b'{"schema": "\\"int\\""}') if self.path.count("/") == 3 else (404, b"Not Found")))

    def do_POST(self) -> None:
        self.body()
        known = self.path.startswith("/subjects/mine-value?")
        answer = b'{"subject": "mine-value", "id": 7, "version": 1, "schema": "\\"int\\""}'
        self.answer(*((200, answer) if known else (404, b'{"error_code": 40401, "message": "Subject not found"}')))


def test_a_registry_that_lists_no_subjects_is_asked_for_the_allowed_ones(
    offline_settings: Settings, declaration: Declaration
) -> None:
    with serving(OldRegistry) as url:
        settings = offline_settings.changed(schema_registry_url=url)
        for topic, reason in (
            ("mine", None),
            ("other", "foreign_schema: schema id 7 is not registered under other-value"),
        ):
            schemas = TopicSchemas(Registry(settings, 10), replace(declaration, topic=topic))
            assert schemas.resolve_schemas(SchemaState(), {7}, ()).value.rejected.get(7) == reason


@pytest.mark.slow
def test_a_spoiled_table_is_repaired_as_in_the_docs(topic: TopicFixture) -> None:
    foreign_subject = f"{topic.name}-trades-value"
    trade = record(f"trade_{topic.declaration.table}", id="string", symbol="string")
    schema_id = topic.register_under(foreign_subject, trade)
    topic.produce(topic.encode(schema_id, {"id": "x", "symbol": "s"}))
    # As it was before subjects were asked for: the foreign schema came first and decided the columns.
    topic.declaring(subject=(foreign_subject,)).land_well()
    # Under a separate name: the registry gives equal schemas of several subjects one id.
    good_fields = topic.register(record(f"sale_{topic.declaration.table}", id="int", note="string"))
    topic.produce(topic.encode(good_fields, {"id": 1, "note": "n"}))
    assert topic.land_well().dead_letters == 1
    text = (PROJECT_ROOT / "docs" / "operations.md").read_text()
    section = text.split("## A table that a foreign schema spoiled")[1].split("\n## ")[0]
    statements = re.search(r"```sql\n(.*?)```", section, re.DOTALL)
    assert statements is not None
    own_names = {
        "lake.bronze.shiftleft_public_orders": "{table}",
        "symbol, account": "id, symbol",
        "stock_trades": f"{topic.name}-trades",
        "7": str(schema_id),
    }
    commands = re.sub("|".join(own_names), lambda match: own_names[match[0]], statements[1])
    for command in filter(str.strip, commands.split(";\n")):
        topic.sql(command)
    assert replay.replay(topic.batch_writer(), None) == Replayed(2, 1)
    assert [row["decode_error"] for row in topic.rows()] == [
        f"foreign_schema: schema id {schema_id} belongs to {foreign_subject}",
        None,
    ]
    assert [(row["id"], row["note"]) for row in topic.rows()] == [(None, None), (1, "n")]
    assert [field.name for field in SchemaState.of(topic.table()).columns.fields] == ["id", "note"]
    topic.produce(topic.encode(good_fields, {"id": 2, "note": "m"}))
    assert topic.land_well().dead_letters == 0
    assert_exactly_once(topic, 3)
