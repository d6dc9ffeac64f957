"""Runs the main job the way a scheduler does, and reads the results with another engine than Spark."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import pytest

from python_common.catalog.catalog import load_catalog
from python_common.config.environment import PROJECT_ROOT, home
from python_common.config.settings import Settings
from python_common.spark import thrift
from python_common.weeks import IsoWeek
from python_dbt.pii.flows import RESTRICTED
from python_dev.stack.sample_data import produced_log
from python_dev.stack.sample_data.log import Log
from python_dev.stack.sample_data.produce import register, send
from python_dev.stack.temporary import own_environment
from tests.conftest import run_dbt, run_lakehouse, started
from tests.support import planted
from tests.support.person import of_person
from tests.support.pii_values import pii_values
from tests.support.services.interpreted import INTERPRETED

Steps = dict[str, subprocess.CompletedProcess[str]]
SIZE = {"orders": 300, "seed": 7, "weeks": 3}
SMALL = {"orders": 60, "seed": 7, "weeks": 3}
DATASETS = ("order_lines", "completed_orders", "product_sales", "customer_activity", "product_demand")


@dataclass
class Lake:
    """The lake after a wave, and what should be in it by plain Python."""

    settings: Settings

    @property
    def expected(self) -> dict[str, Any]:
        return json.loads((home() / "expected.json").read_text())

    @property
    def last_week(self) -> IsoWeek:
        return IsoWeek.parse(self.expected["parameters"]["last_week"])

    def query(self, table: str, sql: str) -> list[tuple[Any, ...]]:
        """Run SQL in DuckDB over a table that PyIceberg reads; it is `rows` in the SQL."""
        with duckdb.connect() as connection:
            connection.register("rows", load_catalog(self.settings).load_table(table).scan().to_arrow())
            return connection.execute(sql).fetchall()

    def tables(self, schema: str) -> list[str]:
        return [f"{schema}.{name}" for _, name in load_catalog(self.settings).list_tables(schema)]

    def versions(self) -> set[str]:
        """Return what is published, withdrawn versions included, as <dataset>/<week>/v<N>."""
        root = Path(self.settings.export_root)
        return {str(path.parent.relative_to(root)) for path in root.glob("*/*/v*/manifest.json")}

    def reasons(self, week: IsoWeek) -> dict[str, list[str]]:
        """Return by dataset what withholds a week, as ops.export_weeks has it."""
        select = f"select dataset_name, verdict, to_json(reasons) from ops.export_weeks where week_label = '{week}'"
        with thrift.connect(self.settings) as cursor:
            rows = thrift.rows(cursor, select)
        assert all((verdict == "withhold") == (reasons != "[]") for _, verdict, reasons in rows)
        return {name: json.loads(reasons) for name, _, reasons in rows}

    def schemas(self) -> list[str]:
        return [name for (name,) in load_catalog(self.settings).list_namespaces()]

    def files(self, schema: str, pattern: str = "*") -> Iterator[tuple[str, bytes]]:
        """Yield path and content of the files of a schema's tables and views, old versions included."""
        for path in (Path(self.settings.warehouse) / schema).rglob(pattern):
            if path.is_file() and path.suffix != ".crc":
                yield str(path), planted.content(path)

    def public_artefacts(self) -> Iterator[tuple[str, bytes]]:
        """Yield what is not restricted: exports, mails, logs, dbt's target, views, and files of other schemas."""
        for pattern in ("exports/**/*", "mail/*", "*/*.log*", "target/**/*", "logs/**/*", "catalog.db"):
            for path in home().glob(pattern):
                if path.is_file():
                    yield str(path), planted.content(path)
        public = [name for name in self.schemas() if name not in {"bronze", *RESTRICTED}]
        with thrift.connect(self.settings) as cursor:
            for schema in public:
                yield from self.files(schema)
                for row in thrift.rows(cursor, f"show views in {schema}"):
                    yield f"{schema}.{row[1]}", repr(thrift.rows(cursor, f"select * from {schema}.{row[1]}")).encode()


def produce(wave: int, sample: dict[str, int] = SIZE) -> subprocess.CompletedProcess[str]:
    """Produce a wave."""
    size = [word for name, value in sample.items() for word in (f"--{name}", str(value))]
    return run_lakehouse("stack", "sample-data", *size, "--wave", str(wave))


def run_killed(*point: str) -> subprocess.CompletedProcess[str]:
    """Run the weekly job until it kills itself in a step, see `killed.py`."""
    command = [sys.executable, "-m", "tests.support.killed", *point]
    # No row that fails a test may be stored even if it is asked for.
    env = {**os.environ, "DBT_STORE_FAILURES": "true"}
    return subprocess.run(command, cwd=PROJECT_ROOT, env=env, capture_output=True, text=True, timeout=900, check=False)


def succeed(steps: dict[str, Callable[[], subprocess.CompletedProcess[str]]], code: int = 0) -> Steps:
    """Run steps, each of which must end with an exit code."""
    done = {}
    for name, step in steps.items():
        done[name] = step()
        assert done[name].returncode == code, f"{name}:\n{done[name].stdout[-4000:]}\n{done[name].stderr[-2000:]}"
    return done


def persons(wave: int) -> planted.Index:
    return planted.index_of_texts(pii_values(produced_log(**SIZE, wave=wave)))


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Settings]:
    """Settings of a separate stack of the module, with an empty lake."""
    with own_environment(tmp_path_factory.mktemp("own-lake")):
        try:
            yield started()
        finally:
            run_lakehouse("stack", "down", "--wipe")


@pytest.fixture(scope="package")
def small_lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    """A lake of the small sample data, on a separate stack, whose Spark generates no code."""
    with own_environment(tmp_path_factory.mktemp("small-lake")):
        os.environ.update(INTERPRETED)
        try:
            lake = Lake(started())
            succeed({"sample-data": lambda: produce(1, SMALL)})
            yield lake
        finally:
            run_lakehouse("stack", "down", "--wipe")


@pytest.fixture(scope="package")
def person(small_lake: Lake) -> Log:
    """The records of a person, which are in the small lake's topics after those of the sample data."""
    week = small_lake.last_week
    records = of_person(week, produced_log(**SMALL, last_week=week))
    send(records, register(records, small_lake.settings), small_lake.settings)
    return records


@pytest.fixture(scope="package")
def first_export(small_lake: Lake, person: Log) -> Steps:
    """An export of one dataset, before anything else was built."""
    return succeed(
        {
            "ingest": lambda: run_lakehouse("ingest", "run"),
            "export": lambda: run_lakehouse("export", "run", "order_lines"),
        }
    )


@pytest.fixture(scope="package")
def published(small_lake: Lake, first_export: Steps) -> Steps:
    """The weekly job of two weeks, after which all datasets are published."""
    weeks = f"{small_lake.last_week.minus(1)}..{small_lake.last_week}"
    return succeed({"weekly": lambda: run_lakehouse("weekly", "--weeks", weeks)})


@pytest.fixture(scope="package")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    """The main lake, on a separate stack: what other modules leave in theirs is not in it."""
    with own_environment(tmp_path_factory.mktemp("main-lake")):
        try:
            yield Lake(started())
        finally:
            run_lakehouse("stack", "down", "--wipe")


@pytest.fixture(scope="package")
def first_wave(lake: Lake) -> Steps:
    """The weekly job, killed in its last step once all others are done, and run again."""
    produced = succeed({"sample-data": lambda: produce(wave=1)})
    killed = succeed({"killed": lambda: run_killed("notify", "after all steps")}, code=-signal.SIGKILL)
    finished = succeed(
        {
            "weekly": lambda: run_killed("nowhere"),
            "export verify": lambda: run_lakehouse("export", "verify"),
            "unit tests": lambda: run_dbt("test", "--select", "test_type:unit"),
        }
    )
    return {**produced, **killed, **finished}


@pytest.fixture(scope="package")
def target(first_wave: object) -> Path:
    """A dbt target directory with the docs, and with the SQL of every node as an increment."""
    directory = home() / "target" / "docs"
    generated = run_dbt("docs", "generate", "--target-path", str(directory))
    assert generated.returncode == 0, generated.stdout[-3000:]
    return directory
