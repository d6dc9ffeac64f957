"""Erased rows: emptied in place, once, gone from every file, and respected by all that reads or fills bronze."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyspark.sql import SparkSession

from python_common.catalog.catalog import load_catalog, make_namespace
from python_common.errors import UserError
from python_common.locks.lease import leased
from python_ingest.bronze import rewrite
from python_ingest.declare.persons import Subject
from python_ingest.declare.topics import DeadLetterLimit, Declaration
from python_ingest.landing.run import Options
from python_ingest.maintenance import erase, replay
from python_ingest.maintenance.erase import Person, RowsToErase
from python_ingest.maintenance.replay import Replayed
from python_ingest.maintenance.status import topic_statuses
from tests.support.erased_rows import PERSON, assert_verified, erased, files_of_person, produce, purged
from tests.support.topic_fixture import TopicFixture

LEFT = ("kafka_topic", "kafka_partition", "kafka_offset", "kafka_timestamp", "kafka_timestamp_type", "ingested_at")


@pytest.fixture
def declaration(declaration: Declaration) -> Declaration:
    return replace(declaration, persons=(Subject("customer", ("who.id", "kafka_key")),))


def without(rows: list[dict[str, Any]], *names: str) -> list[dict[str, Any]]:
    return [{name: value for name, value in row.items() if name not in names} for row in rows]


def test_an_erasure_leaves_rows_or_stops_what_goes_on(topic: TopicFixture) -> None:
    produce(topic)
    topic.produce(b"foreign bytes", 0)
    topic.land_well(Options(max_records=5, wait=10))
    before = topic.rows()
    assert files_of_person(topic)
    assert erased(topic) == [3]
    rows = topic.rows()
    emptied = [row for row in rows if (row["decode_error"] or "").startswith("erased: ")]
    assert {row["decode_error"] for row in emptied} == {f"erased: {datetime.now(UTC):%Y-%m-%d}"}
    last = max(row["ingest_batch"] for row in before)
    for row in emptied:
        there = {name for name, value in row.items() if value not in (None, [])}
        assert there == {*LEFT, "decode_error", "ingest_batch"}
        assert row["ingest_batch"] == last + 1
    at = {(row["kafka_partition"], row["kafka_offset"]) for row in emptied}
    assert without(rows, *(rows[0].keys() - set(LEFT))) == without(before, *(rows[0].keys() - set(LEFT)))
    others = [row for row in before if (row["kafka_partition"], row["kafka_offset"]) not in at]
    assert [row for row in rows if (row["kafka_partition"], row["kafka_offset"]) not in at] == others

    # Gone from every file, with the snapshots that still held it.
    assert files_of_person(topic)
    outcome = purged(topic)
    assert outcome.snapshots > 0
    assert files_of_person(topic) == set()
    assert topic.rows() == rows

    # Nothing takes it for missing, for a dead letter, or for an issue.
    assert topic.land_well(Options(from_earliest=True, wait=10)).records == 0
    [letters] = replay.summary(topic.table())
    assert (letters.reason, letters.rows) == ("not_registry_avro", 1)
    assert len(replay.raw(topic.table(), 20)) == 1
    assert replay.replay(topic.batch_writer(), None) == Replayed(1, 0)
    few = replace(topic.declaration, max_dead_letters=DeadLetterLimit(0.1, 1))
    [status] = topic_statuses(topic.settings, [few], 10)
    assert (status.rows, status.dead_letters, status.recent_dead_letters, status.erased) == (10, 1, 1, 3)
    assert status.over_limit is False
    assert erased(topic) == []
    assert_verified(topic, 10, 3)

    # What is left of a row is an issue, by partition.
    left = ("kafka_raw_value", "x'00'"), ("kafka_key", "'anna'"), ("kafka_timestamp", "now()")
    values = (f"{name} = if(kafka_partition = {at}, {value}, {name})" for at, (name, value) in enumerate(left))
    topic.sql(f"update {{table}} set {', '.join(values)} where decode_error like 'erased%'")
    assert topic.verify(decoded=True).issues == [
        "partition 0: offset 1: is erased, and still holds bytes",
        "partition 2: offset 1: another kafka_timestamp than in the topic",
        "partition 1: offset 1: another kafka_key than in its bytes",
    ]


def test_a_table_is_not_held_by_a_lease_that_has_ended(topic: TopicFixture) -> None:
    produce(topic)
    topic.land_well()
    catalog = load_catalog(topic.settings)
    with leased(catalog, "maintain", "test") as lease, rewrite.hold(catalog, topic.declaration.identifier):
        table = topic.table()
        assert f"(test, since {lease._since:%Y-%m-%d}" in rewrite.holder(catalog, table)
        # Killed here: the property stays.
    assert rewrite.holder(catalog, table) is None
    with leased(catalog, "maintain", "of another"):
        assert rewrite.holder(catalog, table) is None


def test_a_record_to_erase_is_named_by_less_than_its_position(topic: TopicFixture) -> None:
    produce(topic)
    topic.produce(f"bytes of {PERSON}".encode(), 2)
    topic.land_well()
    catalog = load_catalog(topic.settings)
    [to_erase] = erase.named(catalog, [topic.declaration], [(topic.name, 0, 2, 3)])
    assert to_erase == RowsToErase(topic.declaration, frozenset({(0, 2, 3)}))
    assert erase.erase(catalog, topic.spark, to_erase, "test") == 1
    assert erase.named(catalog, [topic.declaration], [(topic.name, 0, 2, 3)]) == []
    assert replay.summary(topic.table()) == []
    assert_verified(topic, 10, 1)
    with pytest.raises(UserError, match=f"has no row of {topic.name}:0:2:99"):
        erase.named(catalog, [topic.declaration], [(topic.name, 0, 2, 99)])
    with pytest.raises(UserError, match="No dbt source declares the topic 'elsewhere'"):
        erase.named(catalog, [topic.declaration], [("elsewhere", 0, 2, 99)])


def test_rows_named_by_another_table_are_missed_or_shared(topic: TopicFixture, spark: SparkSession) -> None:
    """The addresses of a customer, in a table made by hand: their column has the customer's name for them."""
    produce(topic)
    topic.land_well()
    homes = replace(
        topic.declaration,
        topic=f"{topic.name}.homes",
        table=f"{topic.declaration.table}_homes",
        persons=(Subject("customer", ("home",), ((topic.declaration.table, "who.mail"),)),),
    )
    topic.sql(
        f"create table lake.{homes.identifier} using iceberg as select cast(0 as int) as kafka_partition,"
        f" kafka_offset, who.mail as home, cast(null as string) as decode_error"
        " from {table} where kafka_partition = 0"
    )
    catalog = load_catalog(topic.settings)
    everything = [topic.declaration, homes]
    first, second = erase.find(catalog, everything, [Person("customer", " 1 ")])
    assert (first, second.declaration) == (RowsToErase(homes, frozenset({(0, 0, 1)})), topic.declaration)
    topic.sql(f"update {{table}} set who.mail = '{PERSON}' where kafka_partition = 1 and kafka_offset = 2")
    first, _ = erase.find(catalog, everything, [Person("customer", "1")])
    assert first == RowsToErase(homes, frozenset(), shared=1)
    assert erase.find(catalog, everything, [Person("customer", "77")]) == []


@pytest.mark.parametrize("column", ["who.id", "id"])
def test_a_column_in_a_list_is_named(catalog: Catalog, declaration: Declaration, column: str) -> None:
    people = pa.list_(pa.struct({"id": pa.int32()}))
    schema = pa.schema({"kafka_partition": pa.int32(), "kafka_offset": pa.int64(), "who": people, "id": people})
    make_namespace(catalog, declaration.schema)
    catalog.create_table(declaration.identifier, schema).append(
        pa.table({"kafka_partition": [0], "kafka_offset": [1], "who": [[{"id": 7}]], "id": [[{"id": 7}]]}, schema)
    )
    declared = replace(declaration, persons=(Subject("customer", (column,)),))
    with pytest.raises(UserError, match=f"the column {column}, which is a list or inside one"):
        erase.find(catalog, [declared], [Person("customer", "7")])
