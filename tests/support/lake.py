"""A lake of the sample data: its sizes, the steps that fill it, and its content read by another engine than Spark."""

import csv
import hashlib
import json
import sqlite3
import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb

from python_common.catalog.catalog import load_catalog
from python_common.config.environment import home
from python_common.config.settings import Settings
from python_common.spark import thrift
from python_common.weeks import IsoWeek
from python_dbt.pii.flows import RESTRICTED
from python_dev.stack.sample_data import produced_log
from tests.support import planted
from tests.support.commands import run_lakehouse
from tests.support.pii_values import pii_values

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


def succeed(steps: dict[str, Callable[[], subprocess.CompletedProcess[str]]]) -> Steps:
    """Run steps, each of which must end with exit code 0."""
    done = {}
    for name, step in steps.items():
        done[name] = step()
        assert done[name].returncode == 0, f"{name}:\n{done[name].stdout[-4000:]}\n{done[name].stderr[-2000:]}"
    return done


def persons(wave: int) -> planted.Index:
    return planted.index_of_texts(pii_values(produced_log(**SIZE, wave=wave)))


def newest(lake: Lake, dataset: str) -> tuple[dict, list[dict[str, str]]]:
    """Return the newest published manifest of the last week and the rows of its file, read as an analyst would."""
    directory = Path(lake.settings.export_root) / dataset / str(lake.last_week)
    version = max(directory.glob("v*"), key=lambda path: int(path.name[1:]))
    manifest = json.loads((version / "manifest.json").read_text())
    with (version / manifest["file"]).open(newline="", encoding="utf-8") as file:
        return manifest, list(csv.DictReader(file))


def contents(settings: Settings) -> dict[str, str]:
    """Return the SHA-256 of the files of the warehouse, and the rows of the catalog."""
    state = {
        str(path): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in Path(settings.warehouse).rglob("*")
        if path.is_file()
    }
    with closing(sqlite3.connect(settings.catalog_uri.removeprefix("jdbc:sqlite:").partition("?")[0])) as database:
        return state | {"catalog": repr(database.execute("select * from iceberg_tables order by 1, 2, 3").fetchall())}
