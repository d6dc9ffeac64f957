"""What a scaffold reads of a topic in the schema registry."""

import json
from uuid import uuid4

import pytest
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient

from python_common.config import connections
from python_common.config.settings import Settings
from python_common.errors import UserError
from python_dev.scaffold import schema
from python_ingest.declare.topics import Declaration
from tests.support.topic_fixture import record

TEXT = {"type": "object", "properties": {"id": {"type": "integer"}}}
UUID = {"type": "string", "logicalType": "uuid"}


def registered(services: Settings, **sides: tuple[object, str]) -> str:
    """Register schemas of a new topic, by side, and return its name."""
    topic = f"topic-{uuid4().hex[:10]}"
    registry = SchemaRegistryClient(connections.registry_client(services))
    for side, (avro, kind) in sides.items():
        registry.register_schema(f"{topic}-{side}", Schema(json.dumps(avro), kind))
    return topic


def test_documentation_is_found_at_any_depth(services: Settings) -> None:
    person = record("person", userId="string", ingest_batch="int")
    person["fields"][0]["doc"] = "Number of\n the person."
    avro = record("sale", saleId="long", kafka_offset="long", buyer=["null", person], seller=["null", "person"])
    avro["fields"][1]["doc"] = "Offset."
    topic = schema.read(services, registered(services, value=(avro, "AVRO")))
    assert [(field.path, topic.described(field.path)) for field in topic.leaves] == [
        ("saleId", None),
        ("value_kafka_offset", "Offset."),
        ("buyer.userId", "Number of the person."),
        ("buyer.ingest_batch", None),
        ("seller.userId", "Number of the person."),
        ("seller.ingest_batch", None),
    ]


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        (None, ("string", "string")),
        (("string", "AVRO"), ("avro", "string")),
        (("int", "AVRO"), ("avro", "int")),
        (("long", "AVRO"), ("avro", "bigint")),
        (("bytes", "AVRO"), ("avro", "binary")),
        ((UUID, "AVRO"), ("avro", "string")),
        ((record("sale_key", id="long"), "AVRO"), ("avro", "struct<`id`: bigint>")),
        # No column can hold these, so their bytes are landed.
        (("null", "AVRO"), ("bytes", "binary")),
        ((record("sale_key"), "AVRO"), ("bytes", "binary")),
        ((TEXT, "JSON"), ("bytes", "binary")),
    ],
)
def test_keys_are_decoded_by_their_schema(
    services: Settings, key: tuple[object, str] | None, expected: tuple[str, str]
) -> None:
    sides = {"key": key} if key else {}
    topic = schema.read(services, registered(services, value=(record("sale", id="long"), "AVRO"), **sides))
    assert (topic.key_format, topic.key_type) == expected


@pytest.mark.parametrize(
    ("avro", "kind", "message"),
    [(TEXT, "JSON", "-value is JSON"), ("null", "AVRO", "-value cannot be landed: a value that is always null")],
)
def test_a_schema_that_cannot_be_landed_is_named(services: Settings, avro: object, kind: str, message: str) -> None:
    topic = registered(services, value=(avro, kind))
    with pytest.raises(UserError, match=f"The schema {topic}{message}"):
        schema.read(services, topic)


def test_a_topic_without_schema_is_named(services: Settings) -> None:
    with pytest.raises(UserError, match="The schema registry has no subject unknown-value"):
        schema.read(services, "unknown")


def test_a_subject_is_named_or_declared(services: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    topic = registered(services, **{"shop.Sale": (record("sale", id="long"), "AVRO")})
    subject = f"{topic}-shop.Sale"
    assert schema.read(services, topic, subject).subject == subject

    declared = Declaration(topic, "bronze", "sales", subject=(f"{topic}-key", subject))
    monkeypatch.setattr(schema, "read_declarations", lambda: [declared])
    assert schema.read(services, topic).subject == subject
    monkeypatch.setattr(schema, "read_declarations", lambda: [Declaration(topic, "bronze", "sales", subject="record")])
    with pytest.raises(UserError, match="are named by their records"):
        schema.read(services, topic)
