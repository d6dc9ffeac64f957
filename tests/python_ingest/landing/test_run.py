"""A run whose producers never stop writing, and what its batches cost; test_run_kills.py has those that are killed."""

import re
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from python_common.spark import java
from python_ingest.kafka import consumer
from python_ingest.kafka.admin import Broker
from python_ingest.kafka.offset_range import OffsetRange
from python_ingest.landing.run import Options
from tests.support.race import until
from tests.support.topic_fixture import Messages, TopicFixture, produce


@dataclass
class Producing(Messages):
    """A Reporter that has something produced whenever a batch is planned."""

    produce: Callable[[], Any] = lambda: None

    def waiting(self, topic: str, offsets_left: int) -> None:
        self.produce()


def test_what_comes_while_a_run_plans_waits_for_the_next_one(topic: TopicFixture) -> None:
    """Through retries, gaps and partitions that are new, and in a topic whose turn is later."""
    later = topic.declaring(topic=f"{topic.name}.later", table=f"{topic.declaration.table}_later")
    later.make_topic()
    produce(topic, 9)
    topic.land_well()
    topic.sql("delete from {table} where kafka_partition = 1 and kafka_offset < 2")
    produce(topic, 9)
    produce(later, 5)
    added: list[int] = []

    def more() -> None:
        if not added:
            topic.add_partitions(4)
            topic.delete_records(0, 1)
        produce(replace(topic), 4, partitions=(0, 1, 2, 3))  # a producer that knows the new partition
        produce(later, 4)
        added.append(4)

    options = Options(max_records=6, wait=10, from_earliest=True, topics_at_once=1)
    ingester = topic.ingester(options, messages=Producing(produce=more))
    results = ingester.catch_up([topic.declaration, later.declaration])
    assert [(result.error, result.records, result.lag) for result in results] == [(None, 11, 0), (None, 5, 0)]
    assert len(added) > 3
    assert {row["kafka_partition"] for row in topic.rows()} == {0, 1, 2}
    for one in (topic, later):
        assert one.land_well(replace(options, max_records=1000)).records == sum(added)
        assert one.verify().issues == []


def test_files_are_zstd_and_raw_values_have_no_dictionary(topic: TopicFixture) -> None:
    # Equal ones, of which the writer would keep a dictionary.
    for _ in range(40):
        produce(topic, 1)
    topic.land_well()
    paths = [task.file.file_path.removeprefix("file:") for task in topic.table().scan().plan_files()]
    row_groups = [pq.read_metadata(path).row_group(0) for path in paths]
    columns = [row_group.column(number) for row_group in row_groups for number in range(row_group.num_columns)]
    assert {column.compression for column in columns} == {"ZSTD"}
    with_dictionary = {column.path_in_schema for column in columns if column.has_dictionary_page}
    assert "kafka_raw_key" in with_dictionary
    assert with_dictionary.isdisjoint({"kafka_offset", "kafka_raw_value"})


def test_a_run_without_news_reads_no_file_and_asks_once(topic: TopicFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    other = topic.declaring(topic=f"{topic.name}.2", table=f"{topic.name[5:]}_2")
    other.make_topic()
    for made in (topic, other):
        produce(made, 6)
        made.land_well()
        for file in made.directory.rglob("*.avro"):
            file.unlink()
    asked, ask = [], Broker._ask
    ingester = topic.ingester()
    monkeypatch.setattr(Broker, "_ask", lambda *arguments: asked.append(arguments) or ask(*arguments))
    results = ingester.catch_up([topic.declaration, other.declaration])
    assert [(result.error, result.records, result.lag) for result in results] == [(None, 0, 0)] * 2
    # Identity of the cluster, topics, first and last offsets.
    assert len(asked) == 4


def test_missing_topics_are_omitted_where_all_are_described(topic: TopicFixture) -> None:
    broker = Broker(topic.settings, 10)
    assert broker.describe_all([topic.name, "missing"]) == {topic.name: broker.describe(topic.name)}
    assert broker.describe_all(["missing"]) == broker.describe_all([]) == {}


def test_a_look_at_a_range_does_not_read_the_records_behind_it(
    topic: TopicFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic.produce(b"\x00\x00\x00\x00\x01", 0)
    for _ in range(1000):
        topic.produce(b"\x00\x00\x00\x00\x02", 0)
        topic.produce(b"\x00\x00\x00\x00\x03", 1)
    topic.flush()
    monkeypatch.setattr(consumer, "RECORDS_PER_CALL", 1)
    looked = consumer.schema_ids(topic.settings, topic.name, [OffsetRange(0, 0, 1), OffsetRange(1, 0, 1000)], 10)
    assert looked == ({1: 1, 3: 1000}, {None: 1001})


# The histogram is a tool of the JDK; what runs Spark may be a plain runtime.
JCMD = Path(java.executable()).resolve().with_name("jcmd")


@pytest.mark.slow
@pytest.mark.skipif(not JCMD.exists(), reason="this Java has no jcmd")
def test_batches_compile_nothing_and_leave_no_schemas(topic: TopicFixture) -> None:
    compilations = topic.spark._jvm.org.apache.spark.metrics.source.CodegenMetrics.METRIC_COMPILATION_TIME()
    one_by_one = Options(max_records=1, wait=10)
    produce(topic, 4)
    topic.land_well(one_by_one)
    before, compiled = schemas_in_memory(topic), compilations.getCount()
    produce(topic, 60)
    assert topic.land_well(one_by_one).batches == 60
    assert compilations.getCount() == compiled
    # Each batch parses four records: what writer and reader see, and the envelopes around them. Those of the last jobs
    # Spark keeps for some seconds.
    until(lambda: schemas_in_memory(topic) < before + 60)


def schemas_in_memory(topic: TopicFixture) -> int:
    """Count the Avro records that the JVM cannot collect: a histogram collects first."""
    pid = str(topic.spark._jvm.java.lang.ProcessHandle.current().pid())
    histogram = subprocess.run([JCMD, pid, "GC.class_histogram"], capture_output=True, text=True, check=True).stdout
    match = re.search(r"(\d+) +\d+ +org\.apache\.avro\.Schema\$RecordSchema\n", histogram)
    return int(match[1]) if match else 0
