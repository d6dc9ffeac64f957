"""Topics that are rare: recreated, with transactions or damage, and of mixed versions."""

import random
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from python_common.catalog.catalog import load_catalog
from python_common.catalog.commits import CommitConflict
from python_common.errors import UserError
from python_ingest.cli import ingest
from python_ingest.kafka import consumer
from python_ingest.kafka.admin import Broker
from python_ingest.kafka.offset_range import OffsetRange
from python_ingest.landing.run import Options
from python_ingest.maintenance import erase, replay
from python_ingest.maintenance.maintain import Retention
from python_ingest.verify.report import Report
from tests.support.avro_versions import a_value, a_version
from tests.support.damaged_log import damage_log
from tests.support.topic_fixture import (
    SALE,
    TopicFixture,
    assert_columns_hold_what_bytes_encode,
    assert_exactly_once,
    configure,
    produce,
    record,
)

pytestmark = pytest.mark.slow


def test_a_batch_without_rows_has_its_number_alone(topic: TopicFixture) -> None:
    topic.produce_transactions("commit", "abort")
    topic.land_well(Options(max_records=5, wait=10))
    produce(topic, 3, partitions=(1,))
    end = Broker(topic.settings, 10).describe(topic.name).end[0]
    empty = topic.plan(OffsetRange(0, end - 1, end))
    rows = topic.plan(OffsetRange(1, 0, 3))
    assert topic.batch_writer("first").land(topic.table(), empty).rows == 0
    for stale in (empty, rows):
        with pytest.raises(CommitConflict, match="another commit came first"):
            topic.batch_writer("second").land(topic.table(), stale)
    topic.land_well()
    numbers = [snapshot.summary["lakehouse.batch"] for snapshot in topic.table().snapshots() if snapshot.summary]
    assert len(numbers) == len({*numbers})
    assert_exactly_once(topic, 8)


class Seeking(Consumer):
    assigned = 0

    def assign(self, partitions: list[TopicPartition]) -> None:
        type(self).assigned += 1
        super().assign(partitions)


def test_from_earliest_passes_over_offsets_without_records(
    topic: TopicFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic.produce_transactions("commit", "abort", "commit")
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


def test_no_damage_lands_beside_a_stamp_before_1582(topic: TopicFixture) -> None:
    """Behind, in front of and right beside it."""
    configure(topic, "message.timestamp.before.max.ms", str(2**63 - 1))
    schema_id = topic.register(SALE)
    for offset in range(15):
        stamp = -62_135_596_800_000 if offset in (3, 7, 12) else 1_700_000_000_000
        topic.produce(topic.encode(schema_id, {"id": offset, "note": ""}), 0, timestamp=stamp)
        topic.flush()
    damage_log(topic, 0, 8)
    assert "the checksum of offsets 8 to 8 of partition 0 is wrong" in str(topic.land().error)
    assert [row["kafka_offset"] for row in topic.rows()] == [*range(8)]
    assert topic.land(Options(wait=10, accept_gap=True)).error is None
    assert [row["kafka_offset"] for row in topic.rows()] == [offset for offset in range(15) if offset != 8]


def test_random_versions_in_one_batch_are_misread(topic: TopicFixture) -> None:
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
    assert_columns_hold_what_bytes_encode(topic, len(expected))


def recreate(topic: TopicFixture) -> TopicFixture:
    """Delete the topic and make one of its name, and return a topic with a producer that knows the new one."""
    topic.delete_topic()
    topic = replace(topic)
    topic.make_topic()
    return topic


def rebind(topic: TopicFixture, start: str, directory: Path) -> None:
    ingest.rebind(topic.name, start=start, wait="10s", models=directory)


def verified(topic: TopicFixture) -> Report:
    report = topic.verify(decoded=True)
    assert report.issues == []
    return report


def position(row: dict[str, Any]) -> tuple[int, int, int]:
    return row["kafka_generation"] or 0, row["kafka_partition"], row["kafka_offset"]


def test_a_recreated_topic_is_another_generation(topic: TopicFixture, models_dir: Path) -> None:
    topic.produce(b"\0\x7f\xff\xff\xff of an unknown schema", 2)
    produce(topic, 9)
    topic.produce(b"not Avro", 1)
    topic.land_well()
    with pytest.raises(UserError, match=r"has no rows of another .*: nothing changed"):
        rebind(topic, "earliest", models_dir)
    former = topic.rows()

    topic = recreate(topic)
    later = record("later", id="int", note="string")
    topic.produce(topic.encode(topic.register_under("elsewhere-value", later), {"id": 7, "note": "late"}), 2)
    produce(topic, 6, start=100)
    topic.produce(b"not Avro", 1)
    assert f"{topic.declaration.identifier} was loaded from topic id" in str(topic.land().error)
    rebind(topic, "earliest", models_dir)
    assert verified(topic).expired == 11
    assert topic.land_well().records == 8
    topic.maintain(Retention(timedelta(0), timedelta(days=3)))
    files = topic.table().inspect.data_files().to_pylist()
    assert {file["spec_id"] for file in files} == {topic.table().spec().spec_id}, "files of generation 0 are merged"
    produce(topic, 3, start=200)
    assert topic.land_well().records == 3
    assert topic.land_well().records == 0

    rows = topic.rows()
    assert [row for row in rows if row["kafka_generation"] is None] == former
    positions = [(row["kafka_generation"], row["kafka_partition"], row["kafka_offset"]) for row in rows]
    assert len(set(positions)) == len(positions) == 22
    assert {generation for generation, *_ in positions} == {None, 1}
    assert {row["ingest_batch"] for row in rows} == {1, 2, 3}
    report = verified(topic)
    assert (report.rows, report.records, report.expired, report.decoded) == (22, 11, 11, 22)

    topic.register(later)
    assert replay.replay(topic.batch_writer(), None).decoded == 1
    ids = {position(row): row["id"] for row in topic.rows()}
    assert (ids[0, 2, 0], ids[1, 2, 0]) == (None, 7)

    [to_erase] = erase.named(load_catalog(topic.settings), [topic.declaration], [(topic.name, 1, 1, 0)])
    assert erase.erase(load_catalog(topic.settings), topic.spark, to_erase, "erase-test") == 1
    emptied = {position(row) for row in topic.rows() if (row["decode_error"] or "").startswith("erased: ")}
    assert emptied == {(1, 1, 0)}
    verified(topic)


def test_a_rebound_topic_begins_elsewhere_than_its_option(topic: TopicFixture, models_dir: Path) -> None:
    produce(topic, 9)
    topic.land_well()
    topic = recreate(topic)
    produce(topic, 6)
    rebind(topic, "latest", models_dir)
    produce(topic, 3, start=6)
    assert topic.land_well(Options(wait=10, from_earliest=True)).records == 3
    assert verified(topic).records == 3
    topic.sql("delete from {table} where kafka_generation = 1 and kafka_partition = 2")
    assert topic.land_well(Options(wait=10, from_earliest=True)).records == 1
    assert verified(topic).records == 3
    assert {position(row) for row in topic.rows() if row["kafka_generation"]} == {(1, 0, 2), (1, 1, 2), (1, 2, 2)}
