"""No build mixes two key versions or two forms of a mask: it stops until all incremental tables may be masked again."""

import shutil
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from textwrap import dedent

import pytest
from pyhive import hive

from python_common import pii_key
from python_common.config.environment import PROJECT_ROOT
from python_common.config.settings import Settings
from python_common.spark.thrift import rows
from tests.support.commands import run_dbt
from tests.support.in_process import dbt
from tests.support.small_project import write_small_project

pytestmark = pytest.mark.slow

# A project of three layers, whose table keeps the initials of people.
LAYERS = {
    "staging.sql": "select id, name from {{ source('till', 'people') }}",
    "masked.sql": """
        select
            id, {{ masked('staging', 'name', as='initials') }} as name_masked, {{ pii_key_version() }} as key_version,
            {at} as at
        from {{ ref('staging') }}""",
    "initials.sql": """
        {{ config(materialized='incremental', unique_key='id', incremental_strategy='earliest', order_by=['at']) }}
        select * from {{ ref('masked') }}""",
    "copied.sql": """
        {{ config(materialized='incremental', unique_key='id', incremental_strategy='earliest', order_by=['at']) }}
        select * from {{ ref('initials') }}""",
    "layers.yml": """
        sources: [{name: till, schema: small, tables: [{name: people}]}]
        models:
          - {name: staging, config: {schema: staging, alias: stg_small__people, materialized: view}, columns: [
              {name: name, config: {meta: {pii: person_name}}}]}
          - {name: masked, config: {schema: masked, alias: int_small_people_masked, materialized: view}}
          - {name: initials, columns: [{name: key_version}]}
          - {name: copied, columns: [{name: key_version}]}
    """,
}
STORED = "name_masked, key_version"


@pytest.fixture
def rotated_back(masking_key: Settings, cursor: hive.Cursor) -> Iterator[Path]:
    """The stack's key file; the stack has its old key again afterwards."""
    key_file = masking_key.pii_key_file
    line = key_file.read_text()
    yield key_file
    key_file.write_text(line)
    # Spark goes on reading the copy of the other version until a run has checked the key again.
    assert run_dbt("build", "--select", "channels").returncode == 0


@pytest.fixture
def people(masking_key: Settings, cursor: hive.Cursor) -> Iterator[None]:
    """A bronze table of one person."""
    rows(cursor, "create schema if not exists small")
    rows(cursor, "create or replace table small.people using iceberg as select 1 as id, 'Ann Bee' as name")
    yield
    for kind, name in (
        ("view", "masked.int_small_people_masked"),
        ("view", "staging.stg_small__people"),
        ("table", "small.initials"),
        ("table", "small.copied"),
        ("table", "small.people"),
    ):
        rows(cursor, f"drop {kind} if exists {name}")


def test_a_build_mixes_no_versions_of_a_key_or_a_mask(
    rotated_back: Path, people: None, cursor: hive.Cursor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DBT_TARGET_PATH", str(tmp_path / "target"))
    monkeypatch.setenv("DBT_LOG_PATH", str(tmp_path / "logs"))
    macros = tmp_path / "macros"
    shutil.copytree(PROJECT_ROOT / "macros", macros)
    write_small_project(tmp_path, **{"on-run-start": ["{{ check_pii_key() }}"], "macro-paths": [str(macros)]})
    moments = count(step=-1)

    def run(*arguments: str) -> str:
        """Run the project on an earlier row than before; return dbt's complaint."""
        for name, text in LAYERS.items():
            (tmp_path / "models" / name).write_text(dedent(text).replace("{at}", str(next(moments))))
        result = dbt("run", *arguments, project=tmp_path)
        return "" if result.success else str(result.exception or result.result.results[0].message)

    def stored() -> set[tuple[str, str]]:
        return {row for name in ("initials", "copied") for row in rows(cursor, f"select {STORED} from small.{name}")}

    old = pii_key.check(rotated_back)
    assert run() == ""
    assert run() == ""
    assert stored() == {("A*** B***", old)}
    new = pii_key.rotate(rotated_back)
    assert f"The masking key is {new}, but small.copied, small.initials was masked with another version" in run()
    # A build that still runs with the old version goes on with its pads.
    assert rows(cursor, "select split_part(value, ':', 1) from spark_catalog.default.pii_pads") == [(old,)]
    assert stored() == {("A*** B***", old)}
    assert run("--full-refresh") == ""
    assert stored() == {("A*** B***", new)}
    masks = macros / "pii" / "masks.sql"
    masks.write_text(masks.read_text().replace("$1***", "$1+++"))
    assert "Masks have changed, but small.copied, small.initials was masked by their former SQL" in run()
    # Built from the other, it would hold the former mask.
    assert "Masks have changed" in run("--full-refresh", "--select", "copied")
    assert stored() == {("A*** B***", new)}
    assert run("--full-refresh") == ""
    assert stored() == {("A+++ B+++", new)}
    assert run() == ""
