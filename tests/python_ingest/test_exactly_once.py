"""Every offset exactly once: restarts, kills, two writers, maintenance, and topics that changed behind the table."""

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pyiceberg.table.update
import pytest
from confluent_kafka import Consumer, TopicPartition
from py4j.protocol import Py4JError
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.io import FileIO
from pyiceberg.table.metadata import TableMetadata
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from python_common.catalog.catalog import make_namespace
from python_common.catalog.commits import CommitConflict
from python_ingest.bronze import commit, tables, topic_identity
from python_ingest.bronze.positions import Position, position_of
from python_ingest.bronze.rewrite import REPLAY, replace_rows
from python_ingest.kafka import consumer
from python_ingest.kafka.admin import Broker
from python_ingest.kafka.offset_range import OffsetRange
from python_ingest.landing.batch import BatchPlan, SparkFailed
from python_ingest.landing.run import Ingester, Options, TopicResult
from tests.support.topic_fixture import (
    SALE,
    Messages,
    TopicFixture,
    assert_exactly_once,
    assert_position_is_that_of_the_files,
    produce,
)


def plan(topic: TopicFixture, *ranges: OffsetRange) -> BatchPlan:
    state = Broker(topic.settings, 10).describe(topic.name)
    return BatchPlan(state, position_of(topic.table()), list(ranges))


def renumbered(landed: DataFrame, batch: int) -> DataFrame:
    """Return the rows as a replay has them that changes all."""
    return landed.withColumn("ingest_batch", F.lit(batch).cast("bigint"))


@pytest.mark.slow
def test_a_batch_without_rows_has_its_number_alone(topic: TopicFixture) -> None:
    transactions(topic, topic.register(SALE), "commit", "abort")
    topic.land_well(Options(max_records=5, wait=10))
    produce(topic, 3, partitions=(1,))
    end = Broker(topic.settings, 10).describe(topic.name).end[0]
    empty = plan(topic, OffsetRange(0, end - 1, end))
    rows = plan(topic, OffsetRange(1, 0, 3))
    assert topic.batch_writer("first").land(topic.table(), empty).rows == 0
    for stale in (empty, rows):
        with pytest.raises(CommitConflict, match="another commit came first"):
            topic.batch_writer("second").land(topic.table(), stale)
    topic.land_well()
    numbers = [snapshot.summary["lakehouse.batch"] for snapshot in topic.table().snapshots() if snapshot.summary]
    assert len(numbers) == len({*numbers})
    assert_exactly_once(topic, 8)


@pytest.mark.parametrize(
    ("first", "partition"),
    [(0, 1), *(pytest.param(*pair, marks=pytest.mark.slow) for pair in ((0, 0), (1, 0), (1, 1)))],
)
def test_of_two_that_fill_gaps_under_different_numbers_one_is_refused(
    topic: TopicFixture, monkeypatch: pytest.MonkeyPatch, first: int, partition: int
) -> None:
    """Both fill the same gap, or the second one fills a gap in another partition."""
    produce(topic, 9)
    topic.land_well()
    topic.sql(f"delete from {{table}} where kafka_partition in (0, {partition}) and kafka_offset = 1")
    batch = replace(plan(topic, OffsetRange(0, 1, 2)), filling_gaps=True)
    # The branch of a replay that was killed has a number, and only one of the two has seen it.
    later = replace(batch.position, last_batch=batch.position.last_batch + 1)
    plans = [batch, replace(batch, position=later, ranges=[OffsetRange(partition, 1, 2)])]
    overwrite = commit.overwrite

    def overtaken(*arguments: Any) -> None:
        # The second has seen that its base is the current snapshot: from here on Iceberg alone refuses it.
        monkeypatch.undo()
        assert topic.batch_writer("first").land(topic.table(), plans[first]).rows == 1
        overwrite(*arguments)

    monkeypatch.setattr(commit, "overwrite", overtaken)
    with pytest.raises(CommitConflict, match="another commit came first"):
        topic.batch_writer("second").land(topic.table(), plans[1 - first])
    topic.land_well(Options(from_earliest=True, wait=10))
    assert_exactly_once(topic, 9)


def test_a_batch_of_thousands_of_ranges_is_committed_once(topic: TopicFixture) -> None:
    produce(topic, 3)
    topic.land_well()
    base = position_of(topic.table())
    rows = topic.spark.table(f"lake.{topic.declaration.identifier}").withColumn("ingest_batch", F.lit(2))
    ranges = tuple(OffsetRange(partition, 7, 8) for partition in range(5_000))
    read_until = {offset_range.partition: offset_range.until for offset_range in ranges}
    metadata = commit.BatchMetadata("wide", 2, ranges, read_until, ())
    moved = rows.withColumn("kafka_offset", F.lit(7).cast("bigint"))
    commit.overwrite(moved, topic.declaration.identifier, base, metadata)
    assert commit.committed(topic.table(), metadata)
    with pytest.raises(CommitConflict, match="another commit came first"):
        commit.overwrite(moved, topic.declaration.identifier, base, replace(metadata, writer="zombie"))


def test_of_two_first_writers_one_is_refused(topic: TopicFixture) -> None:
    produce(topic, 6)
    state = Broker(topic.settings, 10).describe(topic.name)
    first = BatchPlan(state, Position(), [OffsetRange(0, 0, 2)])
    batch_writer, other = topic.batch_writer("one"), topic.batch_writer("other")
    make_namespace(batch_writer.catalog, topic.declaration.schema)
    empty = tables.create(batch_writer.catalog, topic.declaration)
    topic_identity.record_topic_id(empty, state)
    with pytest.raises(CommitConflict):
        tables.create(other.catalog, topic.declaration)
    stale = topic.table()
    assert batch_writer.land(empty, first).rows == 2
    with pytest.raises(CommitConflict, match=r"another (process|commit)"):
        other.land(stale, first)
    with pytest.raises(CommitConflict, match="another commit came first"):
        other.land(topic.table(), first)
    topic.land_well()
    assert_exactly_once(topic, 6)


@pytest.mark.slow
def test_two_ingesters_at_once_land_each_offset_once(topic: TopicFixture) -> None:
    produce(topic, 60)
    heard = [Messages(), Messages()]
    ingesters = [topic.ingester(Options(max_records=10, wait=10), messages=messages) for messages in heard]
    start = threading.Barrier(2)

    def work(ingester: Ingester) -> TopicResult:
        start.wait()
        (result,) = ingester.catch_up([topic.declaration])
        return result

    with ThreadPoolExecutor(2) as pool:
        results = [*pool.map(work, ingesters)]
    assert [result.error for result in results] == [None, None]
    assert sum(result.records for result in results) == 60
    assert any("nothing was committed" in note for messages in heard for note in messages.notes)
    assert_exactly_once(topic, 60)


def test_a_table_that_another_process_changes_while_it_is_bound_is_planned_again(
    topic: TopicFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    produce(topic, 6)
    written = SqlCatalog._write_metadata
    changed: list[bool] = []

    def written_too_late(metadata: TableMetadata, io: FileIO, metadata_path: str) -> None:
        written(metadata, io, metadata_path)
        if "lakehouse.topic-id" in metadata.properties and not changed:
            changed.append(True)
            with topic.table().transaction() as other:
                other.set_properties({"someone.else": "was here"})

    monkeypatch.setattr(SqlCatalog, "_write_metadata", staticmethod(written_too_late))
    result = topic.land_well()
    assert (result.records, result.batches) == (6, 1)
    assert topic.messages.notes == ["nothing was committed: another process changed the table; planning again"]
    assert_exactly_once(topic, 6)


def test_a_commit_whose_answer_is_lost_is_found_in_the_table(
    topic: TopicFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    produce(topic, 6)
    topic.land_well()
    produce(topic, 6, start=6)
    answered = commit.overwrite

    def lost(*arguments: Any) -> None:
        answered(*arguments)
        raise Py4JError("the answer was lost")

    monkeypatch.setattr(commit, "overwrite", lost)
    result = topic.land_well()
    assert (result.records, result.batches) == (6, 1)
    assert topic.messages.notes == []
    assert_exactly_once(topic, 12)


@pytest.mark.slow
def test_a_clock_that_steps_back_while_a_batch_is_written_costs_time_and_no_table(
    topic: TopicFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    produce(topic, 6)
    topic.land_well()
    produce(topic, 6, start=6)
    overwrite, overtaken = commit.overwrite, []

    class Ahead(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> datetime:
            # Far enough that a slow machine does not catch up before the batch is written.
            return datetime.now(tz) + timedelta(seconds=90)

    def written_before(*arguments: Any) -> None:
        if not overtaken:
            overtaken.append(True)
            with monkeypatch.context() as patch:
                patch.setattr(pyiceberg.table.update, "datetime", Ahead)
                topic_identity.set_properties(topic.table(), {"other": "x"})
        overwrite(*arguments)

    monkeypatch.setattr(commit, "overwrite", written_before)
    assert topic.land_well().records == 6
    assert ["planning again" in note for note in topic.messages.notes] == [True]
    topic_identity.set_properties(topic.table(), {"other": "y"})
    assert topic.spark.table(f"lake.{topic.declaration.identifier}").count() == 12
    assert_exactly_once(topic, 12)


def test_compaction_expiry_and_rollback_neither_lose_nor_double(topic: TopicFixture) -> None:
    produce(topic, 4, partitions=(0,))
    produce(topic, 30, start=4, partitions=(1,))
    topic.land_well(Options(max_records=10, wait=10))
    before = topic.rows()
    assert_position_is_that_of_the_files(topic.table())
    name = topic.declaration.identifier
    options = "map('rewrite-all', 'true')"
    topic.sql(
        f"call lake.system.rewrite_data_files(table => '{name}', strategy => 'sort',"
        f" sort_order => 'kafka_partition, kafka_offset', options => {options})"
    )
    assert topic.rows() == before
    assert_position_is_that_of_the_files(topic.table())
    produce(topic, 6, start=34, partitions=(0, 1))
    assert topic.land_well().records == 6
    topic.sql(f"call lake.system.expire_snapshots(table => '{name}', older_than => now(), retain_last => 1)")
    assert len(topic.table().snapshots()) == 1
    snapshot_id = topic.table().current_snapshot().snapshot_id
    produce(topic, 6, start=40)
    assert topic.land_well().records == 6
    assert_exactly_once(topic, 46)
    last = max(row["ingest_batch"] for row in topic.rows())
    topic.sql(f"call lake.system.rollback_to_snapshot('{name}', {snapshot_id})")
    assert topic.land_well().records == 6
    assert_exactly_once(topic, 46)
    # A model that had read the rolled back batch looks for greater numbers only.
    assert max(row["ingest_batch"] for row in topic.rows()) == last + 1


def transactions(topic: TopicFixture, schema_id: int, *outcomes: str) -> None:
    """Produce five records per transaction in partition 0."""
    producer = topic.transactional_producer()
    for outcome in outcomes:
        producer.begin_transaction()
        for index in range(5):
            producer.produce(topic.name, topic.encode(schema_id, {"id": index, "note": outcome}), partition=0)
        producer.flush()
        topic.end_transaction(producer, outcome == "commit")


def test_aborted_transactions_are_passed_over_once(topic: TopicFixture) -> None:
    transactions(topic, topic.register(SALE), "commit", "abort", "commit", "abort")
    assert topic.land_well(Options(max_records=4, wait=10)).records == 10
    assert {row["note"] for row in topic.rows()} == {"commit"}
    assert_exactly_once(topic, 10)
    snapshot = topic.table().current_snapshot()
    assert topic.land_well().batches == 0
    assert topic.table().current_snapshot() == snapshot
    produce(topic, 1, partitions=(0,))
    assert topic.land_well().records == 1
    assert_exactly_once(topic, 11)


def test_a_recreated_topic_is_refused(topic: TopicFixture) -> None:
    produce(topic, 6)
    topic.land_well()
    before = topic.rows()
    topic.delete_topic()
    topic.make_topic()
    produce(topic, 12)
    error = str(topic.land().error)
    assert f"{topic.declaration.identifier} was loaded from topic id" in error
    assert topic.rows() == before


def test_a_gap_left_by_retention_is_refused_with_its_range_until_it_is_accepted(topic: TopicFixture) -> None:
    produce(topic, 4, partitions=(1,))
    topic.land_well()
    produce(topic, 10, start=4, partitions=(1,))
    topic.delete_records(1, 9)
    error = str(topic.land().error)
    assert "retention deleted offsets 4 to 8 of partition 1 before they were landed" in error
    assert "--accept-gap" in error
    assert len(topic.rows()) == 4
    assert topic.land_well(Options(wait=10, accept_gap=True)).records == 5
    assert topic.table().properties["lakehouse.accepted-gap.1.4"] == "9"
    # What is noted stays accepted, also when the rows behind it are landed again.
    first = next(iter(topic.table().snapshots()))
    topic.sql(f"call lake.system.rollback_to_snapshot('{topic.declaration.identifier}', {first.snapshot_id})")
    assert topic.land_well().records == 5


def test_a_batch_fails_if_the_broker_no_longer_has_what_was_planned(topic: TopicFixture) -> None:
    produce(topic, 4, partitions=(1,))
    topic.land_well()
    produce(topic, 10, start=4, partitions=(1,))
    planned = plan(topic, OffsetRange(1, 4, 14))
    topic.delete_records(1, 9)
    with pytest.raises(SparkFailed):
        topic.batch_writer().land(topic.table(), planned)
    assert len(topic.rows()) == 4


def test_what_retention_takes_from_a_partition_that_was_empty_at_first_is_a_gap(topic: TopicFixture) -> None:
    produce(topic, 4, partitions=(1,))
    topic.land_well()
    produce(topic, 4, start=4, partitions=(0,))
    topic.delete_records(0, 3)
    assert "retention deleted offsets 0 to 2 of partition 0" in str(topic.land().error)
    assert_exactly_once(topic, 4)
    assert topic.land_well(Options(wait=10, accept_gap=True)).records == 1
    assert_exactly_once(topic, 5)


def test_what_retention_takes_is_a_gap_also_when_others_expire_the_snapshot_that_notes_it(
    topic: TopicFixture,
) -> None:
    """A replay or an erasure that follows knows no more than the files."""
    produce(topic, 4, partitions=(1,))
    topic.land_well(Options(max_records=2, wait=10))
    name = topic.declaration.identifier
    topic.sql(f"call lake.system.rewrite_data_files(table => '{name}', options => map('rewrite-all', 'true'))")
    topic.sql(f"call lake.system.expire_snapshots(table => '{name}', older_than => now(), retain_last => 1)")
    assert replace_rows(topic.spark, topic.table(), "", renumbered, "true", REPLAY) == 4
    produce(topic, 4, start=4, partitions=(0,))
    topic.delete_records(0, 3)
    assert "retention deleted offsets 0 to 2 of partition 0" in str(topic.land().error)
    assert topic.land_well(Options(wait=10, accept_gap=True)).records == 1
    assert_exactly_once(topic, 5)


def test_from_earliest_lands_what_is_missing_and_nothing_twice(topic: TopicFixture) -> None:
    produce(topic, 30, partitions=(0, 1))
    topic.land_well()
    topic.sql("delete from {table} where kafka_partition = 0 and kafka_offset in (0, 1, 7, 14)")
    topic.sql("delete from {table} where kafka_partition = 1 and kafka_offset < 5")
    produce(topic, 3, start=30, partitions=(2,))
    result = topic.land_well(Options(wait=10, from_earliest=True))
    # The last offset of partition 0 is behind the position once its row is gone: a new record, not a gap.
    assert (result.records, result.batches) == (12, 3)
    assert_exactly_once(topic, 33)
    snapshot = topic.table().current_snapshot()
    assert topic.land_well(Options(wait=10, from_earliest=True)).batches == 0
    assert topic.table().current_snapshot() == snapshot


class Seeking(Consumer):
    assigned = 0

    def assign(self, partitions: list[TopicPartition]) -> None:
        type(self).assigned += 1
        super().assign(partitions)


@pytest.mark.slow
def test_from_earliest_passes_over_offsets_without_records(
    topic: TopicFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    schema_id = topic.register(SALE)
    transactions(topic, schema_id, "commit", "abort", "commit")
    topic.land_well()
    snapshot = topic.table().current_snapshot()
    ingester = topic.ingester(Options(wait=10, from_earliest=True))
    with monkeypatch.context() as patch:
        patch.setattr(consumer, "Consumer", Seeking)
        (first,) = ingester.catch_up([topic.declaration])
    assert Seeking.assigned == 1  # markers and aborted records of all transactions are passed in one go
    with monkeypatch.context() as patch:
        patch.setattr(consumer, "reader", None)  # what holds no record is not asked for again
        (again,) = ingester.catch_up([topic.declaration])
    assert [(result.error, result.batches) for result in (first, again)] == [(None, 0), (None, 0)]
    topic.sql("delete from {table} where kafka_offset = 2")
    assert topic.land_well(Options(wait=10, from_earliest=True)).records == 1
    assert topic.table().current_snapshot() != snapshot
    assert_exactly_once(topic, 10)


def test_until_bounds_a_run_by_the_time_of_the_records(topic: TopicFixture) -> None:
    schema_id = topic.register(SALE)
    day = datetime(2026, 3, 1, tzinfo=UTC)
    for index in range(12):
        stamp = int((day + timedelta(days=index)).timestamp() * 1000)
        topic.produce(topic.encode(schema_id, {"id": index, "note": ""}), index % 2, timestamp=stamp)
    bounded = Options(wait=10, until=day + timedelta(days=5))
    assert topic.land_well(bounded).records == 5
    assert {row["id"] for row in topic.rows()} == set(range(5))
    assert topic.land_well(bounded).batches == 0
    assert topic.land_well(Options(wait=10, until=day + timedelta(days=100))).records == 7
    assert_exactly_once(topic, 12)
