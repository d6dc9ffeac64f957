"""Schemas of other topics: a dead letter that touches neither table nor neighbours, until the declaration allows it."""

import random

from python_common.config.settings import Settings
from python_ingest.bronze.schema_state import SchemaState
from python_ingest.declare.topics import Declaration
from python_ingest.kafka.registry import Registry
from python_ingest.landing.schemas import TopicSchemas
from tests.support.avro_versions import a_version
from tests.support.services.http_server import Handler, serving
from tests.support.topic_fixture import TopicFixture, assert_exactly_once, record


def test_neighbours_of_hostile_schemas_are_untouched(topic: TopicFixture) -> None:
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


class OldRegistry(Handler):
    """A registry that returns schemas by id, and ids by subject and schema, but not the subjects of an id."""

    def do_GET(self) -> None:
        self.answer(*((200, b'{"schema": "\\"int\\""}') if self.path.count("/") == 3 else (404, b"Not Found")))

    def do_POST(self) -> None:
        self.body()
        known = self.path.startswith("/subjects/mine-value?")
        answer = b'{"subject": "mine-value", "id": 7, "version": 1, "schema": "\\"int\\""}'
        self.answer(*((200, answer) if known else (404, b'{"error_code": 40401, "message": "Subject not found"}')))


def test_a_registry_without_lists_is_asked_for_allowed_subjects(offline_settings: Settings) -> None:
    with serving(OldRegistry) as url:
        settings = offline_settings.changed(schema_registry_url=url)
        foreign = "foreign_schema: schema id 7 is not registered under other-value"
        for topic, reason in (("mine", None), ("other", foreign)):
            schemas = TopicSchemas(Registry(settings, 10), Declaration(topic, "bronze", topic))
            assert schemas.resolve_schemas(SchemaState(), {7}).value.rejected.get(7) == reason
