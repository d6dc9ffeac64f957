"""A change that other commits come before is done again, so many times."""

import random
import time
from collections.abc import Iterator
from datetime import UTC, datetime, tzinfo
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pyarrow as pa
import pyiceberg.table.update
import pytest
from pyiceberg.exceptions import CommitFailedException, NoSuchTableError
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil, TableMetadataV2
from pyiceberg.types import LongType

from python_common.catalog import commits
from python_common.catalog.catalog import load_catalog
from python_common.catalog.commits import CommitConflict, translate_commit_errors, until_committed
from python_common.config.settings import Settings
from python_common.errors import UserError
from python_ingest.bronze.positions import Position
from python_ingest.bronze.rewrite import REPLAY, replace_rows
from python_ingest.declare.topics import Declaration
from python_ingest.kafka.admin import TopicState
from python_ingest.landing.batch import BatchPlan, BatchWriter
from python_ingest.maintenance.maintain import Retention, maintain_table


def test_only_a_conflict_is_tried_again() -> None:
    outcomes = iter([CommitFailedException("stale"), CommitConflict("stale"), NoSuchTableError(), "done"])

    def change() -> str:
        outcome = next(outcomes)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    with pytest.raises(NoSuchTableError):
        until_committed(change, "It was not changed", "Wait")
    assert until_committed(change, "It was not changed", "Wait") == "done"


@pytest.mark.parametrize(("attempts", "tries"), [((), 5), ((3,), 3)])
def test_a_change_is_tried_so_often(attempts: tuple[int, ...], tries: int) -> None:
    done = []

    def change() -> None:
        done.append(1)
        with translate_commit_errors():
            raise CommitFailedException

    with pytest.raises(UserError, match=f"It was not changed, {tries} times in a row"):
        until_committed(change, "It was not changed", "Wait", *attempts)
    assert len(done) == tries


@pytest.fixture
def table(offline_settings: Settings) -> Iterator[Table]:
    catalog = load_catalog(offline_settings, create=True)
    catalog.create_namespace("bronze")
    properties = {"commit.retry.num-retries": "0", "write.metadata.previous-versions-max": "3"}
    yield catalog.create_table("bronze.events", pa.schema([("id", pa.int64())]), properties=properties)


def test_a_commit_copies_the_metadata_a_few_times(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = pa.table({"id": [1]})
    table.append(rows)
    copied = []
    copy = TableMetadataV2.model_copy

    def counted(metadata: TableMetadataV2, **options: Any) -> TableMetadataV2:
        copied.append(options.get("deep", False))
        return copy(metadata, **options)

    monkeypatch.setattr(TableMetadataV2, "model_copy", counted)
    with table.transaction() as transaction:
        transaction.overwrite(rows)
        assert transaction.table_metadata.current_snapshot_id == transaction.table_metadata.snapshots[-1].snapshot_id
    # Before the two snapshots, after each, and after the commit; without a cache 46.
    assert sum(copied) == 4
    assert len(table.snapshots()) == len(table.refresh().snapshots()) == 3


def test_a_repeated_commit_is_made_of_what_another_committed(offline_settings: Settings) -> None:
    catalog = load_catalog(offline_settings, create=True)
    catalog.create_namespace("ops")
    catalog.create_table("ops.events", pa.schema([("id", pa.int64())]))
    with catalog.load_table("ops.events").transaction() as transaction:
        transaction.append(pa.table({"id": [1]}))
        assert len(transaction.table_metadata.snapshots) == 1
        catalog.load_table("ops.events").append(pa.table({"id": [2]}))
    table = catalog.load_table("ops.events")
    assert sorted(table.scan().to_arrow()["id"].to_pylist()) == [1, 2]
    assert len(table.snapshots()) == 2


class Clock:
    """The clock of this process, which only the test and sleeping move."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.now, self.slept = 1_800_000_000.0, 0.0
        clock = self

        class Time(datetime):
            @classmethod
            def now(cls, _: tzinfo | None = None) -> datetime:  # type: ignore[override]
                return datetime.fromtimestamp(clock.now, UTC)

        patch.setattr(time, "time", lambda: clock.now)
        # Not for all: other threads of this process sleep, too.
        patch.setattr(commits, "time", SimpleNamespace(time=lambda: clock.now, sleep=self.sleep))
        patch.setattr(pyiceberg.table.update, "datetime", Time)

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.slept += seconds


def assert_java_reads(metadata: TableMetadata) -> None:
    """See what Iceberg's Java checks of the times in metadata before it reads it."""
    for log in (metadata.snapshot_log, metadata.metadata_log):
        stamps = [entry.timestamp_ms for entry in log] + [metadata.last_updated_ms]
        assert all(later - earlier >= -60_000 for earlier, later in pairwise(stamps)), stamps


def commit_in_any_way(table: Table, rng: random.Random) -> None:
    """Commit rows, a property or a column, or two of them at once, as the ingester does."""
    rows = pa.table({"id": [rng.randrange(9)]})
    with translate_commit_errors(), table.transaction() as transaction:
        for kind in rng.sample(("rows", "property", "column"), rng.choice((1, 2))):
            if kind == "rows":
                rng.choice((transaction.append, transaction.overwrite))(rows)
            elif kind == "property":
                transaction.set_properties({"lakehouse.read": str(rng.random())})
            else:
                with transaction.update_schema() as update:
                    update.add_column(f"added_{rng.randrange(10**9)}", LongType())


def test_no_clock_makes_a_commit_that_java_refuses(
    table: Table, random_seed: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    rng = random.Random(random_seed)
    clock = Clock(monkeypatch)
    refused = 0
    for _ in range(30):
        clock.now += rng.choice((1, 1, 30, -30, -59, -61, -90, -110, -300, 90, 300)) + rng.random()
        slept, at = clock.slept, clock.now
        base = table.refresh().metadata
        last = max([base.last_updated_ms, *(entry.timestamp_ms for entry in base.snapshot_log[-1:])]) / 1000
        try:
            until_committed(lambda: commit_in_any_way(table.refresh(), rng), "It was not changed", "Wait")
        except UserError as error:
            refused += 1
            assert last - at > commits.TOLERATED_SECONDS + commits.CLOCK_WAIT_SECONDS
            assert "bronze.events was last changed at " in str(error)
            assert "and the clock of " in str(error)
        assert clock.slept - slept <= commits.CLOCK_WAIT_SECONDS + 1
    assert refused
    assert clock.slept
    files = sorted((tmp_path / "warehouse").rglob("*.metadata.json"))
    assert files
    for file in files:
        assert_java_reads(TableMetadataUtil.parse_raw(file.read_text()))


def test_properties_are_set_long_after_the_last_snapshot(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    table.append(pa.table({"id": [1]}))
    for value in ("1", "2"):
        clock.now += 3600
        with table.transaction() as transaction:
            transaction.set_properties({"lakehouse.read": value})
    assert table.refresh().properties["lakehouse.read"] == "2"


def test_no_job_of_spark_begins_with_a_clock_that_is_behind(
    table: Table, offline_settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(monkeypatch)
    clock.now += 300
    table.append(pa.table({"id": [1]}))
    clock.now -= 300
    spark = Mock(side_effect=AssertionError)
    with pytest.raises(UserError, match=r"bronze\.events was last changed at "):
        maintain_table(offline_settings, spark, "bronze.events", Retention())
    with pytest.raises(UserError, match=r"bronze\.events was last changed at "):
        replace_rows(spark, table, "", spark, "true", REPLAY)
    plan = BatchPlan(TopicState("events", "", "", {}, {}), Position(), [])
    with pytest.raises(UserError, match=r"bronze\.events was last changed at "):
        BatchWriter(offline_settings, spark, Declaration("events", "bronze", "events"), 0).land(table, plan)
