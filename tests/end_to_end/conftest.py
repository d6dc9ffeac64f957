"""Runs the main job the way a user does, once per wave, and reads the results with another engine than Spark."""

import json
import subprocess
from dataclasses import dataclass
from typing import Any

import duckdb

from lakehouse.catalog import load_catalog
from lakehouse.settings import Settings, home
from lakehouse.weeks import IsoWeek
from tests.conftest import run_dbt, run_lakehouse

SIZE = {"orders": 300, "seed": 7, "weeks": 3}


@dataclass
class Lake:
    """The lake after a wave, and what plain Python says should be in it."""

    settings: Settings

    @property
    def truth(self) -> dict[str, Any]:
        return json.loads((home() / "truth.json").read_text())

    @property
    def last_week(self) -> IsoWeek:
        return IsoWeek.parse(self.truth["parameters"]["last_week"])

    def query(self, table: str, sql: str) -> list[tuple[Any, ...]]:
        """Run SQL in DuckDB over a table that PyIceberg reads; it stands in the SQL as `rows`."""
        with duckdb.connect() as connection:
            connection.register("rows", load_catalog(self.settings).load_table(table).scan().to_arrow())
            return connection.execute(sql).fetchall()

    def tables(self, schema: str) -> list[str]:
        return [f"{schema}.{name}" for _, name in load_catalog(self.settings).list_tables(schema)]

    def contents(self, *schemas: str) -> dict[str, list[str]]:
        """Return all rows of all tables of some schemas, as text in an order that does not depend on files."""
        return {
            table: sorted(map(repr, self.query(table, "select * from rows")))
            for schema in schemas
            for table in self.tables(schema)
        }


def run_job(wave: int, *, unit_tests: bool = False) -> dict[str, subprocess.CompletedProcess[str]]:
    """Produce a wave and run ingest, verify, build and export; every step must succeed.

    Unit tests bring their own rows: to run them with one of the builds is enough.
    """
    size = [word for name, value in SIZE.items() for word in (f"--{name}", str(value))]
    steps = {
        "sample-data": lambda: run_lakehouse("stack", "sample-data", *size, "--wave", str(wave)),
        "ingest": lambda: run_lakehouse("ingest", "run"),
        "verify": lambda: run_lakehouse("ingest", "verify"),
        "build": lambda: run_dbt("build", *(() if unit_tests else ("--exclude-resource-type", "unit_test"))),
        "export": lambda: run_lakehouse("export", "run"),
    }
    done = {}
    for name, step in steps.items():
        done[name] = step()
        assert done[name].returncode == 0, f"{name}:\n{done[name].stdout[-4000:]}\n{done[name].stderr[-2000:]}"
    return done
