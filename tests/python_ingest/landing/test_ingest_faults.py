"""Faults on real parts: broker and registry away in the middle, hostile records, a locked catalog, a full disk.

Each ends with the table compared to the topic, record by record.
"""

import datetime as dt
import json
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
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import psutil
import pytest
from confluent_kafka import Producer
from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from local_stack import kafka
from python_common import private_files
from python_common.config import connections
from python_common.config.settings import Settings
from python_common.process import Service, free_ports
from python_common.spark.session import LazySparkSession
from python_ingest.bronze import commit
from python_ingest.declare.topics import Declaration
from python_ingest.kafka import registry
from python_ingest.landing import batch, run, timestamp_overflow
from python_ingest.landing.run import Options
from python_ingest.maintenance import replay
from tests.conftest import LAKEHOUSE, run_lakehouse
from tests.python_ingest.kafka.test_ingest_services import SILENCE, registry_answering
from tests.support.lab import SALE, Lab, Messages, assert_exactly_once, configure, declared_in, produce, record


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
    port, controller = free_ports(2)
    service = kafka.service(tmp_path_factory.mktemp("kafka"), port, controller)
    service.start()
    try:
        yield service, f"127.0.0.1:{port}"
    finally:
        service.stop()


@pytest.fixture
def own_lab(own_broker: tuple[Service, str], stack: Settings, spark: SparkSession, declaration: Declaration) -> Lab:
    lab = Lab(stack.changed(kafka_bootstrap_servers=own_broker[1]), spark, declaration)
    lab.make_topic()
    return lab


@pytest.mark.long
def test_a_broker_killed_before_a_read_and_started_again_is_waited_for(
    own_broker: tuple[Service, str], own_lab: Lab
) -> None:
    broker, _ = own_broker
    produce(own_lab, 30)
    own_lab.land_well(Options(max_records=9, wait=10))
    produce(own_lab, 30)

    def restart() -> None:
        process = broker.process()
        assert process is not None
        process.kill()
        process.wait()
        threading.Thread(target=broker.start).start()

    ingester = own_lab.ingester(Options(max_records=9, wait=120), messages=Saboteur(before_batch=restart))
    (result,) = ingester.catch_up([own_lab.declaration])
    assert (result.error, result.records, result.lag) == (None, 30, 0)
    assert_exactly_once(own_lab, 60)


@pytest.mark.long
def test_a_frozen_broker_is_reported_while_following_and_then_caught_up_with_and_a_dead_jvm_ends_it(
    own_broker: tuple[Service, str], own_lab: Lab, models_dir: Path
) -> None:
    process = own_broker[0].process()
    assert process is not None
    produce(own_lab, 6)
    env = {**os.environ, "KAFKA_BOOTSTRAP_SERVERS": own_broker[1]}
    options = ["--follow", "--every", "200ms", "--wait", "1s", "--models", str(models_dir)]
    follower = subprocess.Popen(
        [LAKEHOUSE, "ingest", "run", *options], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert follower.stderr is not None
    watchdog = threading.Timer(300, follower.kill)
    watchdog.start()
    try:
        read_until(follower.stderr, "caught up")
        process.suspend()
        read_until(follower.stderr, f"Kafka at {own_broker[1]} does not answer")
        process.resume()
        produce(own_lab, 6)
        read_until(follower.stderr, "12 records landed")
        (jvm,) = psutil.Process(follower.pid).children()
        jvm.kill()
        _, told = follower.communicate()
        assert follower.returncode == 1
        assert "error: Spark's Java process has ended" in told
    finally:
        process.resume()
        if follower.poll() is None:
            follower.send_signal(signal.SIGINT)
            follower.communicate()
        watchdog.cancel()
    assert_exactly_once(own_lab, 12)


def read_until(stream: Any, words: str) -> None:
    for line in stream:
        if words in line:
            return
    raise AssertionError(f"it ended without {words!r}")


def test_a_registry_in_trouble_during_a_run_makes_no_dead_letter(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "REQUEST_SECONDS", 1)
    produce(lab, 9)
    answers = [(503, {}), SILENCE, (500, {}), (429, {}), (200, {"schema": json.dumps(SALE)})]
    with registry_answering(*answers, subject=f"{lab.topic}-value") as (url, asked):
        settings = lab.settings.changed(schema_registry_url=url)
        (result,) = lab.ingester(Options(wait=60), settings=settings).catch_up([lab.declaration])
    # Once more for the schema's fingerprint.
    assert len(asked) == len(answers) + 1
    assert (result.error, result.records, result.dead_letters) == (None, 9, 0)
    assert_exactly_once(lab, 9)


def test_poison_of_every_length_leaves_its_neighbours_alone(lab: Lab) -> None:
    nested: Any = "int"
    for depth in range(40):
        nested = record(f"level_{depth}", inner=nested)
    sale = record("sale", id="int", ratio="double", note="string", nested=nested)
    schema_id = lab.register(sale)
    value: Any = 7
    for _ in range(40):
        value = {"inner": value}
    good = lab.encode(schema_id, {"id": 1, "ratio": 0.5, "note": "fine", "nested": value})
    foreign = lab.encode(lab.register(record("other", id="string")), {"id": "x"})
    rng = random.Random(17)
    poison = [rng.randbytes(length) for length in range(65)] + [good[:length] for length in range(len(good))]
    poison += [b"\x00" + rng.randbytes(64), foreign]
    produced = [good]
    for value in poison:
        produced += [value, good]
    for value in produced:
        lab.produce(value)
    assert lab.land_well().records == len(produced)
    rows = lab.rows()
    assert [row["kafka_raw_value"] for row in rows] == produced
    for row in rows:
        assert (row["decode_error"] is None) == (row["kafka_raw_value"] == good)
        assert row["note"] == ("fine" if row["kafka_raw_value"] == good else None)
    assert_exactly_once(lab, len(produced))


def test_numbers_that_are_none_land_as_they_are(lab: Lab) -> None:
    schema_id = lab.register(record("sale", ratio="double", small="float"))
    numbers = [math.nan, math.inf, -math.inf, -0.0, 5e-324]
    for number in numbers:
        lab.produce(lab.encode(schema_id, {"ratio": number, "small": number}))
    assert lab.land_well().dead_letters == 0
    landed = [struct.pack("d", row["ratio"]) for row in lab.rows()]
    assert landed == [struct.pack("d", number) for number in numbers]
    assert_exactly_once(lab, len(numbers))


def test_messages_beyond_a_megabyte_land_or_are_dead_letters(lab: Lab) -> None:
    configure(lab, "max.message.bytes", "10000000")
    producer = Producer({**connections.kafka_client(lab.settings), "message.max.bytes": 10_000_000})
    schema_id = lab.register(record("sale", note="string"))
    header = len(lab.encode(schema_id, {"note": ""}))
    values = [
        lab.encode(schema_id, {"note": "x" * (size - header - 3)}) for size in (2**20 - 200, 2**20 + 1, 9 * 10**6)
    ]
    values += [b"\x01" * 3 * 10**6, lab.encode(schema_id, {"note": "small"})]
    for value in values:
        producer.produce(lab.topic, value, partition=0)
    assert producer.flush(60) == 0
    result = lab.land_well()
    assert (result.records, result.dead_letters) == (5, 1)
    assert [row["decode_error"] is None for row in lab.rows()] == [True, True, True, False, True]
    assert_exactly_once(lab, 5)


def large_records(lab: Lab, count: int) -> None:
    """Produce records of 9 MB that no codec makes smaller, over all partitions."""
    configure(lab, "max.message.bytes", "10000000")
    limits = {"message.max.bytes": 10_000_000, "queue.buffering.max.kbytes": 100_000}
    producer = Producer({**connections.kafka_client(lab.settings), **limits})
    value = lab.encode(lab.register(record("scan", image="bytes")), {"image": random.Random(9).randbytes(9_000_000)})
    for index in range(count):
        producer.produce(lab.topic, value, partition=index % 3)
        if index % 10 == 9:
            assert producer.flush(60) == 0
    assert producer.flush(60) == 0


def test_a_batch_is_bounded_by_bytes_before_and_after_the_first_file(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch, "BATCH_BYTES", 400_000)
    schema_id = lab.register(record("scan", image="bytes"))
    rng = random.Random(16)
    for index in range(60):
        lab.produce(lab.encode(schema_id, {"image": rng.randbytes(20_000)}), index % 3)
    result = lab.land_well()
    summaries = [snapshot.summary for snapshot in lab.table().snapshots()]
    assert result.batches == len(summaries) > 5
    assert all(summary is not None and int(summary["added-files-size"]) < 500_000 for summary in summaries)
    assert_exactly_once(lab, 60)


@pytest.mark.long
def test_large_records_land_in_the_default_heap(lab: Lab, models_dir: Path) -> None:
    large_records(lab, 300)
    landed = run_lakehouse("--log-level=warning", "ingest", "run", "--models", str(models_dir), timeout=600)
    assert (landed.returncode, landed.stderr) == (0, "")
    places = lab.table().scan(selected_fields=("kafka_partition", "kafka_offset")).to_arrow().to_pylist()
    assert len({tuple(place.values()) for place in places}) == len(places) == 300
    assert len(lab.table().snapshots()) > 1


@pytest.mark.long
def test_a_topic_that_ends_the_jvm_is_named_and_the_others_land(
    lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A record of 90 MB, in a heap of 512 MB, ends the JVM of a run with two other topics."""
    name, topic = lab.declaration.table, lab.topic
    others = [
        Lab(lab.settings, lab.spark, replace(lab.declaration, topic=f"{topic}{end}", table=f"{name}{end}"))
        for end in ("a", "b")
    ]
    for other in others:
        other.make_topic()
        produce(other, 6)
    configure(lab, "max.message.bytes", "95000000")
    producer = Producer({**connections.kafka_client(lab.settings), "message.max.bytes": 95_000_000})
    schema_id = lab.register(record("scan", image="bytes"))
    producer.produce(lab.topic, lab.encode(schema_id, {"image": random.Random(9).randbytes(90_000_000)}), partition=0)
    assert producer.flush(120) == 0
    for number, one in enumerate([others[0], lab, others[1]]):
        file = declared_in(tmp_path, one.declaration) / "_lab__sources.yml"
        file.rename(tmp_path / f"_lab{number}__sources.yml")
    small_heap = tmp_path / "spark.conf"
    private_files.write(small_heap, "spark.driver.memory 512m\n")
    monkeypatch.setenv("LAKEHOUSE_SPARK_CONF", str(small_heap))
    landed = run_lakehouse("ingest", "run", "--models", str(tmp_path))
    assert landed.returncode == 1, landed.stdout
    assert "Spark's Java process has ended: topics that failed are landed one by one" in landed.stderr
    assert f"error: {lab.topic}: Spark's Java process ended while this topic was landed" in landed.stderr
    assert landed.stderr.count("error: ") == 1, landed.stderr
    for other in others:
        assert_exactly_once(other, 6)


def spark_without_socket(settings: Settings) -> bool:
    """Tell whether a JVM that runs, but listens no more, counts as gone; stopping it then raises nothing."""
    spark = LazySparkSession(settings)
    gateway = spark().sparkContext._gateway
    assert gateway is not None
    gateway.shutdown()
    assert gateway.proc.poll() is None
    # The kernel may still accept a connection that the JVM never answers: only its end closes that.
    watchdog = threading.Timer(10, gateway.proc.kill)
    watchdog.start()
    gone = spark.gone()
    spark.stop()
    watchdog.cancel()
    return gone


@pytest.mark.stack
def test_a_jvm_that_has_closed_its_socket_and_not_ended_yet_is_gone(offline_settings: Settings) -> None:
    with ProcessPoolExecutor(1, get_context("spawn")) as process:
        assert process.submit(spark_without_socket, offline_settings).result(300)


@pytest.mark.long
def test_dead_letters_are_replayed_once_their_schema_is_registered_while_following(lab: Lab, models_dir: Path) -> None:
    """Those of before the start, and those that it lands itself."""

    def schema(name: str) -> dict[str, Any]:
        return record(name, id="int") | {"doc": lab.topic}

    def produce_ahead() -> int:
        probe = lab.register(schema(f"probe{lab.topic}{time.time_ns()}".replace(".", "")))
        value = lab.encode(probe, {"id": 1})
        lab.produce(b"\x00" + (probe + 1).to_bytes(4, "big") + value[5:])
        lab.flush()
        return probe + 1

    def register_late(missing: int) -> None:
        assert lab.register(schema(f"late{missing}")) == missing, "another schema was registered in between"

    missing = produce_ahead()
    assert lab.land_well().dead_letters == 1
    register_late(missing)
    follower = subprocess.Popen(
        [LAKEHOUSE, "ingest", "run", "--follow", "--every", "200ms", "--models", str(models_dir)],
        stderr=subprocess.PIPE,
        text=True,
    )
    watchdog = threading.Timer(300, follower.kill)
    watchdog.start()
    try:
        read_until(follower.stderr, "1 dead letters are decoded")
        missing = produce_ahead()
        read_until(follower.stderr, "records landed")
        register_late(missing)
        read_until(follower.stderr, "1 dead letters are decoded")
    finally:
        watchdog.cancel()
        follower.send_signal(signal.SIGINT)
        follower.communicate()
    assert [(row["decode_error"], row["id"]) for row in lab.rows()] == [(None, 1), (None, 1)]


def test_clocks_far_off_land_as_they_are(lab: Lab) -> None:
    configure(lab, "message.timestamp.after.max.ms", str(2**63 - 1))
    schema_id = lab.register(SALE)
    # librdkafka takes 0 for now, so the smallest is 1 ms; -1 is Kafka's own "no timestamp".
    stamps = (1, 253_402_300_799_999, -1)
    for stamp in stamps:
        lab.produce(lab.encode(schema_id, {"id": 1, "note": ""}), timestamp=stamp)
    assert lab.land_well().dead_letters == 0
    epoch = dt.datetime.fromtimestamp(0, dt.UTC)
    assert [(row["kafka_timestamp"] - epoch) // dt.timedelta(milliseconds=1) for row in lab.rows()] == list(stamps)
    assert_exactly_once(lab, 3)


def test_records_stamped_in_nanoseconds_cost_themselves(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    configure(lab, "message.timestamp.after.max.ms", str(2**63 - 1))
    monkeypatch.setattr(timestamp_overflow, "MOST_RECORDS", 7)
    schema_id = lab.register(SALE)
    now = time.time_ns()
    rng = random.Random(64)
    far = [*(index == 3 for index in range(6)), *(rng.random() < 0.5 for _ in range(20)), *[True] * 4, *[False] * 4]
    for index, nanoseconds in enumerate(far):
        value = lab.encode(schema_id, {"id": index, "note": ""})
        headers = [("from", b"x")] if index % 2 else None
        lab.produce(value, 0, key=b"k", timestamp=now if nanoseconds else now // 10**6, headers=headers)
        lab.produce(value, 1)
    result = lab.land_well()
    assert (result.records, result.dead_letters) == (2 * len(far), sum(far))
    rows = lab.rows()
    for row, nanoseconds in zip(rows, [*far, *[False] * len(far)], strict=True):
        if nanoseconds:
            assert row["decode_error"].startswith("timestamp_out_of_range: ")
            assert (row["kafka_timestamp"], row["id"], row["kafka_raw_value"] is None) == (None, None, False)
        else:
            assert (row["decode_error"], row["id"]) == (None, row["kafka_offset"])
            assert row["kafka_timestamp"] is not None
    assert_exactly_once(lab, 2 * len(far))
    replayed = replay.replay(lab.batch_writer(), None)
    assert (replayed.looked_at, replayed.decoded) == (sum(far), 0)


@pytest.mark.long
def test_a_catalog_that_is_locked_is_waited_for_then_named_and_nothing_is_lost(
    lab: Lab, models_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = lab.settings.catalog_uri.split("?")[0]
    impatient = lab.settings.changed(catalog_uri=f"{database}?busy_timeout=200")
    produce(lab, 6)
    with locked_catalog(lab.settings):
        (result,) = lab.ingester(settings=impatient).catch_up([lab.declaration])
    assert "is locked by another program" in str(result.error)
    with locked_catalog(lab.settings, seconds=2):
        assert lab.land_well().records == 6
    produce(lab, 6)
    monkeypatch.setenv("LAKEHOUSE_CATALOG_URI", impatient.catalog_uri)
    with locked_catalog(lab.settings):
        refused = run_lakehouse("ingest", "run", "--models", str(models_dir))
    assert refused.returncode == 1
    assert f"error: {lab.topic}: Spark failed (org.sqlite.SQLiteException). See" in refused.stderr
    assert len(lab.rows()) == 6
    assert lab.land_well().records == 6
    assert_exactly_once(lab, 12)


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


def test_a_damaged_or_missing_metadata_file_is_named(lab: Lab) -> None:
    produce(lab, 6)
    lab.land_well()
    produce(lab, 6)
    table = lab.table()
    (manifest,) = table.current_snapshot().manifests(table.io)
    files = {
        table.metadata_location: table.metadata_location,
        table.current_snapshot().manifest_list: table.current_snapshot().manifest_list,
        manifest.manifest_path: manifest.manifest_path,
    }
    for location, named in files.items():
        file = Path(location.removeprefix("file:"))
        whole = file.read_bytes()
        for damaged in (whole[: len(whole) // 2], b"", None):
            file.unlink() if damaged is None else file.write_bytes(damaged)
            result = lab.land()
            assert (result.records, str(result.error).startswith(named)) == (0, True), result.error
            assert "is missing or damaged" in str(result.error)
        file.write_bytes(whole)
    assert lab.land_well().records == 6
    assert_exactly_once(lab, 12)


@pytest.mark.parametrize("times", [1, 2])
def test_a_failure_of_spark_is_tried_once_more_and_blames_no_other_ingester(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    produce(lab, 6)
    lab.land_well()
    produce(lab, 6)
    overwrite, calls = commit.overwrite, []

    def failing(*arguments: Any) -> None:
        calls.append(arguments)
        if len(calls) <= times:
            raise Py4JError("the store is busy")
        overwrite(*arguments)

    monkeypatch.setattr(commit, "overwrite", failing)
    monkeypatch.setattr(run, "RETRY_SECONDS", 0.0)
    result = lab.land()
    assert len(calls) == 2
    if times == 1:
        assert (result.error, result.records) == (None, 6)
    else:
        assert str(result.error).startswith(f"{lab.topic}: Spark failed (Py4JError). See ")
        assert_exactly_once(lab, 6)


@pytest.mark.long
def test_a_full_disk_fails_the_run_and_little_memory_does_not(lab: Lab, models_dir: Path) -> None:
    """A limit on the size of files stands for the full disk: unlike one, it needs no rights."""
    produce(lab, 6)
    lab.land_well()
    rng = random.Random(32)
    for _ in range(20):
        lab.produce(rng.randbytes(900_000))
    lab.flush()
    command = [LAKEHOUSE, "--log-level=warning", "ingest", "run", "--models", str(models_dir)]
    limit = 8_000_000
    full = subprocess.run(
        ["sh", "-c", f'ulimit -f {limit // 512}; exec "$@"', "sh", *command],
        capture_output=True,
        text=True,
        check=False,
    )
    assert full.returncode == 1
    assert f"error: {lab.topic}: Spark failed (java.io.IOException: File too large). See" in full.stderr
    assert len(lab.rows()) == 6
    low = {**os.environ, "PYSPARK_SUBMIT_ARGS": "--driver-memory 512m pyspark-shell"}
    again = subprocess.run(command, env=low, capture_output=True, text=True, check=False)
    assert (again.returncode, again.stderr) == (0, "")
    assert_exactly_once(lab, 26)
