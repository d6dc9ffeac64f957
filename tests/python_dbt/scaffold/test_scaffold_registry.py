"""What a scaffold reads of a topic in the schema registry."""

import json
from uuid import uuid4

import pytest
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient

from python_common.config import connections
from python_common.config.settings import Settings
from python_common.errors import UserError
from python_dbt.scaffold import columns
from tests.support.topic_fixture import record

TEXT = {"type": "object", "properties": {"id": {"type": "integer"}}}


def registered(services: Settings, **sides: tuple[object, str]) -> str:
    """Register schemas of a new topic, by side, and return its name."""
    topic = f"topic-{uuid4().hex[:10]}"
    registry = SchemaRegistryClient(connections.registry_client(services))
    for side, (schema, kind) in sides.items():
        registry.register_schema(f"{topic}-{side}", Schema(json.dumps(schema), kind))
    return topic


def test_fields_have_their_description_in_the_schema(services: Settings) -> None:
    schema = record("sale", saleId="long", note="string")
    schema["fields"][0]["doc"] = "Number of\n the sale."
    schema["fields"][1]["doc"] = "Rendered by {{ dbt }}."
    topic = registered(services, value=(schema, "AVRO"))
    key_format, key_type, payload = columns.read(services, topic, {})
    assert (key_format, key_type) == ("string", "string")
    assert [(one.name, one.description) for one in payload] == [
        ("sale_id", "Number of the sale."),
        ("note", f"Field note of topic {topic}, as its producer writes it."),
    ]


def test_keys_are_avro_where_their_schema_is_registered(services: Settings) -> None:
    topic = registered(services, value=(record("sale", id="long"), "AVRO"), key=(record("sale_key", id="long"), "AVRO"))
    assert columns.read(services, topic, {})[:2] == ("avro", "struct<`id`: bigint>")


@pytest.mark.parametrize(
    ("schema", "kind", "message"),
    [(TEXT, "JSON", "-value is JSON"), ("null", "AVRO", "-value cannot be landed: a value that is always null")],
)
def test_a_schema_that_cannot_be_landed_is_named(services: Settings, schema: object, kind: str, message: str) -> None:
    topic = registered(services, value=(schema, kind))
    with pytest.raises(UserError, match=f"The schema {topic}{message}"):
        columns.read(services, topic, {})


def test_a_topic_without_schema_is_named(services: Settings) -> None:
    with pytest.raises(UserError, match="The schema registry has no subject unknown-value"):
        columns.read(services, "unknown", {})
