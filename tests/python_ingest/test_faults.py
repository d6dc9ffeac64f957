"""Faults on real parts: hostile records, Spark that fails, damage in Kafka's log.

Each ends with the table compared to the topic, record by record.
"""

import math
import random
import struct
import time
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Producer
from py4j.protocol import Py4JError

from python_common.config import connections
from python_ingest.bronze import commit
from python_ingest.kafka import consumer
from python_ingest.kafka.offset_range import OffsetRange
from python_ingest.landing import batch, run, timestamp_overflow
from python_ingest.landing.run import Options
from python_ingest.maintenance import replay
from python_ingest.maintenance.replay import Replayed
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


def test_numbers_that_are_none_land_as_they_are(topic: TopicFixture) -> None:
    schema_id = topic.register(record("sale", ratio="double", small="float"))
    numbers = [math.nan, math.inf, -math.inf, -0.0, 5e-324]
    for number in numbers:
        topic.produce(topic.encode(schema_id, {"ratio": number, "small": number}))
    assert topic.land_well().dead_letters == 0
    landed = [struct.pack("d", row["ratio"]) for row in topic.rows()]
    assert landed == [struct.pack("d", number) for number in numbers]
    assert_exactly_once(topic, len(numbers))


def test_messages_beyond_a_megabyte_land_or_are_dead_letters(topic: TopicFixture) -> None:
    limit = 10_000_000
    configure(topic, "max.message.bytes", str(limit))
    limits = {"message.max.bytes": limit, "queue.buffering.max.kbytes": 100_000}
    producer = Producer({**connections.kafka_client(topic.settings), **limits})
    schema_id = topic.register(record("sale", note="string"))
    header = len(topic.encode(schema_id, {"note": ""}))
    values = [
        topic.encode(schema_id, {"note": "x" * (size - header - 3)}) for size in (2**20 - 200, 2**20 + 1, 9 * 10**6)
    ]
    values += [b"\x01" * 3 * 10**6, topic.encode(schema_id, {"note": "small"})]
    for value in values:
        producer.produce(topic.name, value, partition=0)
    assert producer.flush(60) == 0
    result = topic.land_well()
    assert (result.records, result.dead_letters) == (5, 1)
    assert [row["decode_error"] is None for row in topic.rows()] == [True, True, True, False, True]
    assert_exactly_once(topic, 5)


def test_a_batch_exceeds_its_bytes(topic: TopicFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch, "BATCH_BYTES", 400_000)
    schema_id = topic.register(record("scan", image="bytes"))
    rng = random.Random(16)
    for index in range(60):
        topic.produce(topic.encode(schema_id, {"image": rng.randbytes(20_000)}), index % 3)
    result = topic.land_well()
    summaries = [snapshot.summary for snapshot in topic.table().snapshots()]
    assert result.batches == len(summaries) > 5
    assert all(summary is not None and int(summary["added-files-size"]) < 500_000 for summary in summaries)
    assert_exactly_once(topic, 60)


def test_timestamps_of_any_calendar_land_as_sent(topic: TopicFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timestamp_overflow, "MOST_RECORDS", 7)
    configure(topic, "message.timestamp.after.max.ms", str(2**63 - 1))
    configure(topic, "message.timestamp.before.max.ms", str(2**63 - 1))
    schema_id = topic.register(SALE)
    rng, day = random.Random(1582), 86_400_000
    last, gregorian = timestamp_overflow.LAST_MILLISECOND, timestamp_overflow.FIRST_MILLISECOND
    # The least date of .NET, leap days of the Julian calendar alone, the ten days that it has more, ends of the range.
    stamps = [-62_135_596_800_000, *(gregorian + days * day - 1 for days in range(-12, 3)), -last, last, -(2**63)]
    stamps += [gregorian - days * day for days in (30_184, 30_185, 66_708, 66_709)]
    stamps += [rng.randrange(*span) for span in ((-last, last), (gregorian - 2 * 10**12, gregorian)) for _ in range(20)]
    # librdkafka takes 0 for now; -1 is Kafka's "no timestamp".
    stamps += [2**63 - 1, -last - 1, 1_800_000_000_000, 1, -1, 253_402_300_799_999]
    rng.shuffle(stamps)
    # Nanoseconds, for more records than are read at a time.
    stamps += [time.time_ns()] * 9 + [1_800_000_000_000]
    for index, stamp in enumerate(stamps):
        value = topic.encode(schema_id, {"id": index, "note": ""})
        topic.produce(value, 0, key=b"k", timestamp=stamp, headers=[("from", b"x")] if index % 2 else None)
        topic.produce(value, 1)
    landed = [stamp * 1000 if abs(stamp) <= last else None for stamp in stamps]
    result = topic.land_well()
    assert (result.records, result.dead_letters) == (2 * len(stamps), landed.count(None))
    names = ("id", "kafka_offset", "kafka_timestamp", "decode_error")
    rows = topic.table().scan("kafka_partition = 0", selected_fields=names).to_arrow().sort_by("kafka_offset")
    assert rows["kafka_timestamp"].cast(pa.int64()).to_pylist() == landed
    assert rows["id"].to_pylist() == [None if stamp is None else index for index, stamp in enumerate(landed)]
    reasons = [error and error.partition(":")[0] for error in rows["decode_error"].to_pylist()]
    assert reasons == ["timestamp_out_of_range" if stamp is None else None for stamp in landed]
    # Not even a note: no replay changes a timestamp.
    assert_columns_hold_what_bytes_encode(topic, 2 * len(stamps))
    assert replay.replay(topic.batch_writer(), None) == Replayed(landed.count(None), 0)
    topic.sql(
        "update {table} set kafka_timestamp = kafka_timestamp + interval 1 millisecond"
        " where kafka_partition = 0 and kafka_offset = 3"
    )
    report = topic.verify()
    assert report.issues == ["partition 0: offset 3: another kafka_timestamp than in the topic"]


def test_a_failure_of_spark_is_tried_once_more(topic: TopicFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also of a batch before which the table was widened."""
    produce(topic, 6)
    topic.land_well()
    wider = topic.register(record("sale", id="long", note="string", more=["null", "int"]))
    topic.produce(topic.encode(wider, {"id": 2**40, "note": "n", "more": 2}))
    outcomes = iter([False, False, False, True])
    overwrite = commit.overwrite

    def failing(*arguments: Any) -> None:
        # Of the first try the table is not widened yet.
        if "more" in topic.table().schema().column_names and not next(outcomes):
            raise Py4JError("the store is busy")
        overwrite(*arguments)

    monkeypatch.setattr(commit, "overwrite", failing)
    monkeypatch.setattr(run, "RETRY_SECONDS", 0.0)
    assert str(topic.land().error).startswith(f"{topic.name}: Spark failed (Py4JError). See ")
    assert [row["more"] for row in topic.rows()] == [None] * 6
    assert topic.land_well().records == 1
    assert {row["ingest_batch"] for row in topic.rows()} == {1, 2}
    assert_exactly_once(topic, 7)


def test_damage_in_kafkas_log_is_named_and_can_be_left_out(topic: TopicFixture) -> None:
    """Two batches in a row between good ones, and the first of a partition."""
    topic.producer = Producer(
        {**connections.kafka_client(topic.settings), "linger.ms": 200, "compression.type": "zstd"}
    )
    for start in range(0, 50, 5):
        produce(topic, 5, start=start, partitions=(0,))
        produce(topic, 5, start=50 + start, partitions=(1,))
    damage_log(topic, 0, 12, 17)
    damage_log(topic, 1, 0)
    result = topic.land()
    assert str(result.error).startswith(
        f"{topic.name}: the checksum of offsets 10 to 14 of partition 0, offsets 0 to 4 of partition 1"
        " is wrong in Kafka's log. "
    )
    assert [(row["kafka_partition"], row["kafka_offset"]) for row in topic.rows()] == [(0, at) for at in range(10)]
    with pytest.raises(consumer.DamagedLog, match=f"`lakehouse ingest run {topic.name}`, which names"):
        list(consumer.read_records(topic.settings, topic.name, OffsetRange(1, 0, 50), 10, check_crcs=True))
    assert topic.land(Options(wait=10, accept_gap=True)).error is None
    gaps = {name: until for name, until in topic.table().properties.items() if "accepted-gap" in name}
    assert gaps == {
        f"lakehouse.accepted-gap.{partition}.{start}": str(start + 5) for partition, start in ((0, 10), (0, 15), (1, 0))
    }
    good = [(0, at) for at in range(50) if at // 5 not in (2, 3)] + [(1, at) for at in range(5, 50)]
    assert [(row["kafka_partition"], row["kafka_offset"]) for row in topic.rows()] == good
    assert topic.land_well(Options(wait=10, from_earliest=True)).records == 0
    produce(topic, 1, partitions=(1,))
    assert topic.land_well().records == 1
    assert topic.verify().issues == []
