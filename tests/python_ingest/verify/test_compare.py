"""The verifier is only worth something if every planted fault is reported: lost, doubled, changed, foreign, damaged."""

import ctypes
import json
import time
from dataclasses import replace
from types import SimpleNamespace
from weakref import WeakKeyDictionary

import pytest
from pyiceberg.io import InputFile
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyspark.sql import SparkSession

from python_common.config.settings import Settings
from python_ingest.declare.topics import Declaration
from python_ingest.kafka import consumer
from python_ingest.kafka.message import headers_of
from python_ingest.landing.run import Options
from python_ingest.verify import compare, topic_log
from python_ingest.verify.report import Report, Sample
from tests.support.in_process import Lakehouse
from tests.support.topic_fixture import TopicFixture, produce, record

AT = "kafka_partition = {} and kafka_offset {}"


def landed(topic: TopicFixture, count: int, options: Options | None = None) -> None:
    schema_id = topic.register(record("sale", id="int"))
    for index in range(count):
        headers = [("trace", b"\x01"), ("empty", None), ("trace", b"")] if index % 2 else None
        topic.produce(topic.encode(schema_id, {"id": index}), index % 3, key=str(index).encode(), headers=headers)
    topic.land_well(options)


def change(topic: TopicFixture, *changes: tuple[str, str, str]) -> None:
    """Set columns to other values in SQL where a condition holds, in one commit."""
    values = (f"{column} = if({where}, {value}, {column})" for column, value, where in changes)
    topic.sql(f"update {{table}} set {', '.join(values)}")


def test_every_planted_fault_is_reported_by_its_offset(topic: TopicFixture, ingest: Lakehouse) -> None:
    landed(topic, 30)
    assert topic.verify() == Report(topic.name, topic.declaration.identifier, offsets=30, rows=30, records=30)
    topic.sql(f"delete from {{table}} where {AT.format(0, 'in (2, 3, 4, 7)')}")
    topic.sql(f"insert into {{table}} select * from {{table}} where {AT.format(1, '= 5')}")
    change(
        topic,
        ("kafka_raw_value", "x'00'", AT.format(1, "in (6, 7)")),
        ("kafka_raw_key", "null", AT.format(2, "= 1")),
        ("kafka_timestamp", "kafka_timestamp + interval 1 millisecond", AT.format(2, "= 2")),
        ("kafka_timestamp_type", "1", AT.format(2, "= 3")),
        ("kafka_headers", "array(named_struct('key', 'trace', 'value', x'01'))", AT.format(2, "= 4")),
        ("kafka_offset", "100", AT.format(2, "= 9")),
    )
    report = topic.verify()
    assert report.issues == [
        "partition 0: offsets 2 to 4: missing in the table",
        "partition 0: offset 7: missing in the table",
        "partition 1: offset 5: more than once in the table",
        "partition 1: offsets 6 to 7: another kafka_raw_value than in the topic",
        "partition 2: offset 9: missing in the table",
        "partition 2: offset 100: in the table, but not in the topic",
        "partition 2: offset 2: another kafka_timestamp than in the topic",
        "partition 2: offset 3: another kafka_timestamp_type than in the topic",
        "partition 2: offset 1: another kafka_raw_key than in the topic",
        "partition 2: offset 4: another kafka_headers than in the topic",
    ]
    assert report.issue_count == 11
    change(
        topic,
        ("kafka_partition", "9", AT.format(0, "= 9")),
        ("kafka_topic", "'other'", AT.format(0, "= 8")),
        ("ingest_batch", "null", AT.format(2, "= 0")),
    )
    result = ingest("verify", topic.name, "--json")
    assert (result.returncode, result.stderr) == (1, "")
    (document,) = json.loads(result.stdout)
    assert document["issues"][:4] == [
        "1 rows name no offset, or another topic",
        "1 rows have no batch number, or one that was never assigned",
        "partition 0: offsets 2 to 4: missing in the table",
        "partition 0: offsets 7 to 9: missing in the table",
    ]
    # Duplicates and partitions come after the ten that are named, but they are counted.
    assert document["issue_count"] == 14


def test_a_vanished_partition_and_a_lost_end_are_no_lag(topic: TopicFixture) -> None:
    landed(topic, 12)
    topic.sql("delete from {table} where kafka_partition = 1")
    topic.sql("delete from {table} where kafka_partition = 2 and kafka_offset = 3")
    assert topic.verify().issues == [
        "partition 1: offsets 0 to 3: missing in the table",
        "partition 2: offset 3: missing in the table",
        "batch 1 landed 12 rows, and 7 are there",
    ]
    topic.sql(f"delete from {{table}} where {AT.format(0, 'in (1, 2)')}")
    topic.sql("alter table {table} set tblproperties ('lakehouse.accepted-gap.0.1' = '3')")
    report = topic.verify()
    assert (report.accepted, report.empty, report.issue_count) == (2, 0, 3)
    assert report.issues[-1] == "batch 1 landed 12 rows, and 5 are there"


def test_a_sample_misses_a_gap_or_a_double(
    topic: TopicFixture, monkeypatch: pytest.MonkeyPatch, ingest: Lakehouse
) -> None:
    landed(topic, 300)
    monkeypatch.setattr(compare, "CHUNK_OFFSETS", 10)
    clean = topic.verify(Sample(10, 1))
    assert (clean.records, clean.rows, clean.issues) == (30, 300, [])
    assert clean.line() == f"{topic.name}: 30 records compared, 10.0% of 300 rows (seed 1): all exactly once"
    assert topic.verify(Sample(10, 1)) == clean
    topic.sql(f"insert into {{table}} select * from {{table}} where {AT.format(0, '% 10 = 5')}")
    topic.sql(f"delete from {{table}} where {AT.format(1, '% 10 = 5')}")
    report = topic.verify(Sample(1, 1))
    assert report.issue_count == 20
    assert report.issues[0] == "partition 0: offset 5: more than once in the table"
    assert report.records == 120  # a chunk in partitions 0 and 2, and all chunks of partition 1, for their gaps
    printed = ingest("verify", "--sample", "0.5", "--seed", "7")
    assert printed.returncode == 1
    assert "(seed 7): 20 issues" in printed.stdout


def test_offsets_without_a_record_are_counted_and_no_issue(topic: TopicFixture) -> None:
    topic.produce_transactions("commit", "abort", "commit", "abort")
    topic.land_well()
    for report in (topic.verify(), topic.verify(Sample(1, 1))):
        assert (report.offsets, report.records, report.rows, report.empty, report.issues) == (24, 10, 10, 14, [])
        assert "14 offsets without a record: all exactly once" in report.line()


def test_rows_beyond_retention_are_not_checked(topic: TopicFixture) -> None:
    landed(topic, 30)
    topic.delete_records(0, 6)
    assert topic.verify().line() == (
        f"{topic.name}: 24 records compared, 6 rows that the broker no longer has: all exactly once"
    )
    topic.sql(f"delete from {{table}} where {AT.format(0, 'in (1, 2)')}")
    topic.sql(f"insert into {{table}} select * from {{table}} where {AT.format(0, '= 4')}")
    report = topic.verify()
    assert report.issues == [
        "partition 0: offset 4: more than once in the table",
        "batch 1 landed 30 rows, and 29 are there",
    ]
    assert report.notes == ["partition 0: offsets 1 to 2: no row, and the broker no longer has them"]
    assert (report.unconfirmed, report.expired) == (2, 5)


def test_a_partition_that_no_batch_has_read_is_noted(topic: TopicFixture) -> None:
    landed(topic, 6)
    topic.add_partitions(5)
    assert topic.verify().notes == []
    producing = replace(topic)  # a producer that knows the new partitions
    for partition in (0, 3):
        producing.produce(b"later", partition)
    producing.flush()
    report = topic.verify()
    assert (report.records, report.issues) == (6, [])
    assert report.notes == ["partition 3: has records, and no batch has read it"]


def test_credentials_are_asked_for_again_in_every_partition(
    topic: TopicFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    landed(topic, 6)
    opened: WeakKeyDictionary[PyArrowFileIO, int] = WeakKeyDictionary()
    new_input = PyArrowFileIO.new_input

    def expiring(self: PyArrowFileIO, location: str) -> InputFile:
        opened[self] = opened.get(self, 0) + location.endswith(".parquet")
        if opened[self] > 3:
            raise PermissionError("ExpiredToken")
        return new_input(self, location)

    monkeypatch.setattr(PyArrowFileIO, "new_input", expiring)
    report = topic.verify(decoded=True)
    assert (report.records, report.decoded, report.issues) == (6, 6, [])


def test_a_record_without_a_table_is_no_issue(topic: TopicFixture) -> None:
    assert topic.verify() == Report(topic.name, topic.declaration.identifier)
    topic.produce(b"first", 1)
    topic.flush()
    assert topic.verify().issues == [f"there is no table {topic.declaration.identifier}"]


def test_verify_compares_headers_that_the_client_lacks() -> None:
    """As it does for a key that is not UTF-8: to look at such a place would end the process."""
    new_list = ctypes.pythonapi.PyList_New
    new_list.restype, new_list.argtypes = ctypes.py_object, (ctypes.c_ssize_t,)
    assert headers_of(SimpleNamespace(headers=lambda: new_list(2))) is None
    assert headers_of(SimpleNamespace(headers=lambda: [("a", b"x"), ("b", None)])) == [
        {"key": "a", "value": b"x"},
        {"key": "b", "value": None},
    ]
    assert headers_of(SimpleNamespace(headers=lambda: None)) == []


@pytest.mark.slow
def test_rows_of_records_that_compaction_removed_have_expired(
    services: Settings, spark: SparkSession, declaration: Declaration
) -> None:
    compacted = TopicFixture(services, spark, declaration)
    compacted.make_topic(1, cleanup_policy="compact", segment_ms="100", min_cleanable_dirty_ratio="0.01")
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


@pytest.mark.slow
def test_pieces_and_chunks_see_what_one_pass_sees(topic: TopicFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    produce(topic, 30)
    topic.land_well()
    topic.sql("delete from {table} where kafka_partition = 0 and kafka_offset in (3, 4)")
    topic.sql("insert into {table} select * from {table} where kafka_partition = 2 and kafka_offset = 8")
    one_pass = topic.verify()
    assert one_pass.issue_count == 3
    # Three records each: the missing ones are in one piece.
    monkeypatch.setattr(topic_log, "PIECE_BYTES", 3 * topic_log.MESSAGE_BYTES)
    monkeypatch.setattr(consumer, "RECORDS_PER_CALL", 3)
    assert topic.verify() == one_pass
    monkeypatch.setattr(compare, "CHUNK_OFFSETS", 4)
    everything = topic.verify(Sample(100, 1))
    # The gap lies across a chunk's end.
    assert (everything.records, everything.issue_count) == (30, 4)
