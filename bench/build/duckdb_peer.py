"""The peer of a whole build: its models and tests in DuckDB, on the files of the same bronze tables and seeds."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import duckdb
from pyiceberg.catalog import Catalog

from bench.export.work import Figures
from python_common.catalog.catalog import load_catalog
from python_common.config.environment import PROJECT_ROOT, environment
from python_common.config.settings import Settings
from python_dbt.pii.proof import PADS
from python_dbt.project import Project
from python_dev.review.duckdb_sql import MACROS, NeedsSpark, translate
from python_export.csv.snapshot_rows import whole_files

# As much as the Thrift server's heap, and two cores. Without an order of rows it needs less memory.
LIMITS: dict[str, str | bool | int | float | list[str]] = {
    "memory_limit": "2GB",
    "threads": 2,
    "preserve_insertion_order": False,
}
SLOW_SECONDS = 10
# DuckDB's name of the database in which it builds.
DATABASE = "peer"


@dataclass(frozen=True)
class Node:
    """A model or a test: its name, its relation, DuckDB's SQL, and the rows that Spark's test found."""

    name: str
    kind: str
    relation: str
    sql: str
    failures: int


def build(settings: Settings, directory: Path) -> Figures:
    """Run what the last `dbt build` ran, in its order; return wall and CPU seconds.

    It prints what DuckDB cannot run. The translation of the SQL is not measured. There are no figures if a table has
    not as many rows as Spark's, or a test finds other rows, which is printed.
    """
    catalog = load_catalog(settings)
    nodes = list(_nodes(Project(PROJECT_ROOT, environment())))
    database = duckdb.connect(
        directory / f"{DATABASE}.duckdb", config={**LIMITS, "temp_directory": str(directory / "temp")}
    )
    database.execute("set timezone = 'UTC'; set enable_progress_bar = false")
    _prepare(database, catalog, Path(settings.needed("pii_key_file")))
    for schema in {node.relation.partition(".")[0] for node in nodes}:
        database.execute(f"create schema if not exists {schema}")
    wall, cpu = time.monotonic(), time.process_time()
    wrong = {}
    done = []
    for node in nodes:
        started = time.monotonic()
        try:
            if node.kind == "test":
                wrong[node.name] = _count(database, f"({node.sql}) as failures") != node.failures
            else:
                database.execute(f"create {node.kind} {node.relation} as {node.sql}")
        except duckdb.Error as error:
            print(f"DuckDB cannot run {node.name}: {str(error).partition(chr(10))[0]}", flush=True)
            continue
        done.append(node)
        if (seconds := time.monotonic() - started) > SLOW_SECONDS:
            print(f"DuckDB: {node.name}, {seconds:.0f} s", flush=True)
    figures = {"wall": time.monotonic() - wall, "cpu": time.process_time() - cpu}
    for node in done:
        if node.kind == "table":
            rows = catalog.load_table(node.relation).scan().count()
            wrong[node.relation] = _count(database, node.relation) != rows
    if differing := [name for name, differs in wrong.items() if differs]:
        print(f"DuckDB: wrong, {', '.join(differing)} differ from Spark's; no figures", flush=True)
        return {}
    return figures


def _count(database: duckdb.DuckDBPyConnection, relation: str) -> int:
    [[rows]] = database.execute(f"select count(*) from {relation}").fetchall()
    return int(rows)


def _nodes(project: Project) -> Iterator[Node]:
    """Yield the models and tests of the last dbt command in the order in which they ended."""
    manifest = project.manifest()
    known = manifest.nodes
    tables = {node.table: f"{DATABASE}.{node.table}" for node in (*known.values(), *manifest.sources.values())}
    for result in project.results()["results"]:
        node = known.get(result["unique_id"])
        if node is None or node.resource_type not in ("model", "test"):
            continue
        try:
            sql = translate(result["compiled_code"], {**tables, PADS: PADS})
        except NeedsSpark as reason:
            print(f"DuckDB cannot run {node.name}: {reason}", flush=True)
            continue
        kind = {"test": "test", "view": "view"}.get(node.materialized, "table")
        yield Node(node.name, kind, node.table, sql, result["failures"] or 0)


def _prepare(database: duckdb.DuckDBPyConnection, catalog: Catalog, key_file: Path) -> None:
    """Make macros, the masking key's table, and views of the Parquet files of bronze tables and seeds."""
    database.execute(MACROS.read_text())
    key = key_file.read_text().strip()
    database.execute("attach ':memory:' as spark_catalog")
    database.execute('create schema spark_catalog."default"')
    database.execute('create table spark_catalog."default".pii_pads as select ? as value', [key])
    for schema in ("bronze", "reference"):
        database.execute(f"create schema {schema}")
        for identifier in catalog.list_tables(schema):
            files = whole_files(list(catalog.load_table(identifier).scan().plan_files()))
            database.execute(f"create view {'.'.join(identifier)} as select * from read_parquet({files})")
