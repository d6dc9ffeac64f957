"""Maintenance merges and deletes while others work, and no row, position or batch number is lost."""

import os
import threading
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from python_common.catalog.catalog import load_catalog
from python_common.errors import UserError
from python_common.locks import lock
from python_common.locks.lease import LeaseLostError, alone
from python_ingest.landing.run import Options
from python_ingest.maintenance.maintain import Retention, maintain_table
from tests.support.in_process import Lakehouse
from tests.support.topic_fixture import TopicFixture, assert_exactly_once, produce

AT_ONCE = Retention(timedelta(0))


@pytest.mark.parametrize(
    ("retention", "words"),
    [
        (Retention(orphans=timedelta(hours=23)), "Orphan files younger than a day may belong to a running commit"),
        (Retention(timedelta(minutes=30)), "Snapshots younger than an hour may be in use by a reader"),
    ],
)
def test_what_would_harm_running_readers_or_writers_is_refused(retention: Retention, words: str) -> None:
    with pytest.raises(UserError, match=words):
        retention.check()


def test_a_missing_table_is_an_error_though_not_named(topic: TopicFixture, ingest: Lakehouse) -> None:
    load_catalog(topic.settings, create=True)
    name = topic.declaration.identifier
    result = ingest("maintain", topic.name, "--table", "no.such")
    assert (result.returncode, result.stdout) == (1, f"{name}: no table yet\n")
    assert result.stderr == "error: There is no table no.such. Name a table as schema.table.\n"


def test_a_lease_is_asked_for_before_each_procedure(topic: TopicFixture) -> None:
    produce(topic, 30)
    topic.land_well()
    asked: list[int] = []

    def require() -> None:
        asked.append(len(topic.table().snapshots()))
        if len(asked) == 3:
            raise LeaseLostError("Another run has the lease", "Run it again")

    with pytest.raises(LeaseLostError):
        maintain_table(topic.settings, lambda: topic.spark, topic.declaration.identifier, AT_ONCE, require)
    assert len(asked) == 3
    assert len(topic.table().snapshots()) == asked[-1] >= asked[0]


@pytest.mark.slow
def test_maintenance_leaves_files_or_loses_rows(topic: TopicFixture, ingest: Lakehouse) -> None:
    produce(topic, 60)
    topic.land_well(Options(max_records=10, wait=10))
    before = topic.rows()
    dead = [topic.directory / "metadata" / "00000-dead.metadata.json", topic.directory / "data" / "dead.parquet"]
    young = topic.directory / "data" / "young.parquet"
    for file in [*dead, young]:
        file.write_bytes(b"nothing refers to this")
    old = time.time() - timedelta(days=4).total_seconds()
    for file in dead:
        os.utime(file, (old, old))
    outcome = topic.maintain(AT_ONCE)
    assert (outcome.before.data_files, outcome.after.data_files) == (18, 3)
    assert (outcome.before.small_files, outcome.after.small_files) == (18, 0)
    assert outcome.before.snapshots == 6
    assert outcome.after.manifests == 1
    assert outcome.after.data_bytes < outcome.before.data_bytes
    assert outcome.orphans_deleted == 2
    assert [file.exists() for file in [*dead, young]] == [False, False, True]
    assert topic.rows() == before
    assert "18 files" in outcome.line()
    assert_exactly_once(topic, 60)
    # What is read of a partition is in the order of its offsets.
    offsets = topic.table().scan(selected_fields=("kafka_partition", "kafka_offset")).to_arrow().to_pylist()
    assert [row["kafka_offset"] for row in offsets if row["kafka_partition"] == 1] == list(range(20))
    topic.sql("alter table {table} set tblproperties ('history.expire.max-snapshot-age-ms' = '3600000')")
    again = ingest("maintain")
    assert (again.returncode, again.stderr) == (0, "")
    assert again.stdout.startswith(f"{topic.declaration.identifier}: 3 files")


@pytest.mark.slow
def test_tables_of_dbt_lose_delete_files_and_untagged_snapshots(
    topic: TopicFixture, ingest: Lakehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic.sql("create schema if not exists lake.maintained")
    topic.sql("create table lake.maintained.people using iceberg as select 1 as id")
    topic.sql("alter table lake.maintained.people create tag `tested-2026-W46`")
    merge_on_read = "'write.delete.mode' = 'merge-on-read', 'history.expire.max-snapshot-age-ms' = '1'"
    topic.sql(
        f"create or replace table lake.maintained.people using iceberg tblproperties ({merge_on_read})"
        " as select id from range(100)"
    )
    topic.sql("delete from lake.maintained.people where id % 10 = 3")
    table = load_catalog(topic.settings).load_table("maintained.people")
    assert table.inspect.delete_files().num_rows
    with monkeypatch.context() as patch, alone(load_catalog(topic.settings), "weekly", "weekly 2020-W53"):
        patch.setattr(lock, "WAIT_SECONDS", 1.0)
        refused = ingest("maintain", "--table", "maintained.people")
    assert (refused.returncode, "has not ended within 1 s" in refused.stderr) == (1, True)
    done = ingest("maintain")
    assert done.returncode == 0, done.stderr
    maintained = table.refresh()
    assert maintained.inspect.delete_files().num_rows == 0
    assert maintained.scan().to_arrow().num_rows == 90
    tagged = maintained.refs()["tested-2026-W46"].snapshot_id
    assert {snapshot.snapshot_id for snapshot in maintained.snapshots()} == {
        maintained.current_snapshot().snapshot_id,
        tagged,
    }
    topic.sql("drop table lake.maintained.people")


@pytest.mark.slow
def test_maintenance_beside_ingester_and_reader_loses_rows(topic: TopicFixture) -> None:
    produce(topic, 60)
    topic.land_well(Options(max_records=20, wait=10))
    failures: list[Any] = []
    done = threading.Event()

    def read() -> None:
        name = f"lake.{topic.declaration.identifier}"
        while not done.is_set():
            rows, distinct = topic.spark.sql(
                f"select count(*), count(distinct kafka_partition, kafka_offset) from {name}"
            ).first()
            if rows != distinct or rows < 60:
                failures.append((rows, distinct))

    def land() -> None:
        result = topic.land(Options(max_records=30, wait=10))
        failures.extend([result.error] if result.error else [])

    produce(topic, 90)
    reader, landing = threading.Thread(target=read), threading.Thread(target=land)
    reader.start()
    landing.start()
    rounds = 0
    try:
        while landing.is_alive() or rounds < 2:
            topic.maintain(Retention(timedelta(minutes=5)))
            rounds += 1
    finally:
        done.set()
        reader.join()
        landing.join()
    assert failures == []
    assert topic.maintain(AT_ONCE).after.small_files == 0
    assert_exactly_once(topic, 150)


@pytest.mark.slow
def test_position_and_batch_numbers_outlive_their_snapshots(topic: TopicFixture) -> None:
    for _ in range(3):
        topic.produce_transactions("commit")
        topic.land_well()
    outcome = topic.maintain(AT_ONCE)
    assert (outcome.before.snapshots, outcome.before.data_files, outcome.after.data_files) == (3, 3, 1)
    assert topic.land_well().batches == 0, "the markers behind the last record are read again"
    snapshot_id = topic.table().current_snapshot().snapshot_id
    produce(topic, 3)
    topic.land_well()
    topic.sql(f"call lake.system.rollback_to_snapshot('{topic.declaration.identifier}', {snapshot_id})")
    topic.maintain(AT_ONCE)
    numbers = {snapshot.summary.get("lakehouse.batch") for snapshot in topic.table().snapshots()}
    assert "4" not in numbers
    topic.land_well()
    assert max(row["ingest_batch"] for row in topic.rows()) == 5
    assert_exactly_once(topic, 18)


@pytest.mark.slow
def test_a_damaged_file_is_left_and_the_rest_is_merged(topic: TopicFixture) -> None:
    produce(topic, 12)
    topic.land_well(Options(max_records=6, wait=10))
    damaged = Path(next(iter(topic.table().scan().plan_files())).file.file_path.removeprefix("file:"))
    content = damaged.read_bytes()
    damaged.write_bytes(content[:-8])
    damaged.with_name(f".{damaged.name}.crc").unlink(missing_ok=True)
    outcome = topic.maintain(AT_ONCE)
    assert (outcome.before.data_files, outcome.after.data_files, outcome.left) == (6, 4, 2)
    assert "2 files could not be merged: others changed them first, or one is damaged" in outcome.line()
    damaged.write_bytes(content)
    assert topic.maintain(AT_ONCE).after.data_files == 3
    assert_exactly_once(topic, 12)
