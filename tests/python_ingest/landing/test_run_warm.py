"""What batches after the first cost: they compile nothing, and leave nothing in memory."""

import re
import subprocess
from pathlib import Path

import pytest

from python_common.spark import java
from python_ingest.landing.run import Options
from tests.support.race import until
from tests.support.topic_fixture import TopicFixture, produce

# The histogram is a tool of the JDK; what runs Spark may be a plain runtime.
JCMD = Path(java.executable()).resolve().with_name("jcmd")
pytestmark = [pytest.mark.slow, pytest.mark.skipif(not JCMD.exists(), reason="this Java has no jcmd")]


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
