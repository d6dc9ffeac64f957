"""Columns: declared before the first record, and of schemas that come while a topic is landed or are refused."""

import json

from confluent_kafka.schema_registry import Schema, SchemaReference
from pyspark.sql import SparkSession

from python_common.config.settings import Settings
from python_ingest.declare import spark_types
from python_ingest.declare.spark_types import of_spark
from python_ingest.maintenance.status import topic_statuses
from tests.support.topic_fixture import TopicFixture, new_declaration, record
from tests.support.type_mapping import a_topic


def declaring(topic: TopicFixture, **columns: str) -> TopicFixture:
    types = {name: of_spark(text) for name, text in columns.items()}
    return topic.declaring(columns=spark_types.struct(types))


def test_a_declared_topic_without_a_record_has_no_table(
    topic: TopicFixture, services: Settings, spark: SparkSession
) -> None:
    empty = declaring(topic, note="string", lines="array<struct<sku: string, count: bigint>>")
    kafka_key = spark_types.struct({"kafka_key": of_spark("struct<x: int>")})
    missing = TopicFixture(services, spark, new_declaration(key="avro", columns=kafka_key))
    filled = a_topic(services, spark)
    filled.produce(filled.encode(filled.register("long"), 7))
    filled.flush()
    results = empty.ingester().catch_up([one.declaration for one in (missing, empty, filled)])
    assert [result.error is None for result in results] == [False, True, True]
    types = {name: kind.simpleString() for name, kind in empty.spark_types().items()}
    assert (types["note"], types["lines"]) == ("string", "array<struct<sku:string,count:bigint>>")
    assert missing.spark_types()["kafka_key"].simpleString() == "struct<x:int>"
    assert [row["value"] for row in filled.rows()] == [7]
    for one in (empty, missing):
        assert one.rows() == []
    assert empty.verify().issues == []
    (status,) = topic_statuses(services, [empty.declaration], 10)
    assert (status.error, status.rows, status.dead_letters, status.lag_offsets) == (None, 0, 0, 0)
    missing.make_topic(1)
    missing.produce(missing.encode(missing.register(record("x", y="int")), {"y": 5}))
    missing.land_well()
    assert [(row["y"], row["kafka_key"]) for row in missing.rows()] == [(5, None)]
    assert missing.table().properties["lakehouse.topic-id"]
    lines = {"type": "array", "items": record("line", count="int")}
    empty.produce(empty.encode(empty.register(record("x", lines=lines)), {"lines": [{"count": 1}]}))
    empty.land_well()
    assert [(row["note"], row["lines"]) for row in empty.rows()] == [(None, [{"sku": None, "count": 1}])]


def test_the_key_column_comes_with_the_first_avro_key(topic: TopicFixture) -> None:
    topic = topic.declaring(key="avro")
    declared = declaring(topic, kafka_key="struct<id: bigint, shop: string>")
    declared = declared.declaring(table=f"{topic.declaration.table}_declared")
    value = topic.encode(topic.register(record("sale", n="int")), {"n": 1})
    for foreign in (None, b"plain", b"\x00\x7f\xff\xff\x00\x02"):
        topic.produce(value, key=foreign)
    assert (topic.land_well().dead_letters, declared.land_well().dead_letters) == (0, 0)
    assert "kafka_key" not in topic.spark_types()
    assert declared.spark_types()["kafka_key"].simpleString() == "struct<id:bigint,shop:string>"
    topic.produce(value, key=topic.encode(topic.register(record("k", id="int"), side="key"), {"id": 7}))
    assert (topic.land_well().dead_letters, declared.land_well().dead_letters) == (0, 0)
    assert [row["kafka_key"] for row in topic.rows()] == [None, None, None, {"id": 7}]
    assert [row["kafka_key"] for row in declared.rows()] == [None, None, None, {"id": 7, "shop": None}]


def test_a_schema_that_refers_to_other_subjects_is_refused(topic: TopicFixture) -> None:
    def register(name: str, schema: object, *references: str) -> int:
        refers = [SchemaReference(referred, f"{topic.name}-{referred}", 1) for referred in references]
        return topic.registry.register_schema(f"{topic.name}-{name}", Schema(json.dumps(schema), "AVRO", refers))

    register("shop.Address", record("Address", city="string") | {"namespace": "shop"})
    register("shop.Paid", record("Paid", amount="int", to="Address") | {"namespace": "shop"}, "shop.Address")
    register("shop.Sent", record("Sent", to="Address") | {"namespace": "shop"}, "shop.Address")
    # One topic, several kinds of events: a union of types in separate subjects.
    events = register("value", ["shop.Paid", "shop.Sent"], "shop.Paid", "shop.Sent")
    header = b"\x00" + events.to_bytes(4, "big")
    topic.produce(header + b"\x00" + b"\x54" + b"\x04Rx")
    topic.produce(header + b"\x02" + b"\x04Ry")
    assert topic.land_well().dead_letters == 0
    assert [row["value"] for row in topic.rows()] == [
        {"member_paid": {"amount": 42, "to": {"city": "Rx"}}, "member_sent": None},
        {"member_paid": None, "member_sent": {"to": {"city": "Ry"}}},
    ]


def test_avros_parser_refuses_what_spark_could_not_read(topic: TopicFixture) -> None:
    batch_writer = topic.batch_writer()
    large = {"type": "fixed", "name": "f", "size": 2_000_000_000}
    decimal = large | {"logicalType": "decimal", "precision": 38}
    for more in ({"a-b": "int"}, {"\U00010400": "int"}, {"blob": ["null", large]}, {"blob": decimal}):
        refusal = batch_writer._avro_refusal(json.dumps(record("sale", id="int", **more)))
        assert (refusal or "").startswith("Avro's parser refuses it: S"), more
    assert batch_writer._avro_refusal(json.dumps(record("sale", id="int"))) is None


def test_stop_names_the_field_and_leaves_the_table_untouched(topic: TopicFixture) -> None:
    """Of a key in the first batch, and of a value in a later one."""
    stop, lenient = (topic.declaring(on_error=on_error, key="avro") for on_error in ("stop", "dead_letter"))
    remedy = "nothing of this batch was landed. Correct the cause, or declare on_error: dead_letter."
    # The registry gives equal schemas one id: a separate name keeps the ids in order.
    sale = f"sale_{topic.declaration.table}"
    good = topic.encode(topic.register(record(sale, id="int")), {"id": 1})
    for key in (None, b"secret"):
        stop.produce(good, key=key)
    result = stop.land()
    assert (
        str(result.error)
        == f"{topic.name}: partition 0, offset 1: key: not_registry_avro: the first byte is not 0; {remedy}"
    )
    assert (result.records, topic.table().current_snapshot()) == (0, None)
    assert lenient.land_well().records == 2
    stop.produce(topic.encode(topic.register(record(sale, id="int", a=["null", "int"])), {"id": 2, "a": 2}))
    unfit = topic.register(record(sale, id="int", a="string"))
    stop.produce(topic.encode(unfit, {"id": 3, "a": "three"}))
    before = topic.table().metadata_location
    refused = f"incompatible_schema: schema id {unfit}, a: int cannot become string"
    assert str(stop.land().error) == f"{topic.name}: partition 0, offset 3: {refused}; {remedy}"
    assert topic.table().metadata_location == before
