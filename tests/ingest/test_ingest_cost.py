"""What a batch costs a process that has landed others before: no compilation, no memory."""

import re

from python_ingest.run import Options
from tests.ingest.lab import Lab, produce


def test_batches_after_the_first_compile_nothing(lab: Lab) -> None:
    compilations = lab.spark._jvm.org.apache.spark.metrics.source.CodegenMetrics.METRIC_COMPILATION_TIME()
    produce(lab, 4)
    lab.land_well()
    before = compilations.getCount()
    produce(lab, 40)
    assert lab.land_well(Options(max_records=9, wait=10)).batches == 5
    assert compilations.getCount() == before


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
    gateway = lab.spark.sparkContext._gateway
    java = gateway.jvm.java
    arguments = gateway.new_array(java.lang.Object, 1)
    arguments[0] = gateway.new_array(java.lang.String, 0)
    signature = gateway.new_array(java.lang.String, 1)
    signature[0] = "[Ljava.lang.String;"
    command = gateway.jvm.javax.management.ObjectName("com.sun.management:type=DiagnosticCommand")
    beans = java.lang.management.ManagementFactory.getPlatformMBeanServer()
    histogram = beans.invoke(command, "gcClassHistogram", arguments, signature)
    found = re.search(r"(\d+) +\d+ +org\.apache\.avro\.Schema\$RecordSchema\b", histogram)
    return int(found[1]) if found else 0
