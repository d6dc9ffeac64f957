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
from tests.support.lab import Lab, produce

# The histogram is a tool of the JDK; what runs Spark may be a plain runtime.
JCMD = Path(java.executable()).resolve().with_name("jcmd")


def test_batches_after_the_first_compile_nothing(lab: Lab) -> None:
    compilations = lab.spark._jvm.org.apache.spark.metrics.source.CodegenMetrics.METRIC_COMPILATION_TIME()
    produce(lab, 4)
    lab.land_well()
    before = compilations.getCount()
    produce(lab, 40)
    assert lab.land_well(Options(max_records=9, wait=10)).batches == 5
    assert compilations.getCount() == before


def test_files_are_compressed_with_zstd(lab: Lab) -> None:
    produce(lab, 4)
    lab.land_well()
    paths = [task.file.file_path.removeprefix("file:") for task in lab.table().scan().plan_files()]
    columns = [pq.read_metadata(path).row_group(0).column(0).compression for path in paths]
    assert columns
    assert set(columns) == {"ZSTD"}


def test_a_look_at_a_range_does_not_read_the_records_behind_it(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    lab.produce(b"\x00\x00\x00\x00\x01", 0)
    for _ in range(1000):
        lab.produce(b"\x00\x00\x00\x00\x02", 0)
        lab.produce(b"\x00\x00\x00\x00\x03", 1)
    lab.flush()
    monkeypatch.setattr(consumer, "RECORDS_PER_CALL", 1)
    looked = consumer.schema_ids(lab.settings, lab.topic, [OffsetRange(0, 0, 1), OffsetRange(1, 0, 1000)], 10)
    assert looked == ({1: 1, 3: 1000}, {None: 1001})


@pytest.mark.long
@pytest.mark.skipif(not JCMD.exists(), reason="this Java has no jcmd")
def test_batches_leave_no_schemas_in_memory(lab: Lab) -> None:
    produce(lab, 4)
    one_by_one = Options(max_records=1, wait=10)
    lab.land_well(one_by_one)
    before = schemas_in_memory(lab)
    produce(lab, 20)
    assert lab.land_well(one_by_one).batches == 20
    # Each batch parses four records: what writer and reader see, and the envelopes around them.
    assert schemas_in_memory(lab) < before + 40


def schemas_in_memory(lab: Lab) -> int:
    """Count the Avro records that the JVM cannot collect: a histogram collects first."""
    pid = str(lab.spark._jvm.java.lang.ProcessHandle.current().pid())
    histogram = subprocess.run([JCMD, pid, "GC.class_histogram"], capture_output=True, text=True, check=True).stdout
    found = re.search(r"(\d+) +\d+ +org\.apache\.avro\.Schema\$RecordSchema\n", histogram)
    return int(found[1]) if found else 0
