"""dbt on the real Thrift server: in the project itself, and in a small project that borrows its macros."""

import io
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyhive import hive

from python_common.config.settings import Settings
from python_common.spark import thrift
from tests.support.commands import run_dbt_well
from tests.support.in_process import Dbt, dbt
from tests.support.small_project import write_small_project


@pytest.fixture(scope="session")
def cursor(stack: Settings) -> Iterator[hive.Cursor]:
    """A session on the Thrift server."""
    with thrift.connect(stack) as opened:
        yield opened


@pytest.fixture(scope="session")
def project_dbt(stack: Settings) -> Dbt:
    """Return a function that runs a dbt command of the project in this process, which parses it once."""
    parsed = dbt("parse")
    assert parsed.success, parsed.exception

    def run(*arguments: str) -> Any:
        try:
            return dbt(*arguments, manifest=parsed.result)
        finally:
            # dbt leaves one that it refused.
            for name in [name for name in parsed.result.nodes if name.startswith("sql_operation.")]:
                del parsed.result.nodes[name]

    return run


@pytest.fixture(scope="session")
def show(project_dbt: Dbt) -> Callable[[str], list[dict]]:
    """Return a function that gives the rows of a query written with the project's macros."""

    def run(inline: str) -> list[dict]:
        result = project_dbt("show", "--inline", inline, "--limit", "-1")
        assert result.success, result.exception
        rows = io.StringIO()
        result.result.results[0].agate_table.to_json(rows)
        return json.loads(rows.getvalue())

    return run


@pytest.fixture(scope="session")
def masking_key(stack: Settings, project_dbt: Dbt) -> Settings:
    """The stack once its masking key is readable for Spark and pinned, which the first build does."""
    assert project_dbt("build", "--select", "channels").success
    return stack


@pytest.fixture
def no_leftovers(cursor: hive.Cursor) -> Iterator[None]:
    """Drop what a test leaves in schema `small`."""
    yield
    for kind in ("view", "table"):
        for row in thrift.rows(cursor, f"show {kind}s in small"):
            thrift.rows(cursor, f"drop {kind} small.{row[1]}")


@pytest.fixture
def small_project(stack: Settings, tmp_path: Path) -> Callable[[str], None]:
    """Return a function that makes the one model `thing` in schema `small` from SQL and runs it once."""
    write_small_project(tmp_path)

    def run(sql: str, *arguments: str) -> None:
        (tmp_path / "models" / "thing.sql").write_text(sql)
        run_dbt_well("run", *arguments, directory=tmp_path, DBT_TARGET_PATH=str(tmp_path / "target"))

    return run
