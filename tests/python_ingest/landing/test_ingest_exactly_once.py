"""Every offset exactly once: restarts, kills, two writers, maintenance, and topics that changed behind the table."""

import threading
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pyiceberg.table.update
import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import NewPartitions
from py4j.protocol import Py4JError
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.io import FileIO
from pyiceberg.table.metadata import TableMetadata
from pyspark.sql import functions as F

from python_common.catalog.catalog import make_namespace
from python_common.catalog.commits import CommitConflict
from python_ingest.bronze import commit, tables, topic_identity
from python_ingest.bronze.positions import Position, PositionReader
from python_ingest.kafka import consumer
from python_ingest.kafka.admin import Broker
from python_ingest.kafka.offset_range import OffsetRange
from python_ingest.landing.batch import BatchPlan, SparkFailed
from python_ingest.landing.run import Options
from tests.support.lab import SALE, Lab, Messages, assert_exactly_once, produce

BATCH_COLUMNS = ("ingest_batch", "ingested_at")


def plan(lab: Lab, *ranges: OffsetRange) -> BatchPlan:
    topic = Broker(lab.settings, 10).describe(lab.topic)
    return BatchPlan(topic, PositionReader().read(lab.table()), list(ranges))


def test_a_run_without_new_rows_leaves_the_snapshot_alone(lab: Lab) -> None:
    produce(lab, 10)
    lab.land_well()
    snapshot = lab.table().current_snapshot()
    assert lab.land_well().batches == 0
    assert lab.table().current_snapshot() == snapshot


def test_small_batches_land_the_same_rows_as_one(lab: Lab) -> None:
    produce(lab, 40)
    assert lab.land_well().batches == 1
    small = replace(lab.declaration, table=f"{lab.declaration.table}_small")
    result = lab.land_well(Options(max_records=9, wait=10), small)
    assert (result.records, result.batches) == (40, 5)

    def facts(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [{name: value for name, value in row.items() if name not in BATCH_COLUMNS} for row in rows]

    assert facts(lab.rows(small)) == facts(lab.rows())
    assert sorted({row["ingest_batch"] for row in lab.rows(small)}) == [1, 2, 3, 4, 5]


def test_the_snapshot_describes_its_batch(lab: Lab) -> None:
    produce(lab, 6, partitions=(0, 2))
    lab.land_well()
    summary = lab.table().current_snapshot().summary
    assert summary["lakehouse.batch"] == "1"
    assert summary["lakehouse.ranges"] == '{"0": [0, 3], "2": [0, 3]}'
    assert summary["added-records"] == "6"
    assert summary["operation"].value == "overwrite"


def test_a_batch_without_rows_has_its_number_alone(lab: Lab) -> None:
    transactions(lab, lab.register(SALE), "commit", "abort")
    lab.land_well(Options(max_records=5, wait=10))
    produce(lab, 3, partitions=(1,))
    end = Broker(lab.settings, 10).describe(lab.topic).end[0]
    empty = plan(lab, OffsetRange(0, end - 1, end))
    rows = plan(lab, OffsetRange(1, 0, 3))
    assert lab.batch_writer("first").land(lab.table(), empty).rows == 0
    for stale in (empty, rows):
        with pytest.raises(CommitConflict, match="another commit came first"):
            lab.batch_writer("second").land(lab.table(), stale)
    lab.land_well()
    numbers = [snapshot.summary["lakehouse.batch"] for snapshot in lab.table().snapshots() if snapshot.summary]
    assert len(numbers) == len({*numbers})
    assert_exactly_once(lab, 8)


@pytest.mark.parametrize(("first", "partition"), [(0, 0), (1, 0), (0, 1), (1, 1)])
def test_of_two_that_fill_holes_under_different_numbers_one_is_refused(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, first: int, partition: int
) -> None:
    """Both fill the same hole, or the second one fills a hole in another partition."""
    produce(lab, 9)
    lab.land_well()
    lab.sql(f"delete from {{table}} where kafka_partition in (0, {partition}) and kafka_offset = 1")
    batch = replace(plan(lab, OffsetRange(0, 1, 2)), filling_gaps=True)
    # The branch of a replay that was killed has a number, and only one of the two has seen it.
    later = replace(batch.position, last_batch=batch.position.last_batch + 1)
    plans = [batch, replace(batch, position=later, ranges=[OffsetRange(partition, 1, 2)])]
    overwrite = commit.overwrite

    def overtaken(*arguments: Any) -> None:
        # The second has seen that its base is the current snapshot: from here on Iceberg alone refuses it.
        monkeypatch.undo()
        assert lab.batch_writer("first").land(lab.table(), plans[first]).rows == 1
        overwrite(*arguments)

    monkeypatch.setattr(commit, "overwrite", overtaken)
    with pytest.raises(CommitConflict, match="another commit came first"):
        lab.batch_writer("second").land(lab.table(), plans[1 - first])
    lab.land_well(Options(from_earliest=True, wait=10))
    assert_exactly_once(lab, 9)


def test_a_batch_of_thousands_of_ranges_is_committed_once(lab: Lab) -> None:
    produce(lab, 3)
    lab.land_well()
    base = PositionReader().read(lab.table())
    rows = lab.spark.table(f"lake.{lab.declaration.identifier}").withColumn("ingest_batch", F.lit(2))
    ranges = tuple(OffsetRange(partition, 7, 8) for partition in range(5_000))
    read_until = {offset_range.partition: offset_range.until for offset_range in ranges}
    metadata = commit.BatchMetadata("wide", 2, ranges, read_until, ())
    moved = rows.withColumn("kafka_offset", F.lit(7).cast("bigint"))
    commit.overwrite(moved, lab.declaration.identifier, base, metadata)
    assert commit.committed(lab.table(), metadata)
    with pytest.raises(CommitConflict, match="another commit came first"):
        commit.overwrite(moved, lab.declaration.identifier, base, replace(metadata, writer="zombie"))


def test_of_two_first_writers_one_is_refused(lab: Lab) -> None:
    produce(lab, 6)
    topic = Broker(lab.settings, 10).describe(lab.topic)
    first = BatchPlan(topic, Position(), [OffsetRange(0, 0, 2)])
    batch_writer, other = lab.batch_writer("one"), lab.batch_writer("other")
    make_namespace(batch_writer.catalog, lab.declaration.schema)
    empty = tables.create(batch_writer.catalog, lab.declaration)
    topic_identity.record_topic_id(empty, topic)
    with pytest.raises(CommitConflict):
        tables.create(other.catalog, lab.declaration)
    stale = lab.table()
    assert batch_writer.land(empty, first).rows == 2
    with pytest.raises(CommitConflict, match=r"another (process|commit)"):
        other.land(stale, first)
    with pytest.raises(CommitConflict, match="another commit came first"):
        other.land(lab.table(), first)
    lab.land_well()
    assert_exactly_once(lab, 6)


@pytest.mark.long
def test_two_ingesters_at_once_land_each_offset_once(lab: Lab) -> None:
    produce(lab, 60)
    heard = [Messages(), Messages()]
    ingesters = [lab.ingester(Options(max_records=10, wait=10), messages=messages) for messages in heard]
    results: list[Any] = []
    start = threading.Barrier(2)

    def work(index: int) -> None:
        start.wait()
        results.extend(ingesters[index].catch_up([lab.declaration]))

    threads = [threading.Thread(target=work, args=(index,)) for index in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [result.error for result in results] == [None, None]
    assert sum(result.records for result in results) == 60
    assert any("nothing was committed" in note for messages in heard for note in messages.notes)
    assert_exactly_once(lab, 60)


def test_a_table_that_another_process_changes_while_it_is_bound_is_planned_again(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    produce(lab, 6)
    written = SqlCatalog._write_metadata
    changed: list[bool] = []

    def written_too_late(metadata: TableMetadata, io: FileIO, metadata_path: str) -> None:
        written(metadata, io, metadata_path)
        if "lakehouse.topic-id" in metadata.properties and not changed:
            changed.append(True)
            with lab.table().transaction() as other:
                other.set_properties({"someone.else": "was here"})

    monkeypatch.setattr(SqlCatalog, "_write_metadata", staticmethod(written_too_late))
    result = lab.land_well()
    assert (result.records, result.batches) == (6, 1)
    assert lab.messages.notes == ["nothing was committed: another process changed the table; planning again"]
    assert_exactly_once(lab, 6)


def test_a_commit_whose_answer_is_lost_is_found_in_the_table(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    produce(lab, 6)
    lab.land_well()
    produce(lab, 6, start=6)
    answered = commit.overwrite

    def lost(*arguments: Any) -> None:
        answered(*arguments)
        raise Py4JError("the answer was lost")

    monkeypatch.setattr(commit, "overwrite", lost)
    result = lab.land_well()
    assert (result.records, result.batches) == (6, 1)
    assert lab.messages.notes == []
    assert_exactly_once(lab, 12)


@pytest.mark.long
def test_a_clock_that_steps_back_while_a_batch_is_written_costs_time_and_no_table(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    produce(lab, 6)
    lab.land_well()
    produce(lab, 6, start=6)
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
                topic_identity.set_properties(lab.table(), {"other": "x"})
        overwrite(*arguments)

    monkeypatch.setattr(commit, "overwrite", written_before)
    assert lab.land_well().records == 6
    assert ["planning again" in note for note in lab.messages.notes] == [True]
    topic_identity.set_properties(lab.table(), {"other": "y"})
    assert lab.spark.table(f"lake.{lab.declaration.identifier}").count() == 12
    assert_exactly_once(lab, 12)


def test_compaction_expiry_and_rollback_neither_lose_nor_double(lab: Lab) -> None:
    produce(lab, 4, partitions=(0,))
    produce(lab, 30, start=4, partitions=(1,))
    lab.land_well(Options(max_records=10, wait=10))
    before = lab.rows()
    reader = PositionReader()
    reader.read(lab.table())
    name = lab.declaration.identifier
    options = "map('rewrite-all', 'true')"
    lab.sql(
        f"call lake.system.rewrite_data_files(table => '{name}', strategy => 'sort',"
        f" sort_order => 'kafka_partition, kafka_offset', options => {options})"
    )
    assert lab.rows() == before
    table = lab.table()
    reader.read(table)
    # Of manifests that are no longer in use nothing is kept.
    assert reader._manifests.keys() == {
        manifest.manifest_path for manifest in table.current_snapshot().manifests(table.io)
    }
    produce(lab, 6, start=34, partitions=(0, 1))
    assert lab.land_well().records == 6
    lab.sql(f"call lake.system.expire_snapshots(table => '{name}', older_than => now(), retain_last => 1)")
    assert len(lab.table().snapshots()) == 1
    kept = lab.table().current_snapshot().snapshot_id
    produce(lab, 6, start=40)
    assert lab.land_well().records == 6
    assert_exactly_once(lab, 46)
    last = max(row["ingest_batch"] for row in lab.rows())
    lab.sql(f"call lake.system.rollback_to_snapshot('{name}', {kept})")
    assert lab.land_well().records == 6
    assert_exactly_once(lab, 46)
    # Whoever had read the rolled back batch looks for greater numbers only.
    assert max(row["ingest_batch"] for row in lab.rows()) == last + 1


def transactions(lab: Lab, schema_id: int, *outcomes: str) -> None:
    """Produce five records per transaction in partition 0."""
    producer = lab.transactional_producer()
    for outcome in outcomes:
        producer.begin_transaction()
        for index in range(5):
            producer.produce(lab.topic, lab.encode(schema_id, {"id": index, "note": outcome}), partition=0)
        producer.flush()
        producer.commit_transaction() if outcome == "commit" else producer.abort_transaction()


def test_aborted_transactions_are_passed_over_once(lab: Lab) -> None:
    transactions(lab, lab.register(SALE), "commit", "abort", "commit", "abort")
    assert lab.land_well(Options(max_records=4, wait=10)).records == 10
    assert {row["note"] for row in lab.rows()} == {"commit"}
    assert_exactly_once(lab, 10)
    snapshot = lab.table().current_snapshot()
    assert lab.land_well().batches == 0
    assert lab.table().current_snapshot() == snapshot
    produce(lab, 1, partitions=(0,))
    assert lab.land_well().records == 1
    assert_exactly_once(lab, 11)


def test_a_partition_added_later_is_read_from_its_beginning(lab: Lab) -> None:
    produce(lab, 3)
    lab.land_well()
    for grown in lab.admin.create_partitions([NewPartitions(lab.topic, 4)]).values():
        grown.result()
    lab.wait_for_topic(4)
    lab = replace(lab)  # a producer that knows the new partition
    produce(lab, 4, start=3, partitions=(3, 0))
    assert lab.land_well().records == 4
    assert_exactly_once(lab, 7)


def test_a_recreated_topic_is_refused(lab: Lab) -> None:
    produce(lab, 6)
    lab.land_well()
    before = lab.rows()
    lab.delete_topic()
    lab.make_topic()
    produce(lab, 12)
    error = str(lab.land().error)
    assert f"{lab.declaration.identifier} was loaded from topic id" in error
    assert lab.rows() == before


def test_a_gap_left_by_retention_is_refused_with_its_range_until_it_is_accepted(lab: Lab) -> None:
    produce(lab, 4, partitions=(1,))
    lab.land_well()
    produce(lab, 10, start=4, partitions=(1,))
    lab.delete_records(1, 9)
    error = str(lab.land().error)
    assert "retention deleted offsets 4 to 8 of partition 1 before they were landed" in error
    assert "--accept-gap" in error
    assert len(lab.rows()) == 4
    assert lab.land_well(Options(wait=10, accept_gap=True)).records == 5
    assert lab.table().properties["lakehouse.accepted-gap.1.4"] == "9"
    # What is noted stays accepted, also when the rows behind it are landed again.
    first = next(iter(lab.table().snapshots()))
    lab.sql(f"call lake.system.rollback_to_snapshot('{lab.declaration.identifier}', {first.snapshot_id})")
    assert lab.land_well().records == 5


def test_a_batch_fails_if_the_broker_no_longer_has_what_was_planned(lab: Lab) -> None:
    produce(lab, 4, partitions=(1,))
    lab.land_well()
    produce(lab, 10, start=4, partitions=(1,))
    planned = plan(lab, OffsetRange(1, 4, 14))
    lab.delete_records(1, 9)
    with pytest.raises(SparkFailed):
        lab.batch_writer().land(lab.table(), planned)
    assert len(lab.rows()) == 4


def test_what_retention_takes_from_a_partition_that_was_empty_at_first_is_a_gap(lab: Lab) -> None:
    produce(lab, 4, partitions=(1,))
    lab.land_well()
    produce(lab, 4, start=4, partitions=(0,))
    lab.delete_records(0, 3)
    assert "retention deleted offsets 0 to 2 of partition 0" in str(lab.land().error)
    assert_exactly_once(lab, 4)
    assert lab.land_well(Options(wait=10, accept_gap=True)).records == 1
    assert_exactly_once(lab, 5)


def test_what_retention_takes_is_a_gap_also_when_others_expire_the_snapshot_that_notes_it(lab: Lab) -> None:
    produce(lab, 4, partitions=(1,))
    lab.land_well(Options(max_records=2, wait=10))
    name = lab.declaration.identifier
    lab.sql(f"call lake.system.rewrite_data_files(table => '{name}', options => map('rewrite-all', 'true'))")
    lab.sql(f"call lake.system.expire_snapshots(table => '{name}', older_than => now(), retain_last => 1)")
    produce(lab, 4, start=4, partitions=(0,))
    lab.delete_records(0, 3)
    assert "retention deleted offsets 0 to 2 of partition 0" in str(lab.land().error)
    assert lab.land_well(Options(wait=10, accept_gap=True)).records == 1
    assert_exactly_once(lab, 5)


def test_from_earliest_lands_what_is_missing_and_nothing_twice(lab: Lab) -> None:
    produce(lab, 30, partitions=(0, 1))
    lab.land_well()
    lab.sql("delete from {table} where kafka_partition = 0 and kafka_offset in (0, 1, 7, 14)")
    lab.sql("delete from {table} where kafka_partition = 1 and kafka_offset < 5")
    produce(lab, 3, start=30, partitions=(2,))
    result = lab.land_well(Options(wait=10, from_earliest=True))
    # The last offset of partition 0 is behind the position once its row is gone: news, not a hole.
    assert (result.records, result.batches) == (12, 3)
    assert_exactly_once(lab, 33)
    snapshot = lab.table().current_snapshot()
    assert lab.land_well(Options(wait=10, from_earliest=True)).batches == 0
    assert lab.table().current_snapshot() == snapshot


class Seeking(Consumer):
    assigned = 0

    def assign(self, partitions: list[TopicPartition]) -> None:
        type(self).assigned += 1
        super().assign(partitions)


def test_from_earliest_passes_over_offsets_without_records(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    schema_id = lab.register(SALE)
    transactions(lab, schema_id, "commit", "abort", "commit")
    lab.land_well()
    snapshot = lab.table().current_snapshot()
    ingester = lab.ingester(Options(wait=10, from_earliest=True))
    with monkeypatch.context() as patch:
        patch.setattr(consumer, "Consumer", Seeking)
        (first,) = ingester.catch_up([lab.declaration])
    assert Seeking.assigned == 1  # markers and aborted records of all transactions are passed in one go
    with monkeypatch.context() as patch:
        patch.setattr(consumer, "reader", None)  # what holds no record is not asked for again
        (again,) = ingester.catch_up([lab.declaration])
    assert [(result.error, result.batches) for result in (first, again)] == [(None, 0), (None, 0)]
    lab.sql("delete from {table} where kafka_offset = 2")
    assert lab.land_well(Options(wait=10, from_earliest=True)).records == 1
    assert lab.table().current_snapshot() != snapshot
    assert_exactly_once(lab, 10)


def test_until_bounds_a_run_by_the_time_of_the_records(lab: Lab) -> None:
    schema_id = lab.register(SALE)
    day = datetime(2026, 3, 1, tzinfo=UTC)
    for index in range(12):
        stamp = int((day + timedelta(days=index)).timestamp() * 1000)
        lab.produce(lab.encode(schema_id, {"id": index, "note": ""}), index % 2, timestamp=stamp)
    bounded = Options(wait=10, until=day + timedelta(days=5))
    assert lab.land_well(bounded).records == 5
    assert {row["id"] for row in lab.rows()} == set(range(5))
    assert lab.land_well(bounded).batches == 0
    assert lab.land_well(Options(wait=10, until=day + timedelta(days=100))).records == 7
    assert_exactly_once(lab, 12)
