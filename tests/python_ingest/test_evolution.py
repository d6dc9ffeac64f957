"""Schemas that change while a topic is landed: renamed fields, references, refusals, and when the table is touched."""

import json
import random
from dataclasses import replace

import pytest
from confluent_kafka.schema_registry import Schema, SchemaReference

from python_ingest.kafka.consumer import RECORDS_PER_CALL
from python_ingest.landing.batch import FIRST_LOOK
from tests.support.avro_versions import VARIANTS, a_value, a_version, aliased, without_nulls
from tests.support.topic_fixture import TopicFixture, assert_columns_hold_what_bytes_encode, record

PLACES = ("place", "places", "by_name", "either", "before", "after")


def sales(topic: TopicFixture) -> list[tuple]:
    """Return the payload of each row, its columns in alphabetical order."""
    columns = sorted(set(topic.table().schema().column_names) & {"id", "a", "b", "c", "place"})
    return [tuple(row[name] for name in columns) for row in topic.rows()]


def test_a_field_renamed_with_an_alias_keeps_its_column(topic: TopicFixture) -> None:
    first = topic.register(record("sale", a="int", place=record("p", zip="string")))
    nested = aliased(record("p", code="string", zone=["null", "int"]), code=["zip"])
    second = topic.register(aliased(record("sale", b="long", place=nested), b=["a"]))
    old = topic.encode(first, {"a": 1, "place": {"zip": "x"}})
    new = topic.encode(second, {"b": 2**40, "place": {"code": "y", "zone": 3}})
    topic.produce(new)
    topic.flush()
    ingester = topic.ingester()
    assert ingester.catch_up([topic.declaration])[0].error is None
    # The column has its name from the version that came first; a newer id is met without a restart.
    third = topic.register(aliased(record("sale", c="long", place=record("p", zip="string")), c=["b", "a"]))
    for value in (old, new, topic.encode(third, {"c": 3, "place": {"zip": "z"}}), old):
        topic.produce(value)
    topic.flush()
    (result,) = ingester.catch_up([topic.declaration])
    assert (result.error, result.records, result.dead_letters) == (None, 4, 0)
    landed_old, landed_new = (1, {"code": "x", "zone": None}), (2**40, {"code": "y", "zone": 3})
    assert sales(topic) == [landed_new, landed_old, landed_new, (3, {"code": "z", "zone": None}), landed_old]


def test_a_schema_behind_the_first_look_at_a_new_table_lands(topic: TopicFixture) -> None:
    first = topic.encode(topic.register(record("sale", a="int")), {"a": 1})
    second = topic.encode(topic.register(record("sale", a="int", b="int")), {"a": 2, "b": 2})
    # The look takes what a call of the consumer gives, also from behind its end.
    for value in [first] * (FIRST_LOOK + RECORDS_PER_CALL) + [second]:
        topic.produce(value)
    result = topic.land_well()
    assert (result.batches, result.dead_letters) == (1, 0)
    assert sales(topic)[-2:] == [(1, None), (2, 2)]


def test_a_schema_that_refers_to_other_subjects_is_read_with_them(topic: TopicFixture) -> None:
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
    stop = replace(topic.declaration, on_error="stop")
    # The registry gives equal schemas one id: a separate name keeps the ids in order.
    sale = f"sale_{topic.declaration.table}"
    first = topic.encode(topic.register(record(sale, id="int")), {"id": 1})
    topic.produce(first)
    topic.land_well(declaration=stop)
    topic.produce(first)
    topic.produce(topic.encode(topic.register(record(sale, id="int", a=["null", "int"])), {"id": 2, "a": 2}))
    unfit = topic.register(record(sale, id="int", a="string"))
    topic.produce(topic.encode(unfit, {"id": 3, "a": "three"}))
    before = topic.table().metadata_location
    result = topic.land(declaration=stop)
    assert str(result.error).startswith(
        f"{topic.name}: partition 0, offset 3: incompatible_schema: schema id {unfit}, "
        "a: int cannot become string; nothing of this batch was landed."
    )
    assert topic.table().metadata_location == before
    assert topic.land_well().dead_letters == 1
    assert sales(topic) == [(None, 1), (None, 1), (2, 2), (None, None)]


@pytest.mark.slow
def test_a_batch_that_fails_after_the_table_was_widened_lands_later(topic: TopicFixture) -> None:
    topic.produce(topic.encode(topic.register(record("sale", id="int")), {"id": 1}))
    topic.land_well()
    data = topic.directory / "data"
    data.rename(data.with_name("aside"))
    data.touch()
    topic.produce(topic.encode(topic.register(record("sale", id="long", a=["null", "int"])), {"id": 2**40, "a": 2}))
    assert topic.land().error is not None
    data.unlink()
    data.with_name("aside").rename(data)
    assert sales(topic) == [(None, 1)]
    topic.land_well()
    assert sales(topic) == [(None, 1), (2, 2**40)]
    assert [row["ingest_batch"] for row in topic.rows()] == [1, 2]


def test_the_key_column_comes_with_the_first_avro_key(topic: TopicFixture) -> None:
    schema, key = record("sale_key", id="int"), {"id": 7}
    topic = topic.declaring(key="avro")
    value = topic.encode(topic.register(record("sale", id="int")), {"id": 1})
    for foreign in (None, b"plain", b"\x00\x7f\xff\xff\x00\x02"):
        topic.produce(value, key=foreign)
    assert topic.land_well().dead_letters == 0
    assert "kafka_key" not in topic.table().schema().column_names
    key_id = topic.register(schema, side="key")
    topic.produce(value, key=topic.encode(key_id, key))
    topic.produce(value, key=b"foreign")
    assert topic.land_well().dead_letters == 0
    rows = topic.rows()
    assert [row["kafka_key"] for row in rows] == [None, None, None, key, None]
    assert [row["key_schema_id"] for row in rows] == [None, None, 0x7FFFFF00, key_id, None]


@pytest.mark.slow
def test_random_versions_mixed_in_one_batch_are_read_as_they_were_written(topic: TopicFixture) -> None:
    rng = random.Random(20261121)
    versions = [a_version(rng) for _ in range(8)]
    ids = [topic.register(version) for version in versions]
    expected = []
    # The newest first: an older version may have a narrower type or another name, a newer one may not.
    order = sorted(zip(ids, versions, strict=True), key=lambda numbered: -numbered[0])
    for _ in range(5):
        for schema_id, version in order:
            written, read = a_value(rng, version)
            topic.produce(topic.encode(schema_id, written))
            expected.append(read)
            if len(expected) <= len(order):
                assert topic.land_well().dead_letters == 0
    assert topic.land_well().dead_letters == 0
    payload = [name for name in topic.table().schema().column_names if name in {*VARIANTS, *PLACES}]
    values = [without_nulls({name: row[name] for name in payload}) for row in topic.rows()]
    assert values == expected
    for name in {*payload} & {"places", "by_name"}:
        absent = topic.spark.table(f"lake.{topic.declaration.identifier}").where(f"{name} is null").count()
        assert absent == sum(name not in row for row in expected)
    assert_columns_hold_what_bytes_encode(topic, len(expected))
