"""Faults on real parts: broker and registry away in the middle, hostile records, a locked catalog, a full disk.

Each ends with the table compared to the topic, record by record.
"""

import math
import os
import random
import signal
import sqlite3
import struct
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pytest
from confluent_kafka import Producer
from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from python_common import private_files
from python_common.config import connections
from python_common.config.settings import Settings
from python_common.process import Service, free_ports
from python_dev.stack import kafka
from python_ingest.bronze import commit
from python_ingest.declare.topics import Declaration
from python_ingest.kafka import consumer
from python_ingest.kafka.offset_range import OffsetRange
from python_ingest.landing import batch, run, timestamp_overflow
from python_ingest.landing.run import Options
from python_ingest.maintenance import replay
from tests.support.commands import LAKEHOUSE, run_lakehouse
from tests.support.topic_fixture import (
    SALE,
    Messages,
    TopicFixture,
    assert_columns_hold_what_bytes_encode,
    assert_exactly_once,
    configure,
    declared_in,
    produce,
    record,
)


@dataclass
class Saboteur(Messages):
    """A Reporter that does something once, when a batch is planned and not yet read."""

    before_batch: Callable[[], object] | None = None

    def waiting(self, topic: str, offsets_left: int) -> None:
        if offsets_left and self.before_batch:
            act, self.before_batch = self.before_batch, None
            act()


@pytest.fixture(scope="module")
def own_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Service, str]]:
    """A broker to stop and freeze, while the stack's goes on for the other tests."""
    [port] = free_ports(1)
    service = kafka.service(tmp_path_factory.mktemp("kafka"), port)
    service.start()
    try:
        yield service, f"127.0.0.1:{port}"
    finally:
        service.stop()


@pytest.fixture
def separate_topic(
    own_broker: tuple[Service, str], stack: Settings, spark: SparkSession, declaration: Declaration
) -> TopicFixture:
    topic = TopicFixture(stack.changed(kafka_bootstrap_servers=own_broker[1]), spark, declaration)
    topic.make_topic()
    return topic


@pytest.mark.slow
def test_a_broker_killed_before_a_read_and_started_again_is_waited_for(
    own_broker: tuple[Service, str], separate_topic: TopicFixture
) -> None:
    broker, _ = own_broker
    produce(separate_topic, 30)
    separate_topic.land_well(Options(max_records=9, wait=10))
    produce(separate_topic, 30)

    def restart() -> None:
        process = broker.process()
        assert process is not None
        process.kill()
        process.wait()
        threading.Thread(target=broker.start).start()

    result = separate_topic.land(Options(max_records=9, wait=120), messages=Saboteur(before_batch=restart))
    assert (result.error, result.records, result.lag) == (None, 30, 0)
    assert_exactly_once(separate_topic, 60)


@pytest.mark.slow
def test_a_frozen_broker_is_reported_while_following_and_then_caught_up_with_and_a_dead_jvm_ends_it(
    own_broker: tuple[Service, str], separate_topic: TopicFixture, models_dir: Path
) -> None:
    process = own_broker[0].process()
    assert process is not None
    produce(separate_topic, 6)
    with following(models_dir, "--wait", "1s", KAFKA_BOOTSTRAP_SERVERS=own_broker[1]) as follower:
        try:
            read_until(follower.stderr, "caught up")
            process.suspend()
            read_until(follower.stderr, f"Kafka at {own_broker[1]} does not answer")
        finally:
            process.resume()
        produce(separate_topic, 6)
        read_until(follower.stderr, "12 records landed")
        (jvm,) = psutil.Process(follower.pid).children()
        jvm.kill()
        _, log = follower.communicate()
        assert follower.returncode == 1
        assert "error: Spark's Java process has ended" in log
    assert_exactly_once(separate_topic, 12)


@contextmanager
def following(models_dir: Path, *options: str, **env: str) -> Iterator[subprocess.Popen[str]]:
    """Follow the topics that a directory declares until the block ends, at most five minutes."""
    command = [LAKEHOUSE, "ingest", "run", "--follow", "--every", "200ms", *options, "--models", str(models_dir)]
    pipe = subprocess.PIPE
    follower = subprocess.Popen(command, env={**os.environ, **env}, stdout=pipe, stderr=pipe, text=True)
    watchdog = threading.Timer(300, follower.kill)
    watchdog.start()
    try:
        yield follower
    finally:
        if follower.poll() is None:
            follower.send_signal(signal.SIGINT)
            follower.communicate()
        watchdog.cancel()


def read_until(stream: Any, words: str) -> None:
    for line in stream:
        if words in line:
            return
    raise AssertionError(f"it ended without {words!r}")


def test_numbers_that_are_none_land_as_they_are(topic: TopicFixture) -> None:
    schema_id = topic.register(record("sale", ratio="double", small="float"))
    numbers = [math.nan, math.inf, -math.inf, -0.0, 5e-324]
    for number in numbers:
        topic.produce(topic.encode(schema_id, {"ratio": number, "small": number}))
    assert topic.land_well().dead_letters == 0
    landed = [struct.pack("d", row["ratio"]) for row in topic.rows()]
    assert landed == [struct.pack("d", number) for number in numbers]
    assert_exactly_once(topic, len(numbers))


def large_producer(topic: TopicFixture, limit: int) -> Producer:
    """Let a topic have messages of so many bytes, and return a producer of them."""
    configure(topic, "max.message.bytes", str(limit))
    limits = {"message.max.bytes": limit, "queue.buffering.max.kbytes": 100_000}
    return Producer({**connections.kafka_client(topic.settings), **limits})


def test_messages_beyond_a_megabyte_land_or_are_dead_letters(topic: TopicFixture) -> None:
    producer = large_producer(topic, 10_000_000)
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


def test_a_batch_is_bounded_by_bytes_before_and_after_the_first_file(
    topic: TopicFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
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


@pytest.mark.slow
def test_a_topic_that_ends_the_jvm_is_named_with_the_remedy(
    topic: TopicFixture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A record of 90 MB ends the JVM with a heap of 512 MB; another topic of the run lands with the next."""
    other = topic.declaring(topic=f"{topic.name}a", table=f"{topic.declaration.table}a")
    other.make_topic()
    produce(other, 6)
    producer = large_producer(topic, 95_000_000)
    schema_id = topic.register(record("scan", image="bytes"))
    producer.produce(
        topic.name, topic.encode(schema_id, {"image": random.Random(9).randbytes(90_000_000)}), partition=0
    )
    assert producer.flush(120) == 0
    declared_in(tmp_path, topic.declaration, other.declaration)
    small_heap = tmp_path / "spark.conf"
    private_files.write(small_heap, "spark.driver.memory 512m\n")
    monkeypatch.setenv("LAKEHOUSE_SPARK_CONF", str(small_heap))
    landed = run_lakehouse("ingest", "run", "--models", str(tmp_path))
    assert landed.returncode == 1, landed.stdout
    assert f"error: {topic.name}: Spark's Java process ended before this topic had landed" in landed.stderr
    assert f"Run `lakehouse ingest run {topic.name}`" in landed.stderr
    assert "raise spark.driver.memory" in landed.stderr
    landed = run_lakehouse("ingest", "run", other.name, "--models", str(tmp_path))
    assert landed.returncode == 0, landed.stderr
    assert_exactly_once(other, 6)


def test_timestamps_of_any_calendar_land_as_sent(topic: TopicFixture) -> None:
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
    for index, stamp in enumerate(stamps):
        topic.produce(topic.encode(schema_id, {"id": index, "note": ""}), timestamp=stamp)
    topic.land_well()
    rows = topic.table().scan(selected_fields=("kafka_offset", "kafka_timestamp", "decode_error")).to_arrow()
    rows = rows.set_column(1, "kafka_timestamp", rows["kafka_timestamp"].cast(pa.int64())).sort_by("kafka_offset")
    landed = [stamp * 1000 if abs(stamp) <= last else None for stamp in stamps]
    assert rows["kafka_timestamp"].to_pylist() == landed
    assert [error is None for error in rows["decode_error"].to_pylist()] == [stamp is not None for stamp in landed]
    # Not even a note: no replay changes a timestamp.
    assert_columns_hold_what_bytes_encode(topic, len(stamps))
    topic.sql("update {table} set kafka_timestamp = kafka_timestamp + interval 1 millisecond where id = 3")
    report = topic.verify()
    assert report.issues == ["partition 0: offset 3: another kafka_timestamp than in the topic"]


@pytest.mark.slow
def test_records_stamped_in_nanoseconds_cost_themselves(topic: TopicFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    configure(topic, "message.timestamp.after.max.ms", str(2**63 - 1))
    monkeypatch.setattr(timestamp_overflow, "MOST_RECORDS", 7)
    schema_id = topic.register(SALE)
    now = time.time_ns()
    rng = random.Random(64)
    far = [*(index == 3 for index in range(6)), *(rng.random() < 0.5 for _ in range(20)), *[True] * 4, *[False] * 4]
    for index, nanoseconds in enumerate(far):
        value = topic.encode(schema_id, {"id": index, "note": ""})
        headers = [("from", b"x")] if index % 2 else None
        topic.produce(value, 0, key=b"k", timestamp=now if nanoseconds else now // 10**6, headers=headers)
        topic.produce(value, 1)
    result = topic.land_well()
    assert (result.records, result.dead_letters) == (2 * len(far), sum(far))
    rows = topic.rows()
    for row, nanoseconds in zip(rows, [*far, *[False] * len(far)], strict=True):
        if nanoseconds:
            assert row["decode_error"].startswith("timestamp_out_of_range: ")
            assert (row["kafka_timestamp"], row["id"], row["kafka_raw_value"] is None) == (None, None, False)
        else:
            assert (row["decode_error"], row["id"]) == (None, row["kafka_offset"])
            assert row["kafka_timestamp"] is not None
    assert_exactly_once(topic, 2 * len(far))
    replayed = replay.replay(topic.batch_writer(), None)
    assert (replayed.looked_at, replayed.decoded) == (sum(far), 0)


@pytest.mark.slow
def test_a_catalog_that_is_locked_is_waited_for_then_named_and_nothing_is_lost(
    topic: TopicFixture, models_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = topic.settings.catalog_uri.split("?")[0]
    impatient = topic.settings.changed(catalog_uri=f"{database}?busy_timeout=200")
    produce(topic, 6)
    with locked_catalog(topic.settings):
        result = topic.land(settings=impatient)
    assert "is locked by another program" in str(result.error)
    with locked_catalog(topic.settings, seconds=2):
        assert topic.land_well().records == 6
    produce(topic, 6)
    monkeypatch.setenv("LAKEHOUSE_CATALOG_URI", impatient.catalog_uri)
    with locked_catalog(topic.settings):
        refused = run_lakehouse("ingest", "run", "--models", str(models_dir))
    assert refused.returncode == 1
    assert f"error: {topic.name}: Spark failed (org.sqlite.SQLiteException). See" in refused.stderr
    assert len(topic.rows()) == 6
    assert topic.land_well().records == 6
    assert_exactly_once(topic, 12)


@contextmanager
def locked_catalog(settings: Settings, seconds: float = 0) -> Iterator[None]:
    """Hold the database's write lock in another connection, for some seconds or until the block ends."""
    path = settings.catalog_uri.removeprefix("jdbc:sqlite:").split("?")[0]
    with closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as other:
        other.execute("begin immediate")
        release = threading.Timer(seconds, other.execute, ["rollback"])
        if seconds:
            release.start()
        yield
        if seconds:
            release.join()
        else:
            other.execute("rollback")


def test_a_failure_of_spark_is_tried_once_more(topic: TopicFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    produce(topic, 6)
    outcomes = iter([False, False, False, True])
    overwrite = commit.overwrite

    def failing(*arguments: Any) -> None:
        if not next(outcomes):
            raise Py4JError("the store is busy")
        overwrite(*arguments)

    monkeypatch.setattr(commit, "overwrite", failing)
    monkeypatch.setattr(run, "RETRY_SECONDS", 0.0)
    assert str(topic.land().error).startswith(f"{topic.name}: Spark failed (Py4JError). See ")
    assert topic.rows() == []
    assert topic.land_well().records == 6
    assert_exactly_once(topic, 6)


@pytest.mark.slow
def test_a_full_disk_fails_the_run_and_little_memory_does_not(topic: TopicFixture, models_dir: Path) -> None:
    """A limit on the size of files simulates the full disk: unlike one, it needs no rights."""
    produce(topic, 6)
    topic.land_well()
    rng = random.Random(32)
    for _ in range(20):
        topic.produce(rng.randbytes(900_000))
    topic.flush()
    command = [LAKEHOUSE, "--log-level=warning", "ingest", "run", "--models", str(models_dir)]
    limit = 8_000_000
    full = subprocess.run(
        ["sh", "-c", f'ulimit -f {limit // 512}; exec "$@"', "sh", *command],
        capture_output=True,
        text=True,
        check=False,
    )
    assert full.returncode == 1
    assert f"error: {topic.name}: Spark failed (java.io.IOException: File too large). See" in full.stderr
    assert len(topic.rows()) == 6
    low = {**os.environ, "PYSPARK_SUBMIT_ARGS": "--driver-memory 512m pyspark-shell"}
    again = subprocess.run(command, env=low, capture_output=True, text=True, check=False)
    assert (again.returncode, again.stderr) == (0, "")
    assert_exactly_once(topic, 26)


def with_damage(topic: TopicFixture, partition: int, *offsets: int) -> None:
    """Change a byte in the batches of Kafka's log that hold these offsets, so that their checksum is wrong."""
    home = Path(os.environ["LAKEHOUSE_HOME"]) / "kafka" / "data"
    [log] = (home / f"{topic.name}-{partition}").glob("*.log")
    data, at = log.read_bytes(), 0
    while at < len(data):
        # The format of a batch: its first offset, its length behind that, and 23 bytes on how many offsets follow.
        first, length = struct.unpack_from(">qi", data, at)
        (more,) = struct.unpack_from(">i", data, at + 23)
        if any(first <= offset <= first + more for offset in offsets):
            with log.open("r+b") as file:
                file.seek(at + 12 + length - 5)
                file.write(bytes([data[at + 12 + length - 5] ^ 0xFF]))
        at += 12 + length


def test_damage_in_kafkas_log_is_named_and_can_be_left_out(topic: TopicFixture) -> None:
    """Two batches in a row between good ones, and the first of a partition."""
    topic.producer = Producer(
        {**connections.kafka_client(topic.settings), "linger.ms": 200, "compression.type": "zstd"}
    )
    for start in range(0, 50, 5):
        produce(topic, 5, start=start, partitions=(0,))
        produce(topic, 5, start=50 + start, partitions=(1,))
    with_damage(topic, 0, 12, 17)
    with_damage(topic, 1, 0)
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


@pytest.mark.slow
def test_no_damage_lands_beside_a_stamp_before_1582(topic: TopicFixture) -> None:
    """Behind, in front of and right beside it."""
    configure(topic, "message.timestamp.before.max.ms", str(2**63 - 1))
    schema_id = topic.register(SALE)
    for offset in range(15):
        stamp = -62_135_596_800_000 if offset in (3, 7, 12) else 1_700_000_000_000
        topic.produce(topic.encode(schema_id, {"id": offset, "note": ""}), 0, timestamp=stamp)
        topic.flush()
    with_damage(topic, 0, 8)
    assert "the checksum of offsets 8 to 8 of partition 0 is wrong" in str(topic.land().error)
    assert [row["kafka_offset"] for row in topic.rows()] == [*range(8)]
    assert topic.land(Options(wait=10, accept_gap=True)).error is None
    assert [row["kafka_offset"] for row in topic.rows()] == [offset for offset in range(15) if offset != 8]
