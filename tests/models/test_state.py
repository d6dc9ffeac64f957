"""State-aware builds: after any sequence of changes a build that skips gives what a full build gives."""

import json
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from textwrap import dedent
from typing import Any

import pytest
import yaml
from pyhive import hive

from python_common import pii_key
from python_common.config.settings import Settings
from python_common.spark import thrift
from python_common.spark.thrift import rows
from python_dev.stack.temporary import running
from tests.support.commands import run_dbt
from tests.support.seeds import SEED
from tests.support.services.interpreted import INTERPRETED
from tests.support.small_project import write_small_project

pytestmark = pytest.mark.slow

HOOKS = {
    "on-run-start": ["{{ check_pii_key() }}", "{{ load_node_states() }}"],
    "on-run-end": ["{{ tag_tested(results) }}", "{{ save_node_states(results) }}"],
}
CONFIG = "materialized='incremental', incremental_strategy="
PROJECT = {
    "staging.sql": """
        select id, email, amount, week, ingest_batch, ingested_at from {{ source('till', 'sales') }}""",
    "masked.sql": """
        select
            id, {{ masked('staging', 'email', as='pseudonym') }} as buyer, {{ pii_key_version() }} as key_version,
            amount, week, ingest_batch, ingested_at
        from {{ ref('staging') }}""",
    "sold.sql": """
        {{ config(CONFIG'earliest', unique_key='id', order_by=['ingest_batch'], follows='sources') }}
        with ranked as (
            select *, {{ earliest_of('id', ['ingest_batch', 'amount']) }} as rank_in_key
            from {{ ref('masked') }} where {{ in_new_batches() }}
        )
        select id, buyer, key_version, amount, week, ingest_batch from ranked where rank_in_key = 1""",
    "totals.sql": """
        {{ config(materialized='table') }}
        select sold.week, rates.name, sum(sold.amount * rates.rate) as total, count(distinct sold.buyer) as buyers
        from {{ ref('sold') }} as sold cross join {{ ref('rates') }} as rates group by sold.week, rates.name""",
    "by_name.sql": "select name, sum(total) as total from {{ ref('totals') }} group by name",
    "exp_sales.sql": """
        {{ config(CONFIG'replace_partitions', partitions='exported_weeks', partition_by='week',
            meta={'export': {'key': ['id']}}) }}
        select id, amount, week from {{ ref('sold') }} where {{ in_exported_weeks('week') }}""",
    "clock.sql": """
        {{ config(materialized='table') }}
        select current_timestamp() as at, count(*) as sales from {{ ref('sold') }}""",
    # A name that only Spark's evaluation knows: tests of SqlSources.java have the other reads that are never skipped.
    "named.sql": """
        {{ config(materialized='table') }} select count(*) as sales from identifier('small' || '.sales')""",
    "small.yml": """
        sources: [{name: till, schema: small, tables: [{name: sales}]}]
        models:
          - {name: staging, config: {schema: staging, alias: stg_till__sales}, columns: [
              {name: email, config: {meta: {pii: email}}}]}
          - {name: masked, config: {schema: masked, alias: int_sales_masked}}
          - {name: sold, columns: [{name: id, data_tests: [unique, not_null]}, {name: key_version}]}
          - {name: totals, columns: [{name: total, description: EDITED, data_tests: [not_null]}]}
          - {name: by_name, columns: [{name: name, data_tests: [unique: {config: {severity: SEVERITY}}]}]}
          - {name: exp_sales, columns: [{name: id, data_tests: [unique]}]}
          - {name: clock, columns: [{name: at, data_tests: [not_null]}]}
        snapshots:
          - name: history
            relation: ref('totals')
            config: {schema: small, file_format: iceberg, strategy: check, check_cols: all, unique_key: "week || name",
              hard_deletes: new_record}
    """,
}
TABLES = ("small.sales", "small.sold", "small.totals", "small.history", "small.exp_sales", "small.rates", "small.named")
VIEWS = ("staging.stg_till__sales", "masked.int_sales_masked", "small.by_name")
ALWAYS_RUN = {"model.small.clock", "test.small.not_null_clock_at", "model.small.named"}


@dataclass
class Shop:
    """A small project on a lake, and what happens to both; `edits` are texts of the project and their replacements."""

    settings: Settings
    directory: Path
    cursor: hive.Cursor
    rng: Random
    batch: int = 0
    week: str = "2026-W45"
    is_rotated: bool = False
    edits: dict[str, str] = field(default_factory=lambda: {"EDITED": "first", "SEVERITY": "warn"})
    skipped: Counter[str] = field(default_factory=Counter)

    def sql(self, statement: str) -> list[tuple[Any, ...]]:
        return rows(self.cursor, statement)

    def write(self) -> None:
        """Write the project with its edits."""
        for name, template in PROJECT.items():
            text = dedent(template)
            for before, after in {"CONFIG": CONFIG, **self.edits}.items():
                text = text.replace(before, after)
            (self.directory / "models" / name).write_text(text)
        (self.directory / "seeds" / "rates.csv").write_text(f"name,rate\nlow,1\nhigh,{self.edits.get('RATE', 2)}\n")

    def build(self, mode: str) -> dict[str, tuple[str, int | None]]:
        """Run `dbt build`; return status and failures by node, empty if a hook stopped it."""
        self.write()
        target = self.directory / mode
        refresh = ["--full-refresh"] if mode == "refresh" else []
        (target / "run_results.json").unlink(missing_ok=True)
        names = {"week": self.week, "skip_unchanged": mode == "skipping"}
        run_dbt(
            *("build", *refresh, "--vars", json.dumps(names)),
            *("--target-path", str(target), "--log-path", str(target)),
            directory=self.directory,
        )
        if not (target / "run_results.json").is_file():
            return {}
        results = json.loads((target / "run_results.json").read_text())["results"]
        self.skipped[mode] += sum(result["adapter_response"].get("_message") == "unchanged" for result in results)
        nodes = [result for result in results if not result["unique_id"].startswith("operation.")]
        return {result["unique_id"]: (result["status"], result["failures"]) for result in nodes}

    def contents(self) -> dict[str, Any]:
        """Return the rows of all tables, the definitions and rows of views, and the rows that were tested last."""
        there = {f"{row[0]}.{row[1]}" for row in self.sql("show tables in small")}
        state: dict[str, Any] = {
            name: (self.sql(f"describe {name}"), Counter(self.sql(f"select * from {name}")))
            for name in (*TABLES, *VIEWS)
            if name in there or name in VIEWS
        }
        state |= {f"definition of {name}": self.sql(f"show create table {name}") for name in VIEWS}
        tags = self.sql("select name from small.exp_sales.refs where name like 'tested-%'")
        for (tag,) in tags:
            state[tag] = Counter(self.sql(f"select * from small.exp_sales version as of '{tag}'"))
        return state


def wave(shop: Shop) -> None:
    """Land a batch of sales, some of them of known ids."""
    shop.batch += 1
    landed = ", ".join(
        f"({shop.rng.randrange(40)}, 'person{shop.rng.randrange(9)}@example.com', {shop.rng.randrange(99)},"
        f" '2026-W{shop.rng.choice((44, 45, 46))}', {shop.batch}, timestamp '2026-11-09 00:00:00')"
        for _ in range(8)
    )
    shop.sql(f"insert into small.sales (id, email, amount, week, ingest_batch, ingested_at) values {landed}")


def foreign_rows(shop: Shop) -> None:
    """Another program writes rows, also to tables of dbt."""
    name = shop.rng.choice(("small.totals", "small.exp_sales", "small.sold", "small.rates", "small.history"))
    shop.sql(f"insert into {name} select * from {name} limit 1")


def rollback(shop: Shop) -> None:
    """Another program rolls a table back to a former snapshot."""
    name = shop.rng.choice(("small.totals", "small.exp_sales", "small.sold", "small.sales"))
    snapshots = shop.sql(f"select snapshot_id from {name}.history where is_current_ancestor order by made_current_at")
    if len(snapshots) > 1:
        shop.sql(f"call lake.system.rollback_to_snapshot('{name}', {shop.rng.choice(snapshots[:-1])[0]})")


def alter(shop: Shop) -> None:
    """Another program changes columns and comments."""
    shop.sql(
        shop.rng.choice(
            (
                f"alter table small.sales add column added_{shop.batch}_{shop.rng.randrange(99)} string",
                "alter table small.totals alter column total comment 'of another program'",
                "alter table small.sold alter column amount comment 'of another program'",
                "alter table small.sales alter column amount type bigint",
                "alter table small.totals drop column if exists buyers",
            )
        )
    )


def replaced_view(shop: Shop) -> None:
    """Another program replaces a view; its properties stay."""
    name, sql = shop.rng.choice(
        (
            (
                "staging.stg_till__sales",
                "select id, email, amount + 1 as amount, week, ingest_batch, ingested_at from small.sales",
            ),
            ("small.by_name", "select name, total from small.totals"),
        )
    )
    shop.sql(f"create or replace view {name} as {sql}")


def edit(shop: Shop) -> None:
    """The project is edited: a description, a test's severity, SQL, a seed."""
    key, value = shop.rng.choice(
        (
            ("EDITED", f"description {shop.rng.randrange(99)}"),
            ("SEVERITY", shop.rng.choice(("warn", "error"))),
            ("sold.amount * rates.rate", f"sold.amount * rates.rate + {shop.rng.randrange(9)}"),
            ("group by name", f"group by name having count(*) > {shop.rng.randrange(2)}"),
            ("RATE", str(shop.rng.randrange(2, 9))),
        )
    )
    shop.edits[key] = value


def other_week(shop: Shop) -> None:
    shop.week = shop.rng.choice(("2026-W44", "2026-W45", "2026-W46", "2026-W44, 2026-W46"))


def rotation(shop: Shop) -> None:
    """The masking key is rotated; builds stop until everything is masked again."""
    pii_key.rotate(shop.settings.pii_key_file)
    shop.is_rotated = True


ACTIONS: tuple[Callable[[Shop], None], ...] = (wave, foreign_rows, rollback, alter, replaced_view, edit, other_week)


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Settings]:
    """A separate lake of the module, without a broker."""
    with running(tmp_path_factory.mktemp("state"), "thrift", more=INTERPRETED) as (settings, _):
        yield settings


@pytest.fixture
def shop(lake: Settings, tmp_path: Path) -> Iterator[Shop]:
    write_small_project(
        tmp_path, **HOOKS, vars={"skip_unchanged": True}, seeds={"+schema": "small", "+file_format": "iceberg"}
    )
    for name in ("seeds", "snapshots"):
        (tmp_path / name).mkdir()
    with thrift.connect(lake) as cursor:
        shop = Shop(lake, tmp_path, cursor, Random(0))
        shop.sql("create schema if not exists small")
        for name in ("sold", "totals", "exp_sales", "rates", "history", "clock", "named"):
            shop.sql(f"drop table if exists small.{name}")
        shop.sql(
            "create or replace table small.sales (id int, email string, amount int, week string, ingest_batch bigint,"
            " ingested_at timestamp) using iceberg tblproperties ('format-version' = '2')"
        )
        wave(shop)
        yield shop


def test_a_write_during_a_build_is_noted_or_costs_others(shop: Shop) -> None:
    shop.sql("drop table if exists ops.node_states")
    path = shop.directory / "dbt_project.yml"
    before_the_notes = [
        # Others drop an input, add a row, add a column.
        "drop table small.sales",
        "insert into small.exp_sales select * from small.exp_sales limit 1",
        "alter table small.totals add column other int",
        "{{ save_node_states(results) }}",
    ]
    path.write_text(yaml.safe_dump(yaml.safe_load(path.read_text()) | {"on-run-end": before_the_notes}))
    # One writes to a table before the build looks at it again.
    other_write = [
        "set `spark.sql.iceberg.snapshot-property.lakehouse.built-from`=`other`",
        "insert into {{ this }} values (2)",
    ]
    (shop.directory / "models" / "shared.sql").write_text(
        f"{{{{ config(materialized='table', post_hook={other_write}) }}}} select 1 as id"
    )
    assert {status for status, _ in shop.build("skipping").values()} <= {"pass", "success"}
    noted = {unique_id for (unique_id,) in shop.sql("select unique_id from ops.node_states")}
    assert {"model.small.totals", "seed.small.rates"} <= noted
    assert not {"model.small.sold", "model.small.staging", "model.small.shared", "model.small.by_name"} & noted
    tested = {unique_id.split(".")[2] for unique_id in noted if unique_id.startswith("test.")}
    assert {"unique_sold_id", "not_null_sold_id"} <= tested
    assert not {"unique_exp_sales_id", "not_null_totals_total"} & tested


def test_a_server_without_the_functions_is_accepted(shop: Shop) -> None:
    path = shop.directory / "dbt_project.yml"
    project = yaml.safe_load(path.read_text())
    path.write_text(yaml.safe_dump(project | {"macro-paths": [*project["macro-paths"], "macros"]}))
    (shop.directory / "macros").mkdir()
    (shop.directory / "macros" / "run_query.sql").write_text(
        "{% macro run_query(sql) %}{% do return(dbt.run_query(sql | replace('lakehouse_', 'other_'))) %}{% endmacro %}"
    )
    assert shop.build("skipping") == {}
    log = (shop.directory / "skipping" / "dbt.log").read_text()
    assert "Spark has no function lakehouse_bound. Add LakehouseExtensions" in log


def test_a_build_that_skips_gives_what_a_full_build_gives(shop: Shop) -> None:
    """A rotation of the key comes last."""
    shop.rng = Random(SEED)
    steps = [shop.rng.sample(ACTIONS, k=shop.rng.randrange(1, 5)) for _ in range(11)] + [[rotation, wave]]
    shop.build("skipping")
    for position, actions in enumerate(steps):
        for act in actions:
            act(shop)
        if shop.is_rotated:
            assert shop.build("skipping") == shop.build("full") == {}
            shop.build("refresh")
            shop.is_rotated = False
        skipping, after_skipping = shop.build("skipping"), shop.contents()
        full, after_full = shop.build("full"), shop.contents()
        where = f"seed {SEED}, step {position}: {[[act.__name__ for act in step] for step in steps[: position + 1]]}"
        assert skipping == full, where
        for name in after_full:
            assert after_skipping[name] == after_full[name], f"{where}: {name}"
        assert after_skipping.keys() == after_full.keys(), where
    # What did not pass runs again, and what comes from it; the clock always does.
    before = shop.skipped["skipping"]
    last = shop.build("skipping")
    assert shop.skipped["full"] == 0
    if {status for status, _ in last.values()} <= {"pass", "success"}:
        assert shop.skipped["skipping"] - before == len(last) - len(ALWAYS_RUN)
