"""What verify sees of a compacted topic, and of one that it reads in pieces."""

import time

import pytest
from pyspark.sql import SparkSession

from python_common.config.settings import Settings
from python_ingest.declare.topics import Declaration
from python_ingest.verify import compare, topic_log
from python_ingest.verify.report import Sample
from tests.support.topic_fixture import TopicFixture, produce

pytestmark = pytest.mark.slow


@pytest.fixture
def compacted(services: Settings, spark: SparkSession, declaration: Declaration) -> TopicFixture:
    """A topic that has one partition, and is compacted as soon as the broker gets to it."""
    topic = TopicFixture(services, spark, declaration)
    topic.make_topic(1, cleanup_policy="compact", segment_ms="100", min_cleanable_dirty_ratio="0.01")
    return topic


def test_rows_of_records_that_compaction_removed_have_expired(compacted: TopicFixture) -> None:
    for key in (b"a", b"b", b"a"):
        compacted.produce(b"x", 0, key=key)
    compacted.land_well()
    log = topic_log.TopicLog(compacted.settings, compacted.name, 10)
    for _ in range(120):
        # A segment is compacted once a record comes after it.
        compacted.produce(b"x", 0, key=b"c")
        [[*_, records]] = log.records(0, 0, 3)
        if records["kafka_offset"].to_pylist() == [1, 2]:
            break
        time.sleep(0.5)
    log.close()
    report = compacted.verify()
    assert (report.rows, report.expired, report.issues) == (3, 1, []), report


def test_pieces_and_chunks_see_what_one_pass_sees(topic: TopicFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    produce(topic, 30)
    topic.land_well()
    topic.sql("delete from {table} where kafka_partition = 0 and kafka_offset in (3, 4)")
    topic.sql("insert into {table} select * from {table} where kafka_partition = 2 and kafka_offset = 8")
    one_pass = topic.verify()
    assert one_pass.issue_count == 3
    monkeypatch.setattr(topic_log, "PIECE_BYTES", 1)
    monkeypatch.setattr(topic_log, "RECORDS_PER_CALL", 3)
    assert topic.verify() == one_pass
    monkeypatch.setattr(compare, "CHUNK_OFFSETS", 4)
    everything = topic.verify(Sample(100, 1))
    # The gap lies across a chunk's end.
    assert (everything.records, everything.issue_count) == (30, 4)
