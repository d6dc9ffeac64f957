"""Random waves of events, a run of dbt after each, against one build of everything: the same rows in every table.

SHUFFLE_SEEDS names the seeds, by default 0. More of them:
`SHUFFLE_SEEDS="0 1 2 3 4" .venv/bin/pytest tests/models/test_increments.py`.
"""

import json
import os
from collections import Counter, defaultdict
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from lakehouse.catalog import load_catalog
from lakehouse.settings import env_file, from_environment, read_env_file
from local_stack.process import free_ports
from local_stack.sample_data.codec import schema_text
from local_stack.stack import PORTS
from python_ingest.tables import LAYOUT, SchemaState, table_schema
from tests.conftest import FOREIGN, run_dbt, run_lakehouse
from tests.models.shuffled_events import Event, waves

SEEDS = [int(seed) for seed in os.environ.get("SHUFFLE_SEEDS", "0").split()]
WAVES = 3
# Each bronze table with the Avro schema of its values, and of its keys if they are Avro.
BRONZE = {
    "payments": ("payments-v3", None),
    "pizza_orders": ("pizza-orders-v2", None),
    "stock_trades": ("stock_trades-v1", None),
    **{
        f"shiftleft_public_{table}": (f"{table}-v1", f"{table}-key-v1")
        for table in ("addresses", "customers", "order_items", "orders", "products")
    },
}
# Views stay as they are, and reference data does not change.
STORED = ("config.materialized:incremental", "config.materialized:table")
COMPARED = ("deduplicated", "joined", "marts")
# Trades have no key to conflict on: their rows are only ever inserted.
RECOMPUTED = (
    "joined.int_order_items_priced",
    "marts.fct_completed_orders",
    "marts.fct_order_lines",
    "marts.fct_product_sales",
)


@pytest.fixture(scope="module")
def own_lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Catalog]:
    """The catalog of a lake of its own with just a Thrift server: what the tests put in bronze came from no topic."""
    with pytest.MonkeyPatch.context() as env:
        for name in [name for name in os.environ if name.startswith(FOREIGN)]:
            env.delenv(name)
        directory = tmp_path_factory.mktemp("shuffled")
        env.setenv("LAKEHOUSE_HOME", str(directory))
        env.setenv("DBT_TARGET_PATH", str(directory / "target"))
        env.setenv("DBT_LOG_PATH", str(directory / "logs"))
        for name, port in zip(PORTS, free_ports(len(PORTS)), strict=True):
            env.setenv(name, str(port))
        try:
            started = run_lakehouse("stack", "up", "--only", "thrift")
            assert started.returncode == 0, started.stderr
            for name, value in read_env_file(env_file()).items():
                env.setenv(name, value)
            yield load_catalog(from_environment())
        finally:
            run_lakehouse("stack", "down", "--wipe")


def create_bronze(catalog: Catalog) -> dict[str, Table]:
    """Make empty bronze tables with the ingester's columns."""
    catalog.create_namespace_if_not_exists("bronze")
    tables = {}
    for name, (value, key) in BRONZE.items():
        state = SchemaState({1: json.loads(schema_text(value))}, {1: json.loads(schema_text(key))} if key else {})
        if catalog.table_exists(f"bronze.{name}"):
            catalog.drop_table(f"bronze.{name}")
        schema = table_schema(state, "avro" if key else "string")
        tables[name] = catalog.create_table(f"bronze.{name}", schema, properties=LAYOUT)
    return tables


def land(tables: dict[str, Table], batch: int, wave: list[Event]) -> None:
    """Append a wave as one batch of each topic."""
    rows = defaultdict(list)
    ingested_at = datetime(2026, 11, 9, tzinfo=UTC) + timedelta(days=batch)
    for event in wave:
        rows[event.table].append(event.row | {"ingest_batch": batch, "ingested_at": ingested_at})
    for name, landed in rows.items():
        tables[name].append(pa.Table.from_pylist(landed, schema=tables[name].schema().as_arrow()))


def contents(catalog: Catalog) -> dict[str, Counter[str]]:
    """Return the rows of all stored tables, as text."""
    return {
        ".".join(identifier): Counter(map(repr, catalog.load_table(identifier).scan().to_arrow().to_pylist()))
        for schema in COMPARED
        for identifier in catalog.list_tables(schema)
    }


def changed_rows(table: Table) -> Counter[str]:
    """Return how many rows the MERGEs of a table inserted, updated and deleted."""
    counted: Counter[str] = Counter()
    for snapshot in table.snapshots():
        for change in ("inserted", "matched-updated", "matched-deleted"):
            counted[change] += int(snapshot.summary[f"spark.merge-into.num-target-rows-{change}"] or 0)
    return counted


def build(*arguments: str) -> None:
    finished = run_dbt("build", "--exclude-resource-type", "test", "unit_test", "exposure", *arguments)
    assert finished.returncode == 0, finished.stdout[-3000:]


@pytest.mark.parametrize("seed", SEEDS)
def test_any_increments_equal_one_build(own_lake: Catalog, seed: int) -> None:
    bronze = create_bronze(own_lake)
    for batch, wave in enumerate(waves(seed, WAVES), start=1):
        land(bronze, batch, wave)
        if batch == 1:
            build("--exclude", "ops", "exports", "--full-refresh")
        else:
            build("--select", *STORED, "--exclude", "ops", "exports")
    incremental = contents(own_lake)
    changes = {name: changed_rows(own_lake.load_table(name)) for name in RECOMPUTED}
    build("--select", *STORED, "--exclude", "ops", "exports", "--full-refresh")
    rebuilt = contents(own_lake)
    assert incremental.keys() == rebuilt.keys()
    for name in rebuilt:
        assert incremental[name] == rebuilt[name], f"{name}: {incremental[name] ^ rebuilt[name]}"
        assert rebuilt[name], f"{name} is empty"
    for name, changed in changes.items():
        assert len(+changed) == 3, f"{name}: {changed}"
