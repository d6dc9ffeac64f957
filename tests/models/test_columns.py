"""Tables follow the columns of their models, or the run is refused and alters nothing (incremental/columns.sql)."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from pyhive import hive

from python_common.spark.thrift import rows
from tests.support.in_process import dbt
from tests.support.small_project import write_small_project

Columns = dict[str, str]
EARLIEST = {"incremental_strategy": "earliest", "unique_key": "week", "order_by": ["week"]}
# Models by what their tables do with other columns; each run writes one row, of a week of its own.
MODELS: dict[str, dict[str, Any]] = {
    "follows": {
        "incremental_strategy": "replace_partitions",
        "partitions": "exported_weeks",
        "partition_by": "week",
        "on_schema_change": "append_new_columns",
    },
    "refuses": {**EARLIEST, "on_schema_change": "fail"},
    "keeps": {**EARLIEST, "on_schema_change": "append_new_columns", "full_refresh": False},
}
SNAPSHOT = {
    "name": "remembers",
    "relation": "ref('keeps_now')",
    "config": {"schema": "small", "file_format": "iceberg", "strategy": "check", "check_cols": "all"}
    | {"unique_key": "sku"},
}
FIRST = {"brand": "int", "week": "string", "price": "string"}
# The columns of each run's models, and those of the tables afterwards; a model that is not there is refused.
RUNS: list[tuple[Columns, dict[str, list[str]]]] = [
    (FIRST, {name: ["brand", "week", "price"] for name in (*MODELS, "remembers")}),
    (
        {"color": "string", **FIRST},
        {name: ["color", "brand", "week", "price"] for name in ("follows", "keeps", "remembers")},
    ),
    (
        {"week": "string", "brand": "int", "color": "string"},
        {"follows": ["week", "brand", "color"]}
        | {name: ["week", "brand", "color", "price"] for name in ("keeps", "remembers")},
    ),
    ({"week": "string", "brand": "string", "color": "string"}, {}),
    (
        FIRST,
        {name: ["brand", "week", "price"] for name in ("follows", "refuses")}
        | {name: ["brand", "week", "price", "color"] for name in ("keeps", "remembers")},
    ),
]
# Brand, price and color of the runs that wrote a row: each value is the number of its run.
KEPT = [(1, "1", None), (2, "2", "2"), (3, None, "3"), (5, "5", None)]
ROWS = {
    # A column that is dropped and added again is empty in former rows.
    "follows": [(1, None), (2, None), (3, None), (5, "5")],
    "refuses": [(1, "1"), (5, "5")],
    "keeps": KEPT,
    "remembers": KEPT,
}


@pytest.fixture
def project(tmp_path: Path, cursor: hive.Cursor, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    write_small_project(tmp_path)
    (tmp_path / "snapshots").mkdir()
    (tmp_path / "snapshots" / "remembers.yml").write_text(yaml.safe_dump({"snapshots": [SNAPSHOT]}))
    monkeypatch.setenv("DBT_TARGET_PATH", str(tmp_path / "target"))
    monkeypatch.setenv("DBT_LOG_PATH", str(tmp_path / "logs"))
    yield tmp_path
    for kind in ("view", "table"):
        for row in rows(cursor, f"show {kind}s in small"):
            rows(cursor, f"drop {kind} small.{row[1]}")


def build(project: Path, run: int, columns: Columns, *arguments: str) -> dict[str, str]:
    """Build all models with some columns; return the message of each that failed."""
    week = f"2026-W{40 + run}"
    values = {
        name: f"'{week}' as week" if name == "week" else f"cast({run} as {kind}) as {name}"
        for name, kind in columns.items()
    }
    described = [{"name": name, "data_type": kind} for name, kind in columns.items()]
    models = []
    for name, config in MODELS.items():
        # The SQL of a contract may have the columns in another order.
        is_contract = name == "keeps"
        selected = ", ".join(reversed(values.values()) if is_contract else values.values())
        text = f"{{{{ config(materialized='incremental', **{config}) }}}} select {selected}"
        (project / "models" / f"{name}.sql").write_text(text)
        models.append({"name": name, "config": {"contract": {"enforced": is_contract}}, "columns": described})
    (project / "models" / "models.yml").write_text(yaml.safe_dump({"models": models}))
    now = f"{{{{ config(materialized='view') }}}} select 1 as sku, {', '.join(values.values())}"
    (project / "models" / "keeps_now.sql").write_text(now)
    built: Any = dbt("build", "--vars", f"week: {week}", *arguments, project=project).result
    return {result.node.name: result.message for result in built.results if result.status == "error"}


def columns_of(cursor: hive.Cursor, table: str) -> list[str]:
    # A partition column is there a second time.
    names = dict.fromkeys(row[0] for row in rows(cursor, f"describe small.{table}"))
    return [name for name in names if name in ("brand", "week", "price", "color")]


def test_tables_follow_the_columns_of_their_models(cursor: hive.Cursor, project: Path) -> None:
    stored: dict[str, list[str]] = {}
    for run, (columns, expected) in enumerate(RUNS, start=1):
        refused = build(project, run, columns)
        assert refused.keys() == {*MODELS, "remembers"} - expected.keys(), (run, refused)
        assert all("was built with other columns" in message for message in refused.values()), (run, refused)
        stored |= expected
        assert {name: columns_of(cursor, name) for name in stored} == stored, run
    # Without its partition column it cannot be written.
    [message] = build(project, 6, {"price": "string"}, "--select", "follows").values()
    assert "was built with other columns: brand" in message
    assert columns_of(cursor, "follows") == stored["follows"]
    for name, written in ROWS.items():
        cells = "brand, price, color" if len(written[0]) == 3 else "brand, price"
        assert rows(cursor, f"select {cells} from small.{name} order by brand") == written, name
    assert build(project, 7, RUNS[1][0], "--full-refresh", "--select", "refuses") == {}
    assert columns_of(cursor, "refuses") == RUNS[1][1]["follows"]
    assert rows(cursor, "select brand, color from small.refuses") == [(7, "7")]
