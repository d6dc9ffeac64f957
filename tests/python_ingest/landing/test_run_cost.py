"""What a batch and a check without new records cost: zstd files, few requests, no compilation or memory later."""

import re
import subprocess
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from python_common.spark import java
from python_ingest.bronze.schema_state import Decoder
from python_ingest.kafka import consumer
from python_ingest.kafka.admin import Broker
from python_ingest.kafka.offset_range import OffsetRange
from python_ingest.landing import decode
from python_ingest.landing.run import Options
from tests.support.race import until
from tests.support.topic_fixture import TopicFixture, produce

# The histogram is a tool of the JDK; what runs Spark may be a plain runtime.
JCMD = Path(java.executable()).resolve().with_name("jcmd")


@pytest.mark.slow
def test_batches_after_the_first_compile_nothing(topic: TopicFixture) -> None:
    compilations = topic.spark._jvm.org.apache.spark.metrics.source.CodegenMetrics.METRIC_COMPILATION_TIME()
    produce(topic, 4)
    topic.land_well()
    before = compilations.getCount()
    produce(topic, 40)
    assert topic.land_well(Options(max_records=9, wait=10)).batches == 5
    assert compilations.getCount() == before


def test_files_are_compressed_with_zstd_and_raw_values_have_no_dictionary(topic: TopicFixture) -> None:
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


def test_a_run_without_news_reads_no_file_and_asks_the_broker_once_for_all_topics(
    topic: TopicFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
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


def test_topics_that_the_broker_has_not_are_omitted_where_all_are_described(topic: TopicFixture) -> None:
    broker = Broker(topic.settings, 10)
    assert broker.describe_all([topic.name, "missing"]) == {topic.name: broker.describe(topic.name)}
    assert broker.describe_all(["missing"]) == broker.describe_all([]) == {}


def test_the_newest_schema_is_compared_first(spark: SparkSession) -> None:
    compared = str(decode._schema_id("value", Decoder({7: "int", 300: "int", 9: "int"})))
    assert re.findall(r"THEN (\d+)", compared) == ["300", "9", "7"]


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


@pytest.mark.slow
@pytest.mark.skipif(not JCMD.exists(), reason="this Java has no jcmd")
def test_batches_leave_no_schemas_in_memory(topic: TopicFixture) -> None:
    one_by_one = Options(max_records=1, wait=10)
    produce(topic, 4)
    topic.land_well(one_by_one)
    before = schemas_in_memory(topic)
    produce(topic, 60)
    assert topic.land_well(one_by_one).batches == 60
    # Each batch parses four records: what writer and reader see, and the envelopes around them. Those of the last jobs
    # Spark keeps for some seconds.
    until(lambda: schemas_in_memory(topic) < before + 60)


def schemas_in_memory(topic: TopicFixture) -> int:
    """Count the Avro records that the JVM cannot collect: a histogram collects first."""
    pid = str(topic.spark._jvm.java.lang.ProcessHandle.current().pid())
    histogram = subprocess.run([JCMD, pid, "GC.class_histogram"], capture_output=True, text=True, check=True).stdout
    match = re.search(r"(\d+) +\d+ +org\.apache\.avro\.Schema\$RecordSchema\n", histogram)
    return int(match[1]) if match else 0
