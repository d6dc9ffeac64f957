"""The verifier is only worth something if every planted fault is reported: lost, doubled, changed, foreign rows."""

from pathlib import Path

import pytest

from python_ingest import verify
from python_ingest.verify import verify_topic
from tests.conftest import run_lakehouse
from tests.ingest.lab import Lab, record


def landed(lab: Lab, count: int) -> None:
    schema_id = lab.register(record("sale", id="int"))
    for index in range(count):
        lab.produce(lab.encode(schema_id, {"id": index}), index % 3, key=str(index).encode())
    lab.land_well()


def test_every_planted_fault_is_reported_by_its_offset(lab: Lab, models_dir: Path) -> None:
    landed(lab, 30)
    assert verify_topic(lab.settings, lab.declaration, 10).problems == []
    at = "kafka_partition = {} and kafka_offset {}"
    lab.sql(f"delete from {{table}} where {at.format(0, 'in (2, 3, 4, 7)')}")
    lab.sql(f"insert into {{table}} select * from {{table}} where {at.format(1, '= 5')}")
    lab.sql(f"update {{table}} set kafka_raw_value = x'00' where {at.format(1, '= 6')}")
    lab.sql(f"update {{table}} set kafka_raw_key = null where {at.format(2, '= 1')}")
    lab.sql(f"update {{table}} set kafka_offset = 100 where {at.format(2, '= 9')}")
    report = verify_topic(lab.settings, lab.declaration, 10)
    assert report.problems == [
        "partition 0: offsets 2 to 4 are missing in the table",
        "partition 0: offset 7 is missing in the table",
        "partition 1: offset 5 is there 2 times",
        "partition 1: offset 6 has other bytes in the table than in the topic",
        "partition 2: offset 9 is missing in the table",
        "partition 2: offset 1 has other bytes in the table than in the topic",
        "partition 2: offset 100 is in the table, but not in the topic",
    ]
    result = run_lakehouse("ingest", "verify", lab.topic, "--models", str(models_dir))
    assert result.returncode == 1
    assert "7 problems" in result.stdout
    assert "partition 0: offsets 2 to 4 are missing in the table" in result.stdout


def test_a_vanished_partition_and_a_lost_end_are_no_lag(lab: Lab) -> None:
    landed(lab, 12)
    lab.sql("delete from {table} where kafka_partition = 1")
    lab.sql("delete from {table} where kafka_partition = 2 and kafka_offset = 3")
    assert verify_topic(lab.settings, lab.declaration, 10).problems == [
        "partition 1: offsets 0 to 3 are missing in the table",
        "partition 2: offset 3 is missing in the table",
    ]


def test_records_that_are_not_landed_yet_are_no_problem(lab: Lab) -> None:
    landed(lab, 6)
    lab.produce(b"later")
    lab.flush()
    report = verify_topic(lab.settings, lab.declaration, 10)
    assert (report.records, report.problems) == (6, [])


def test_chunks_see_what_one_pass_sees(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    landed(lab, 30)
    lab.sql("delete from {table} where kafka_partition = 0 and kafka_offset in (3, 4)")
    lab.sql("insert into {table} select * from {table} where kafka_partition = 2 and kafka_offset = 8")
    whole = verify_topic(lab.settings, lab.declaration, 10)
    assert whole.problem_count == 2
    monkeypatch.setattr(verify, "CHUNK_OFFSETS", 4)
    chunked = verify_topic(lab.settings, lab.declaration, 10)
    assert chunked.records == whole.records == 30
    assert chunked.problem_count == 3  # the gap lies across a chunk's end


def test_a_table_that_does_not_exist_is_a_problem(lab: Lab) -> None:
    report = verify_topic(lab.settings, lab.declaration, 10)
    assert report.problems == [f"there is no table {lab.declaration.identifier}"]
