"""What the project does otherwise than dbt-spark: each test fails with the macro of dbt-spark."""

from collections.abc import Callable
from pathlib import Path

import pytest
from pyhive import hive

from python_common.spark.thrift import rows
from tests.support.commands import run_dbt_well

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("no_leftovers")]

RunModel = Callable[..., None]

INCREMENTAL = """
{{{{ config(
    materialized='incremental', unique_key='id', incremental_strategy='earliest', order_by=['at', 'seq']
) }}}}
select * from values {values} as events (id, at, seq, name)
"""
AFFECTED_KEYS = "unique_key='id', incremental_strategy='affected_keys'"
ONE_STRATEGY = r"Set one of\s+earliest,\s+latest_change,\s+affected_keys"


def test_a_view_can_become_a_table_and_a_view_again(small_project: RunModel, cursor: hive.Cursor) -> None:
    for materialized, value in (("view", 1), ("table", 2), ("view", 3)):
        small_project(f"{{{{ config(materialized='{materialized}') }}}} select {value} as a")
        assert rows(cursor, "select a from small.thing") == [(value,)]


def test_a_full_refresh_keeps_the_table_and_its_history(small_project: RunModel, cursor: hive.Cursor) -> None:
    model = INCREMENTAL.format(values="(1, 1, 1, 'a')")
    small_project(model)
    [(snapshot,)] = rows(cursor, "select snapshot_id from small.thing.snapshots")
    small_project(model, "--full-refresh")
    assert (snapshot,) in rows(cursor, "select snapshot_id from small.thing.snapshots")
    assert rows(cursor, f"select name from small.thing version as of {snapshot}") == [("a",)]


def test_models_of_packages_get_our_materialization(
    small_project: RunModel, cursor: hive.Cursor, tmp_path: Path
) -> None:
    package = tmp_path / "bought"
    (package / "models").mkdir(parents=True)
    (package / "dbt_project.yml").write_text("{name: bought, version: '1.0'}")
    (package / "models" / "added_to.sql").write_text(
        "{{ config(materialized='incremental', file_format='iceberg', schema='small') }} select 1 as a"
    )
    (tmp_path / "packages.yml").write_text(f"packages: [{{local: {package}}}]")
    run_dbt_well("deps", directory=tmp_path)
    for _ in range(2):
        small_project("{{ config(materialized='view') }} select 1 as a")
    assert rows(cursor, "select a from small.added_to") == [(1,), (1,)]


def test_a_merge_replaces_a_row_only_by_an_earlier_one(small_project: RunModel, cursor: hive.Cursor) -> None:
    waves = [
        "(1, 5, 5, 'middle'), (2, 5, 5, 'only')",
        "(1, 5, 4, 'early'), (3, 1, 1, 'new')",
        "(1, 5, 6, 'late')",
        "(1, 5, 5, 'middle')",
    ]
    for wave in waves:
        small_project(INCREMENTAL.format(values=wave))
    assert rows(cursor, "select id, name from small.thing order by id") == [(1, "early"), (2, "only"), (3, "new")]


@pytest.mark.parametrize(
    ("config", "affected", "message"),
    [
        (AFFECTED_KEYS, "select 1 as id", r"select id\s+in its CTE"),
        (AFFECTED_KEYS, "{% call affected_keys() %}select 1 as a{% endcall %}", r"select id\s+in its CTE"),
        ("unique_key='id'", "select 1 as id", ONE_STRATEGY),
        ("incremental_strategy='merge'", "select 1 as id", ONE_STRATEGY),
    ],
    ids=["not a block", "another column", "no strategy", "a strategy of dbt-spark"],
)
def test_a_model_that_cannot_be_built_in_increments_is_refused(
    small_project: RunModel, config: str, affected: str, message: str
) -> None:
    with pytest.raises(AssertionError, match=message):
        small_project(
            f"{{{{ config(materialized='incremental', {config}) }}}} with affected as ({affected}) select 1 as id"
        )


def test_an_increment_keeps_to_its_contract_and_to_its_table(
    small_project: RunModel, cursor: hive.Cursor, tmp_path: Path
) -> None:
    """Neither does dbt-spark check: a MERGE would lose a column, or change its type, without a word."""
    config = "materialized='incremental', incremental_strategy='earliest', unique_key='id', order_by=['id']"
    contract = "{name: thing, config: {contract: {enforced: true}, on_schema_change: %s}, columns: [%s]}"
    columns = "{name: id, data_type: int}, {name: price, data_type: 'decimal(12, 2)'}"

    def run(select: str, described: str = columns, on_schema_change: str = "fail") -> str:
        yml = f"models: [{contract % (on_schema_change, described)}]"
        (tmp_path / "models" / "thing.yml").write_text(yml)
        try:
            small_project(f"{{{{ config({config}) }}}} select {select}")
        except AssertionError as failure:
            return " ".join(str(failure).split())
        return ""

    price = "cast(1 as decimal(12, 2)) as price"
    assert run(f"1 as id, {price}") == ""
    before = rows(cursor, "select * from small.thing")
    refused = run("2 as id, 1.5D as price, 'red' as color", columns + ", {name: gone, data_type: int}")
    assert "price is double, in thing.yml decimal(12, 2)" in refused
    assert "color is not in thing.yml" in refused
    assert "gone is in thing.yml alone" in refused

    # the yml follows the model, the table does not
    colorful = columns + ", {name: color, data_type: string}"
    refused = run("2 as id, 1 as price, 'red' as color", colorful.replace("decimal(12, 2)", "int"))
    assert "price is int, in the table decimal(12,2)" in refused
    assert "color is not in the table. Run `dbt build --full-refresh --select thing+`" in refused
    assert rows(cursor, "select * from small.thing") == before
    assert run(f"2 as id, {price}, 'red' as color", colorful, "append_new_columns") == ""
    assert rows(cursor, "select id, color from small.thing order by id") == [(1, None), (2, "red")]


def test_all_columns_are_commented_by_one_change(small_project: RunModel, cursor: hive.Cursor, tmp_path) -> None:
    (tmp_path / "models" / "thing.yml").write_text(
        """
models:
  - name: thing
    config: {materialized: table, persist_docs: {columns: true}}
    columns:
      - {name: a, description: "it's a, with a \\\\ in it"}
      - {name: b, description: b}
      - {name: c, description: c}
"""
    )
    small_project("select 1 as a, 2 as b, 3 as c")
    comments = {row[0]: row[2] for row in rows(cursor, "describe small.thing")}
    assert comments == {"a": "it's a, with a \\ in it", "b": "b", "c": "c"}
    versions = rows(cursor, "select file from small.thing.metadata_log_entries")
    assert len(versions) == 2


def test_a_snapshot_loses_a_deleted_row_or_drops_other_views(
    small_project: RunModel, cursor: hive.Cursor, tmp_path: Path
) -> None:
    (tmp_path / "snapshots").mkdir()
    (tmp_path / "snapshots" / "history.yml").write_text(
        """
snapshots:
  - name: history
    relation: ref('thing')
    config:
      {schema: small, file_format: iceberg, strategy: check, check_cols: all, unique_key: id, hard_deletes: new_record}
"""
    )
    rows(cursor, "create or replace view default.history__dbt_tmp as select 'of somebody else' as a")
    for values in ("(1, 'stays'), (2, 'goes')", "(1, 'stays')"):
        small_project(f"select * from values {values} as things (id, name)")
        run_dbt_well("snapshot", directory=tmp_path, DBT_TARGET_PATH=str(tmp_path / "target"))
    assert rows(
        cursor, "select id, name, dbt_is_deleted from small.history where dbt_valid_to is null order by id"
    ) == [(1, "stays", "False"), (2, "goes", "True")]
    assert rows(cursor, "select a from default.history__dbt_tmp") == [("of somebody else",)]
    rows(cursor, "drop view default.history__dbt_tmp")
