"""Topics that producers never stop writing to: a run ends, following starves no topic, and a signal ends that well."""

import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from pyspark.sql import SparkSession

from python_common.config.settings import Settings
from python_ingest.declare.topics import Declaration
from python_ingest.kafka.admin import Broker
from python_ingest.landing.run import Options
from python_ingest.verify.compare import verify_topic
from tests.support.commands import LAKEHOUSE
from tests.support.race import until
from tests.support.topic_fixture import SALE, Messages, TopicFixture, declared_in, new_declaration, produce

TOPICS = 6
PER_SECOND = 200
BACKLOG = 3_000


@dataclass
class Busy:
    """Six topics with producers that go on until the test ends; the first has a backlog."""

    topics: list[TopicFixture]

    @property
    def declarations(self) -> list[Declaration]:
        return [topic.declaration for topic in self.topics]

    def ends(self) -> list[int]:
        broker = Broker(self.topics[0].settings, 10)
        return [sum(broker.describe(topic.name).end.values()) for topic in self.topics]

    def landed(self) -> list[int]:
        return [topic.table().scan().to_arrow().num_rows for topic in self.topics]


@pytest.fixture(scope="module")
def busy(services: Settings, spark: SparkSession) -> Iterator[Busy]:
    topics = []
    for _ in range(TOPICS):
        topic = TopicFixture(services, spark, new_declaration())
        topic.make_topic(1)
        topics.append(topic)
    values = {topic.name: topic.encode(topic.register(SALE), {"id": 1, "note": "n" * 20}) for topic in topics}
    for _ in range(BACKLOG):
        topics[0].produce(values[topics[0].name])
    topics[0].flush()
    stopped = threading.Event()

    def go_on() -> None:
        due = time.monotonic()
        while not stopped.is_set():
            for topic in topics:
                for _ in range(PER_SECOND // 10):
                    topic.produce(values[topic.name])
                topic.producer.poll(0)
            due += 0.1
            time.sleep(max(0.0, due - time.monotonic()))

    producing = threading.Thread(target=go_on)
    producing.start()
    # So that a run that waits for the producers to stop fails here, and not by the limit of a test.
    watchdog = threading.Timer(900, stopped.set)
    watchdog.start()
    try:
        yield Busy(topics)
        assert not stopped.is_set(), "a run went on until the producers had stopped"
    finally:
        watchdog.cancel()
        stopped.set()
        producing.join()
        for topic in topics:
            topic.flush()


def assert_each_once(busy: Busy) -> None:
    for topic in busy.topics:
        assert verify_topic(topic.settings, topic.declaration, 30).issues == []


def test_a_run_on_live_topics_ends_with_what_was_there_at_its_start(busy: Busy) -> None:
    before = busy.ends()
    results = busy.topics[0].ingester(Options(max_records=1_000, wait=30)).catch_up(busy.declarations)
    assert [(result.error, result.lag) for result in results] == [(None, 0)] * TOPICS
    landed = busy.landed()
    assert all(count >= end for count, end in zip(landed, before, strict=True))
    # Each has grown since, and the run did not follow.
    assert all(end > count for count, end in zip(landed, busy.ends(), strict=True))


@pytest.mark.slow
def test_following_starves_no_live_topic_writes_metrics_and_ends_after_its_batches(busy: Busy, tmp_path: Path) -> None:
    declared_in(tmp_path, *busy.declarations)
    metrics = tmp_path / "ingest.prom"
    first = busy.topics[0]
    for _ in range(BACKLOG):
        first.produce(b"no schema")
    first.flush()
    options = ["--every", "2s", "--max-records", "500", "--topics-at-once", "2", "--metrics-file", str(metrics)]
    command = [LAKEHOUSE, "--log-level=warning", "ingest", "run", "--follow", *options, "--models", str(tmp_path)]
    # Its tables are there, also where the tests before do not run.
    first.ingester(Options(wait=30)).catch_up(busy.declarations)
    wanted = {topic: number + 3 for topic, number in batches(busy).items()}
    follower = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    output: list[str] = []
    reader = threading.Thread(target=lambda: output.extend(follower.communicate()))
    reader.start()
    try:
        until(
            lambda: follower.poll() is not None or all(last_batches(metrics).get(t, 0) >= n for t, n in wanted.items()),
            seconds=240,
        )
        assert follower.poll() is None
    finally:
        follower.send_signal(signal.SIGTERM)
        reader.join(120)
    assert follower.returncode == 0, output
    assert all(f"warning: {first.name}: " in line for line in output[1].splitlines())
    assert_each_once(busy)


def batches(busy: Busy) -> dict[str, int]:
    return {
        topic.name: int(topic.table().current_snapshot().summary["lakehouse.batch"])  # type: ignore[index,union-attr]
        for topic in busy.topics
    }


def last_batches(metrics: Path) -> dict[str, float]:
    if not metrics.exists():
        return {}
    families = {family.name: family for family in text_string_to_metric_families(metrics.read_text())}
    family = families.get("lakehouse_ingest_last_batch")
    return {sample.labels["topic"]: sample.value for sample in family.samples} if family else {}


@dataclass
class Producing(Messages):
    """A Reporter that has something produced whenever a batch is planned."""

    produce: Callable[[], Any] = lambda: None

    def waiting(self, topic: str, offsets_left: int) -> None:
        self.produce()


@pytest.mark.slow
def test_what_comes_while_a_run_plans_again_waits_for_the_next_one(topic: TopicFixture) -> None:
    """Through retries, gaps and partitions that are new."""
    produce(topic, 9)
    topic.land_well(Options(max_records=3, wait=10))
    topic.sql("delete from {table} where kafka_partition = 1 and kafka_offset < 2")
    produce(topic, 9)
    added: list[int] = []

    def more() -> None:
        if not added:
            topic.add_partitions(4)
            topic.delete_records(0, 1)
        produce(replace(topic), 4, partitions=(0, 1, 2, 3))  # a producer that knows the new partition
        added.append(4)

    options = Options(max_records=4, wait=10, from_earliest=True)
    result = topic.land(options, messages=Producing(produce=more))
    assert (result.error, result.records, result.lag) == (None, 11, 0)
    assert len(added) > 3
    assert {row["kafka_partition"] for row in topic.rows()} == {0, 1, 2}
    assert topic.land_well(replace(options, max_records=1000)).records == sum(added)
    assert topic.verify().issues == []
