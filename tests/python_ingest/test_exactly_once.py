"""Every offset exactly once: restarts, kills, two writers, maintenance, and topics that changed behind the table."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from py4j.protocol import Py4JError
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.io import FileIO
from pyiceberg.table.metadata import TableMetadata

from python_common.catalog.catalog import make_namespace
from python_common.catalog.commits import CommitConflict
from python_ingest.bronze import commit, tables, topic_identity
from python_ingest.bronze.positions import Position
from python_ingest.kafka.admin import Broker
from python_ingest.kafka.offset_range import OffsetRange
from python_ingest.landing.batch import BatchPlan, SparkFailed
from python_ingest.landing.run import Options
from tests.support.topic_fixture import (
    SALE,
    TopicFixture,
    assert_exactly_once,
    produce,
)


def test_two_fill_one_gap_under_different_numbers(topic: TopicFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second one has the greater number, and fills a gap in another partition."""
    produce(topic, 9)
    topic.land_well()
    topic.sql("delete from {table} where kafka_partition in (0, 1) and kafka_offset = 1")
    batch = replace(topic.plan(OffsetRange(0, 1, 2)), filling_gaps=True)
    # The branch of a replay that was killed has a number, and only one of the two has seen it.
    later = replace(batch.position, last_batch=batch.position.last_batch + 1)
    second = replace(batch, position=later, ranges=[OffsetRange(1, 1, 2)])
    overwrite = commit.overwrite

    def overtaken(*arguments: Any) -> None:
        # The second has seen that its base is the current snapshot: from here on Iceberg alone refuses it.
        monkeypatch.undo()
        assert topic.batch_writer("first").land(topic.table(), batch).rows == 1
        overwrite(*arguments)

    monkeypatch.setattr(commit, "overwrite", overtaken)
    with pytest.raises(CommitConflict, match="another commit came first"):
        topic.batch_writer("second").land(topic.table(), second)
    topic.land_well(Options(from_earliest=True, wait=10))
    assert_exactly_once(topic, 9)


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


def test_a_table_that_changes_while_it_is_bound_is_landed(topic: TopicFixture, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_aborted_transactions_are_passed_over_once(topic: TopicFixture) -> None:
    topic.produce_transactions("commit", "abort", "commit", "abort")
    assert topic.land_well(Options(max_records=4, wait=10)).records == 10
    assert {row["note"] for row in topic.rows()} == {"commit"}
    assert_exactly_once(topic, 10)
    snapshot = topic.table().current_snapshot()
    assert topic.land_well().batches == 0
    assert topic.table().current_snapshot() == snapshot
    produce(topic, 1, partitions=(0,))
    assert topic.land_well().records == 1
    assert_exactly_once(topic, 11)


def test_gaps_left_by_retention_are_refused_until_accepted(topic: TopicFixture) -> None:
    """Also of a partition that was empty at first, and of a batch that is planned already."""
    produce(topic, 4, partitions=(1,))
    topic.land_well()
    produce(topic, 10, start=4, partitions=(1,))
    produce(topic, 4, start=14, partitions=(0,))
    planned = topic.plan(OffsetRange(1, 4, 14))
    topic.delete_records(1, 9)
    topic.delete_records(0, 3)
    with pytest.raises(SparkFailed):
        topic.batch_writer().land(topic.table(), planned)
    error = str(topic.land().error)
    assert "retention deleted offsets 0 to 2 of partition 0, offsets 4 to 8 of partition 1 before they were" in error
    assert "--accept-gap" in error
    assert len(topic.rows()) == 4
    assert topic.land_well(Options(wait=10, accept_gap=True)).records == 6
    gaps = {name: until for name, until in topic.table().properties.items() if "accepted-gap" in name}
    assert gaps == {"lakehouse.accepted-gap.0.0": "3", "lakehouse.accepted-gap.1.4": "9"}
    # What is noted stays accepted, also when the rows behind it are landed again.
    first = next(iter(topic.table().snapshots()))
    topic.sql(f"call lake.system.rollback_to_snapshot('{topic.declaration.identifier}', {first.snapshot_id})")
    assert topic.land_well().records == 6
    assert topic.verify().issues == []


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
