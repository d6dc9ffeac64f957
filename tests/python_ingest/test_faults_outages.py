"""A run in whose middle a service or the disk fails, or that a signal ends: it is named, and nothing is lost."""

import os
import random
import signal
import sqlite3
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest
from pyspark.sql import SparkSession

from python_common.catalog.catalog import load_catalog
from python_common.config.settings import Settings
from python_common.errors import UserError
from python_common.process import Service, free_ports
from python_common.weeks import IsoWeek
from python_dbt.project import Project
from python_dev.stack import kafka
from python_export.notify.exported import Exported
from python_export.run import Run
from python_ingest.bronze.commit import Landed
from python_ingest.declare.topics import Declaration
from python_ingest.landing.run import Options
from python_ingest.verify.compare import verify_topic
from python_ingest.verify.report import Sample
from python_jobs.weekly import steps
from tests.support.commands import LAKEHOUSE, run_lakehouse
from tests.support.kills import kill, running
from tests.support.topic_fixture import Messages, TopicFixture, assert_exactly_once, produce, record

pytestmark = pytest.mark.slow

BACKLOG = 3_000


@dataclass
class Saboteur(Messages):
    """A Reporter that does something once, when a batch is planned and not yet read."""

    before_batch: Callable[[], object] | None = None

    def waiting(self, topic: str, offsets_left: int) -> None:
        if offsets_left and self.before_batch:
            act, self.before_batch = self.before_batch, None
            act()


@pytest.fixture
def separate(
    stack: Settings, spark: SparkSession, declaration: Declaration, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Service, TopicFixture]]:
    """A broker to stop and freeze, while the stack's goes on for the other tests, and a topic of it."""
    [port] = free_ports(1)
    broker = kafka.service(tmp_path_factory.mktemp("kafka"), port)
    broker.start()
    try:
        topic = TopicFixture(stack.changed(kafka_bootstrap_servers=f"127.0.0.1:{port}"), spark, declaration)
        topic.make_topic()
        yield broker, topic
    finally:
        broker.stop()


def ingest_run(models_dir: Path, *options: str) -> AbstractContextManager[subprocess.Popen[str]]:
    """Land the topics that a directory declares until the block ends; output and log are one stream."""
    return running("ingest", "run", *options, "--models", str(models_dir), output=subprocess.PIPE)


def read_until(stream: Any, words: str) -> None:
    for line in stream:
        if words in line:
            return
    raise AssertionError(f"it ended without {words!r}")


def kill_java(run: subprocess.Popen[str]) -> str:
    """Kill the Java process of a run, and return what the run logs until it ends."""
    (java,) = psutil.Process(run.pid).children()
    java.kill()
    log, _ = run.communicate()
    assert run.returncode == 1
    return log


def test_a_broker_that_is_killed_or_frozen_is_waited_for(
    separate: tuple[Service, TopicFixture], models_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And a frozen one is reported by a run that follows, and then caught up with, until the Java process dies."""
    broker, topic = separate
    produce(topic, 30)
    topic.land_well(Options(max_records=9, wait=10))
    produce(topic, 30)

    def restart() -> None:
        kill(broker.process())
        threading.Thread(target=broker.start).start()

    result = topic.land(Options(max_records=9, wait=120), messages=Saboteur(before_batch=restart))
    assert (result.error, result.records, result.lag) == (None, 30, 0)
    assert_exactly_once(topic, 60)
    process, address = broker.process(), topic.settings.kafka_bootstrap_servers
    assert process is not None
    produce(topic, 6)
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", address)
    with ingest_run(models_dir, "--follow", "--every", "200ms", "--wait", "1s") as follower:
        try:
            read_until(follower.stdout, "caught up")
            process.suspend()
            read_until(follower.stdout, f"Kafka at {address} does not answer")
        finally:
            process.resume()
        produce(topic, 6)
        read_until(follower.stdout, "12 records landed")
        assert "error: Spark's Java process has ended" in kill_java(follower)
    assert_exactly_once(topic, 72)


def test_a_run_whose_java_process_dies_names_topic_and_remedy(topic: TopicFixture, models_dir: Path) -> None:
    produce(topic, BACKLOG)
    with ingest_run(models_dir, "--max-records", "20") as run:
        read_until(run.stdout, "records landed")
        log = kill_java(run)
    assert f"error: {topic.name}: Spark's Java process ended before this topic had landed" in log
    assert f"Run `lakehouse ingest run {topic.name}`" in log
    assert "raise spark.driver.memory" in log
    topic.land_well()
    assert_exactly_once(topic, BACKLOG)


def test_a_signal_does_not_end_a_run_or_loses_the_rest(topic: TopicFixture, models_dir: Path) -> None:
    produce(topic, BACKLOG)
    with ingest_run(models_dir, "--max-records", "20") as process:
        read_until(process.stdout, " records landed")
        process.send_signal(signal.SIGTERM)
        events, _ = process.communicate(timeout=60)
    assert process.returncode == 130
    assert all(" info: " in line for line in events.splitlines()), events
    assert len(topic.rows()) < BACKLOG
    topic.land_well()
    assert_exactly_once(topic, BACKLOG)


def test_a_run_that_is_interrupted_begins_no_other_batch(topic: TopicFixture) -> None:
    """As a weekly job's, whose process goes on to its end."""
    produce(topic, BACKLOG)

    class Interrupted(Messages):
        batches = 0

        def landed(self, topic: str, what: Landed) -> None:
            self.batches += 1
            if self.batches == 1:
                signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

    messages = Interrupted()
    with pytest.raises(KeyboardInterrupt):
        topic.ingester(Options(20, wait=10), messages=messages).catch_up([topic.declaration])
    # The time of ten batches.
    time.sleep(5)
    assert messages.batches <= 2
    topic.land_well()
    assert_exactly_once(topic, BACKLOG)


def test_a_catalog_that_is_locked_is_named_and_nothing_is_lost(
    topic: TopicFixture, models_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = topic.settings.catalog_uri.split("?")[0]
    impatient = topic.settings.changed(catalog_uri=f"{database}?busy_timeout=200")
    produce(topic, 6)
    with locked_catalog(topic.settings):
        result = topic.land(settings=impatient)
    assert "is locked by another program" in str(result.error)
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
def locked_catalog(settings: Settings) -> Iterator[None]:
    """Hold the database's write lock in another connection until the block ends."""
    path = settings.catalog_uri.removeprefix("jdbc:sqlite:").split("?")[0]
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("begin immediate")
        yield
        other.execute("rollback")


def test_a_catalog_that_spark_cannot_open_is_a_stack_trace(
    topic: TopicFixture, models_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic.produce(topic.encode(topic.register(record("sale", id="int")), {"id": 1}))
    topic.flush()
    wrong = f"{topic.settings.catalog_uri}&transaction_mode=nonsense"
    monkeypatch.setenv("LAKEHOUSE_CATALOG_URI", wrong)
    result = run_lakehouse("ingest", "run", "--models", str(models_dir))
    assert result.returncode == 1
    assert result.stderr.startswith(f"error: Spark cannot open the catalog at {wrong} (")
    assert result.stderr.count("\n") == 1, result.stderr


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


def test_an_unreachable_registry_changes_the_topics_table(
    topic: TopicFixture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    schema_id = topic.register(record("sale", id="int"))
    topic.produce(topic.encode(schema_id, {"id": 1}))
    away = topic.settings.changed(schema_registry_url="http://127.0.0.1:1")
    result = topic.land(Options(wait=3), settings=away)
    assert "schema registry" in str(result.error)
    assert (result.records, result.dead_letters) == (0, 0)
    assert topic.land_well().dead_letters == 0
    topic.produce(topic.encode(schema_id, {"id": 2}))
    known = topic.land(Options(wait=3), settings=away)
    assert (known.error, known.records, known.dead_letters) == (None, 1, 0)

    # The check of columns fails, and no week is held up.
    monkeypatch.setattr(steps, "WAIT_SECONDS", 1.0)
    with pytest.raises(UserError, match=r"The schema registry at .* does not answer"):
        verify_topic(away, topic.declaration, 1, decoded=True)
    week = IsoWeek.parse("2026-W46")
    run = Run(away, load_catalog(away), Project(tmp_path, {}), Exported(week), [week])
    report = steps._verified(run, topic.declaration, Sample(100, 1))
    assert (report.good, report.records, report.decoded) == (True, 2, 0)
    warning = f"{topic.name}: columns were not compared with their bytes: The schema registry at "
    assert caplog.messages[-1].startswith(warning)
