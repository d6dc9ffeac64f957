"""Declared columns: in the table before the first record, the least that they hold, and what does not fit them."""

from typing import Any

from pyiceberg.types import DecimalType, IcebergType, ListType, MapType, StructType
from pyspark.sql import SparkSession

from python_common.config.settings import Settings
from python_ingest.declare import spark_types
from python_ingest.declare.spark_types import in_spark, of_spark
from python_ingest.maintenance.status import topic_statuses
from tests.support.topic_fixture import TopicFixture, new_declaration, record
from tests.support.type_mapping import EVERY_TYPE, EVERY_VALUE, READ_VALUE, TYPES, a_topic


def declaring(topic: TopicFixture, **columns: str) -> TopicFixture:
    types = {name: of_spark(text) for name, text in columns.items()}
    return topic.declaring(columns=spark_types.struct(types))


def types(topic: TopicFixture) -> dict[str, str]:
    """Return Spark's types of the payload and the key, by column."""
    schema = topic.spark.table(f"lake.{topic.declaration.identifier}").schema
    payload = [
        field for field in schema if field.name == "kafka_key" or not field.name.startswith(("kafka_", "ingest"))
    ]
    return {
        field.name: field.dataType.simpleString() for field in payload if not field.name.endswith(("_id", "_error"))
    }


def test_every_declared_topic_has_its_table_even_without_a_record_or_without_the_topic(
    topic: TopicFixture, services: Settings, spark: SparkSession
) -> None:
    empty = declaring(topic, note="string", lines="array<struct<sku: string, count: int>>")
    kafka_key = spark_types.struct({"kafka_key": of_spark("struct<x: int>")})
    missing = TopicFixture(services, spark, new_declaration(key="avro", columns=kafka_key))
    filled = a_topic(services, spark)
    filled.produce(filled.encode(filled.register("long"), 7))
    filled.flush()
    results = empty.ingester().catch_up([one.declaration for one in (missing, empty, filled)])
    assert [str(result.error) if result.error else None for result in results] == [
        f"The topic '{missing.name}' does not exist on {services.kafka_bootstrap_servers}. "
        "Create it, or remove its declaration from the dbt source.",
        None,
        None,
    ]
    assert types(empty) == {"note": "string", "lines": "array<struct<sku:string,count:int>>", "kafka_key": "string"}
    assert types(missing) == {"kafka_key": "struct<x:int>"}
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


def test_a_declared_key_has_its_type_before_the_first_key_and_one_that_does_not_fit_is_null(
    topic: TopicFixture,
) -> None:
    topic = declaring(topic, kafka_key="struct<id: bigint, shop: string>").declaring(key="avro")
    value = topic.encode(topic.register(record("sale", n="int")), {"n": 1})
    topic.produce(value, key=None)
    topic.land_well()
    assert types(topic) == {"n": "int", "kafka_key": "struct<id:bigint,shop:string>"}
    topic.produce(value, key=topic.encode(topic.register(record("k", id="string"), side="key"), {"id": "one"}))
    topic.produce(value, key=topic.encode(topic.register(record("k", id="int"), side="key"), {"id": 1}))
    assert topic.land_well().dead_letters == 0
    assert [row["kafka_key"] for row in topic.rows()] == [None, None, {"id": 1, "shop": None}]


def widened(column: IcebergType) -> IcebergType:
    """Return a type that is wider at every depth where one can be."""
    children = {name: widened(child) for name, child in spark_types.children(column).items()}
    match column:
        case StructType():
            return spark_types.struct({"declared": of_spark("string"), **children})
        case ListType() | MapType():
            return spark_types.with_children(column, children)
        case DecimalType():
            return DecimalType(min(38, column.precision + 5), column.scale)
    return of_spark({"int": "bigint", "float": "double"}.get(in_spark(column), in_spark(column)))


def with_declared(value: Any) -> Any:
    """Return what is read of a value in a column so widened."""
    match value:
        case dict():
            return {"declared": None, **{name: with_declared(part) for name, part in value.items()}}
        case [(_, _), *_]:
            return [(key, with_declared(part)) for key, part in value]
        case list():
            return [with_declared(part) for part in value]
    return value


def test_every_type_lands_in_a_wider_declared_column(services: Settings, spark: SparkSession) -> None:
    columns = {f"f{number}": row[2] for number, row in enumerate(TYPES) if row[2] != "-"}
    wanted = {name: widened(of_spark(text)) for name, text in columns.items()}
    topic = declaring(a_topic(services, spark), **{name: in_spark(column) for name, column in wanted.items()})
    topic.produce(topic.encode(topic.register(EVERY_TYPE), EVERY_VALUE))
    topic.produce(topic.encode(topic.register(record("every", missing=["null", "int"])), {"missing": 1}))
    assert topic.land_well().dead_letters == 0
    types_by_name = types(topic)
    assert {name: of_spark(types_by_name[name]) for name in wanted} == wanted
    first, second = topic.rows()
    for name in wanted:
        # PyIceberg reads a NULL array or map of records as an empty one.
        assert second[name] in (None, [])
        assert first[name] == with_declared(READ_VALUE[name]), name
