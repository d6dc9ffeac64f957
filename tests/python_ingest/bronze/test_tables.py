"""The bronze table's columns: names that do not collide, made once, grown without undoing what others did."""

import json
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table
from pyiceberg.types import IntegerType, LongType, StringType

from python_common.catalog.catalog import load_table
from python_common.catalog.commits import CommitConflict
from python_common.errors import UserError
from python_ingest.avro import expanded_schema
from python_ingest.avro.walk import IncompatibleSchema
from python_ingest.bronze import tables, topic_identity
from python_ingest.bronze.column_types import landed_columns
from python_ingest.bronze.positions import Position, position_of
from python_ingest.bronze.schema_state import SchemaState
from python_ingest.bronze.tables import table_schema
from python_ingest.declare import spark_types, table_layout
from python_ingest.declare.table_layout import METADATA_COLUMNS, partition_field, sort_field
from python_ingest.declare.topics import Declaration
from python_ingest.kafka.admin import TopicState
from tests.support.topic_fixture import record


def writer(schema: Any) -> Any:
    return expanded_schema.expand_schema(json.dumps(schema))


def columns_of(schema: Any) -> list[str]:
    return [field.name for field in landed_columns("value", writer(schema)).fields]


def test_payload_columns_come_first_and_metadata_columns_follow() -> None:
    state = SchemaState().with_writer("value", 3, writer(record("r", a="int", b="long")))
    assert [field.name for field in table_schema(state, "string").fields] == ["a", "b", *METADATA_COLUMNS]
    assert columns_of("long") == ["value"]


def test_a_field_named_like_a_reserved_column_is_renamed() -> None:
    fields = record("r", kafka_offset="int", Ingest_Batch="int", _partition="int", other="int")
    assert columns_of(fields) == ["value_kafka_offset", "value_Ingest_Batch", "value__partition", "other"]
    with pytest.raises(IncompatibleSchema, match="two fields would be landed as value_kafka_offset"):
        columns_of(record("r", value_kafka_offset="int", kafka_offset="int"))


DECLARATION = Declaration("sales", "bronze", "sales", "avro", "dead_letter")
TOPIC = TopicState("sales", "topic-1", "cluster-1", {0: 0}, {0: 0})
FIRST = (
    SchemaState()
    .with_writer("value", 3, writer(record("r", a="int", n=record("n", b="float"))))
    .with_writer("key", 4, "long")
)


def test_a_table_is_made_once_and_remembers_where_it_comes_from(catalog: Catalog) -> None:
    assert load_table(catalog, DECLARATION.identifier) is None
    tables.create(catalog, DECLARATION)
    with pytest.raises(CommitConflict):
        tables.create(catalog, DECLARATION)
    table = load_table(catalog, DECLARATION.identifier)
    assert table is not None
    tables.evolve(table, DECLARATION, FIRST)
    state = SchemaState.of(table)
    assert state == FIRST
    assert [str(field.transform) for field in table.spec().fields] == ["day", "identity"]
    for column in ("kafka_partition", "kafka_offset", "ingest_batch"):
        assert table.properties[f"write.metadata.metrics.column.{column}"] == "full"
    topic_identity.record_topic_id(table, TOPIC)
    topic_identity.check(table, DECLARATION, TOPIC, Position())


def test_a_table_has_the_properties_that_are_declared_now(catalog: Catalog) -> None:
    for size in ("1000000", "2000000"):
        declared = replace(DECLARATION, table_properties=(("write.target-file-size-bytes", size),))
        assert tables.prepared(catalog, declared).properties["write.target-file-size-bytes"] == size
        table = load_table(catalog, declared.identifier)
        assert table is not None
        assert table.properties["write.target-file-size-bytes"] == size
        assert table.properties["write.parquet.compression-codec"] == "zstd"
    before = table.metadata_location
    assert tables.prepared(catalog, declared).metadata_location == before
    with table.transaction() as transaction:
        transaction.remove_properties("write.parquet.row-group-check-min-record-count")  # as of an earlier version
    assert tables.prepared(catalog, declared).properties["write.parquet.row-group-check-min-record-count"] == "4"


def layout_of(table: Table) -> tuple[str, str]:
    schema = table.schema()
    spec, order = table_layout.partitioned_by(table.spec(), schema), table_layout.sorted_by(table.sort_order(), schema)
    return ", ".join(map(str, spec)), ", ".join(map(str, order))


def test_a_table_is_laid_out_again_when_its_source_changes(catalog: Catalog, caplog: pytest.LogCaptureFixture) -> None:
    columns = spark_types.struct({"id": LongType(), "country": StringType()})
    spec = (partition_field("bucket(4, id)"), partition_field("days(kafka_timestamp)"))
    order = (sort_field("id desc nulls last"), sort_field("kafka_offset"))
    both = replace(DECLARATION, columns=columns, partition_spec=spec, sort_order=order)
    table = tables.prepared(catalog, both)
    as_declared = "bucket(4, id), days(kafka_timestamp), kafka_partition"
    assert layout_of(table) == (as_declared, "id desc nulls last, kafka_offset asc nulls first")
    for same in (both, replace(both, partition_spec=None, sort_order=None), replace(both, partition_spec=spec[::-1])):
        assert tables.prepared(catalog, same).metadata_location == table.metadata_location
    assert caplog.messages == []

    # What comes with the change has its column added in the same commit.
    more = spark_types.struct({"id": LongType(), "country": StringType(), "store": IntegerType()})
    other = replace(both, columns=more, partition_spec=(partition_field("store"), spec[1]), sort_order=order[1:])
    changed = tables.prepared(catalog, other)
    assert layout_of(changed) == ("days(kafka_timestamp), kafka_partition, store", "kafka_offset asc nulls first")
    assert caplog.messages == [
        "bronze.sales: new files use partition spec store, days(kafka_timestamp), kafka_partition"
        " and sort order kafka_offset asc nulls first; files that exist keep theirs"
    ]
    back = tables.prepared(catalog, replace(both, columns=more))
    assert layout_of(back) == ("days(kafka_timestamp), kafka_partition, bucket(4, id)", layout_of(table)[1])
    assert len(caplog.messages) == 2


def test_a_table_that_was_made_without_a_layout_takes_one(catalog: Catalog) -> None:
    table = tables.prepared(catalog, DECLARATION)
    assert layout_of(table) == ("days(ingested_at), kafka_partition", "")
    hourly = replace(DECLARATION, partition_spec=(partition_field("hours(ingested_at)"),))
    assert layout_of(tables.prepared(catalog, hourly)) == ("kafka_partition, hours(ingested_at)", "")
    alone = replace(DECLARATION, partition_spec=())
    assert layout_of(tables.prepared(catalog, alone)) == ("kafka_partition", "")


@pytest.mark.parametrize(("column", "is_nameless"), [("kafka_key", True), ("id", True), ("kafka_offset", False)])
def test_files_are_not_named_after_values_of_records(catalog: Catalog, column: str, is_nameless: bool) -> None:
    columns = spark_types.struct({"id": LongType()})
    declared = replace(DECLARATION, key="string", columns=columns, partition_spec=(partition_field(column),))
    properties = tables.prepared(catalog, declared).properties
    assert ("write.object-storage.enabled" in properties) == is_nameless


@pytest.fixture
def table(catalog: Catalog) -> Table:
    """The table with the columns of the first schemas."""
    return tables.evolve(tables.create(catalog, DECLARATION), DECLARATION, FIRST)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"topic_id": "topic-2"}, "loaded from topic id topic-1 .*up to offset 7.*now has topic-2"),
        ({"cluster_id": "cluster-2"}, "loaded from cluster id cluster-1 .*up to offset 7.*now has cluster-2"),
    ],
)
def test_another_topic_id_or_cluster_is_refused(table: Table, change: dict[str, str], words: str) -> None:
    topic_identity.record_topic_id(table, TOPIC)
    # Once a batch, here an empty one, was committed to it.
    table.append(pa.Table.from_pylist([], table.schema().as_arrow()))
    other = replace(TOPIC, **change)
    topic_identity.record_topic_id(table, other)
    with pytest.raises(UserError, match=words):
        topic_identity.check(table, DECLARATION, other, Position(1, {0: 8}))


def test_an_empty_table_may_be_loaded_from_another_topic(table: Table) -> None:
    for topic in (TOPIC, replace(TOPIC, topic_id="topic-2", cluster_id="cluster-2")):
        topic_identity.record_topic_id(table, topic)
        topic_identity.check(table, DECLARATION, topic, Position())
    assert table.properties["lakehouse.topic-id"] == "topic-2"


def positions(table: Table, batch: int, next_rows: dict[int, int], generation: int | None) -> None:
    """Append one row per partition, at an offset."""
    rows = [
        {"kafka_generation": generation, "kafka_partition": partition, "kafka_offset": offset, "ingest_batch": batch}
        for partition, offset in next_rows.items()
    ]
    table.append(pa.Table.from_pylist(rows, table.schema().as_arrow()))


def test_a_rebound_table_has_the_offsets_of_its_generation_alone(catalog: Catalog) -> None:
    # PyIceberg writes partitions without a transform alone.
    declaration = replace(DECLARATION, partition_spec=())
    table = tables.evolve(tables.create(catalog, declaration), declaration, FIRST)
    topic_identity.record_topic_id(table, TOPIC)
    with pytest.raises(UserError, match=r"has no rows of another .*: nothing changed"):
        topic_identity.rebind(table, declaration, replace(TOPIC, topic_id="topic-2"), {0: 0})
    positions(table, 1, {0: 700, 1: 3}, None)
    topic_identity.set_properties(table, {"lakehouse.accepted-gap.0.4": "9"})
    assert position_of(table).next_offsets == {0: 701, 1: 4}
    second = replace(TOPIC, topic_id="topic-2", cluster_id="cluster-2")
    for other, topic in ((declaration, TOPIC), (replace(declaration, topic="renamed"), second)):
        with pytest.raises(UserError, match=r"has no rows of another .*: nothing changed"):
            topic_identity.rebind(table, other, topic, {0: 0})

    assert topic_identity.rebind(table, declaration, second, {0: 5, 1: 0}) == 1
    table = tables.prepared(catalog, declaration)
    topic_identity.check(table, declaration, second, position_of(table))
    position = position_of(table)
    assert (position.next_offsets, position.generation, position.has_metadata) == ({0: 5, 1: 0}, 1, False)
    assert (position.last_batch, position.held_batch) == (1, 1)
    assert not any(name.startswith("lakehouse.accepted-gap") for name in table.properties)
    assert layout_of(table)[0] == "kafka_partition, kafka_generation"
    positions(table, 2, {0: 6}, 1)
    assert position_of(table).next_offsets == {0: 7, 1: 0}

    assert topic_identity.rebind(table, declaration, TOPIC, {0: 0}) == 2
    assert position_of(table).next_offsets == {0: 0}
    assert position_of(table).last_batch == 2


def test_another_format_of_keys_is_refused(table: Table) -> None:
    other = replace(DECLARATION, key="bytes")
    with pytest.raises(UserError, match=r"keys declared as avro .*but sales now has bytes.* holds no record: drop it"):
        topic_identity.check(table, other, TOPIC, Position())


def again(catalog: Catalog) -> Table:
    """Return the table as another process loads it."""
    return catalog.load_table(DECLARATION.identifier)


def evolve(table: Table, schema_id: int, **fields: str) -> None:
    tables.evolve(table, DECLARATION, FIRST.with_writer("value", schema_id, writer(record("r", **fields))))


def test_a_table_grows_by_adding_and_widening_in_one_commit(catalog: Catalog, table: Table) -> None:
    nested = record("n", b="double", c="string")
    grown = FIRST.with_writer("value", 5, writer(record("r", a="long", n=nested, d="string")))
    tables.evolve(table, DECLARATION, grown)
    after = again(catalog)
    types = {name: str(after.schema().find_type(name)) for name in ("a", "n.b", "n.c", "d")}
    assert types == {"a": "long", "n.b": "double", "n.c": "string", "d": "string"}
    assert SchemaState.of(after).writers == grown.writers
    assert SchemaState.of(after).writers["value"][5] is SchemaState.of(after).writers["value"][5], "it is parsed again"


@pytest.mark.usefixtures("table")
def test_two_that_add_columns_at_once_do_not_undo_each_other(catalog: Catalog) -> None:
    one, second, third = (again(catalog) for _ in range(3))
    evolve(one, 4, a="int", z="int")
    with pytest.raises(CommitConflict):
        evolve(second, 5, y="int")
    # One that adds no column is noted next to it.
    evolve(third, 6, a="int")
    state = SchemaState.of(again(catalog))
    assert state.writers["value"].keys() == {3, 4, 6}
    names = [
        {field.name for field in schema.fields} for schema in (table_schema(state, "avro"), again(catalog).schema())
    ]
    assert names[0] == names[1]


def test_a_wide_schema_is_stored_in_a_tenth_of_its_json(catalog: Catalog, table: Table) -> None:
    wide = writer(record("r", **{f"field_{number}": ["null", "string"] for number in range(300)}))
    grown = FIRST.with_writer("value", 4, wide)
    tables.evolve(table, DECLARATION, grown)
    short = table.properties["lakehouse.value-schema.4"]
    plain = json.dumps(wide)
    assert len(short) < len(plain) / 10
    # As of an earlier release.
    topic_identity.set_properties(table, {"lakehouse.value-schema.4": plain})
    table = again(catalog)
    assert SchemaState.of(table).writers == grown.writers
    tables.evolve(table, DECLARATION, grown.with_writer("value", 5, wide))
    assert {table.properties[f"lakehouse.value-schema.{number}"] for number in (4, 5)} == {short}


def declared(**columns: str) -> Declaration:
    types = {name: spark_types.of_spark(text) for name, text in columns.items()}
    return replace(DECLARATION, columns=spark_types.struct(types))


def test_a_table_has_declared_columns_from_its_beginning(catalog: Catalog) -> None:
    first = declared(a="int", place="struct<city: string>", kafka_key="struct<id: int>", kafka_offset="string")
    assert tables.prepared(catalog, first).schema().find_type("kafka_offset") == METADATA_COLUMNS["kafka_offset"]
    wider = declared(A="bigint", place="struct<zip: string, city: string>", more="array<struct<x: int>>")
    table = tables.prepared(catalog, wider)
    names = ("a", "place.city", "place.zip", "more.element.x", "kafka_key.id")
    types = {name: str(table.schema().find_type(name)) for name in names}
    assert types == dict(zip(names, ("long", "string", "string", "int", "int"), strict=True))
    assert tables.prepared(catalog, first).metadata_location == table.metadata_location
    with pytest.raises(UserError, match=r"bronze.sales cannot have .* declares: place.city: int does not fit"):
        tables.prepared(catalog, declared(place="struct<city: int>"))
    for other in (replace(wider, key="string"), replace(wider, topic="other")):
        assert tables.prepared(catalog, other).metadata_location == table.metadata_location
    without_key = tables.prepared(catalog, replace(declared(kafka_key="int"), key="bytes", table="other"))
    assert str(without_key.schema().find_type("kafka_key")) == "binary"
