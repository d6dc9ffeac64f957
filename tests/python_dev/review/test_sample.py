import stat
from datetime import UTC, datetime
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

from python_common.catalog.catalog import load_catalog
from python_common.config.environment import landed_rows
from python_common.config.settings import Settings
from python_common.errors import UserError
from python_dev.review import sample


def batch(number: int, *days: int, year: int = 2025) -> pa.Table:
    """Return a batch that landed on days of November."""
    times = pa.array([datetime(year, 11, day, tzinfo=UTC) for day in days], pa.timestamp("us", tz="UTC"))
    columns = {"ingest_batch": [number] * len(days), "kafka_offset": [*range(len(days))], "kafka_timestamp": times}
    return pa.table(columns)


def landed(catalog: SqlCatalog) -> Table:
    """Return a bronze table of two batches, in two data files."""
    catalog.create_namespace("bronze")
    table = catalog.create_table("bronze.sales", batch(1, 2).schema)
    table.append(batch(2, 12, 17, 18))
    table.append(batch(1, 2, 3, 10))
    return table


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("LAKEHOUSE_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("CI", raising=False)


def test_the_newest_rows_are_read_and_no_older_file(sides: list[SqlCatalog]) -> None:
    table = landed(sides[0])
    older = [task.file for task in table.scan().plan_files() if task.file.lower_bounds[1][0] == 1]
    Path(older[0].file_path.removeprefix("file://")).unlink()
    assert sample.newest(table, 2)["kafka_offset"].to_pylist() == [2, 1]
    assert sample.newest(table, 3)["ingest_batch"].to_pylist() == [2, 2, 2]
    with pytest.raises(FileNotFoundError):
        sample.newest(table, 4)


@pytest.mark.usefixtures("home")
def test_rows_of_a_lake_are_for_their_user_and_for_one_review(
    offline_settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    landed(load_catalog(offline_settings, create=True)).append(batch(3, 1, year=9998))
    monkeypatch.setattr(sample, "NEWEST", 5)
    with pytest.raises(KeyError), sample.of_lake(offline_settings, 2) as directory:
        assert directory == landed_rows()
        assert stat.S_IMODE(directory.stat().st_mode) == 0o700
        assert (directory / "weeks").read_text() == "2025-W45,2025-W46"
        assert duckdb.sql(f"from '{directory}/bronze.sales.parquet'").aggregate("count(*)").fetchall() == [(5,)]
        raise KeyError
    assert not landed_rows().exists()


@pytest.mark.usefixtures("home")
def test_rows_of_a_lake_are_not_read_in_ci(offline_settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")
    with pytest.raises(UserError, match="CI is set"), sample.of_lake(offline_settings, 1):
        pass
    assert not landed_rows().exists()


@pytest.mark.usefixtures("home")
def test_a_lake_without_rows_is_named(offline_settings: Settings) -> None:
    load_catalog(offline_settings, create=True).create_namespace("bronze")
    with pytest.raises(UserError, match="No bronze table has rows"), sample.of_lake(offline_settings, 1):
        pass
