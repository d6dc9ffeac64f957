"""What a batch costs: zstd files, and after others in the same process no compilation and no memory."""

import re
import subprocess
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from python_common.spark import java
from python_ingest.kafka import consumer
from python_ingest.kafka.offset_range import OffsetRange
from python_ingest.landing.run import Options
from tests.support.topic_fixture import TopicFixture, produce

# The histogram is a tool of the JDK; what runs Spark may be a plain runtime.
JCMD = Path(java.executable()).resolve().with_name("jcmd")


def test_batches_after_the_first_compile_nothing(topic: TopicFixture) -> None:
    compilations = topic.spark._jvm.org.apache.spark.metrics.source.CodegenMetrics.METRIC_COMPILATION_TIME()
    produce(topic, 4)
    topic.land_well()
    before = compilations.getCount()
    produce(topic, 40)
    assert topic.land_well(Options(max_records=9, wait=10)).batches == 5
    assert compilations.getCount() == before


def test_files_are_compressed_with_zstd(topic: TopicFixture) -> None:
    produce(topic, 4)
    topic.land_well()
    paths = [task.file.file_path.removeprefix("file:") for task in topic.table().scan().plan_files()]
    columns = [pq.read_metadata(path).row_group(0).column(0).compression for path in paths]
    assert columns
    assert set(columns) == {"ZSTD"}


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


@pytest.mark.long
@pytest.mark.skipif(not JCMD.exists(), reason="this Java has no jcmd")
def test_batches_leave_no_schemas_in_memory(topic: TopicFixture) -> None:
    produce(topic, 4)
    one_by_one = Options(max_records=1, wait=10)
    topic.land_well(one_by_one)
    before = schemas_in_memory(topic)
    produce(topic, 20)
    assert topic.land_well(one_by_one).batches == 20
    # Each batch parses four records: what writer and reader see, and the envelopes around them.
    assert schemas_in_memory(topic) < before + 40


def schemas_in_memory(topic: TopicFixture) -> int:
    """Count the Avro records that the JVM cannot collect: a histogram collects first."""
    pid = str(topic.spark._jvm.java.lang.ProcessHandle.current().pid())
    histogram = subprocess.run([JCMD, pid, "GC.class_histogram"], capture_output=True, text=True, check=True).stdout
    match = re.search(r"(\d+) +\d+ +org\.apache\.avro\.Schema\$RecordSchema\n", histogram)
    return int(match[1]) if match else 0
