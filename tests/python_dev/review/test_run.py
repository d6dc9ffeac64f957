"""`lakehouse review` on a lake with a Thrift server, of a small project with the real macros in git."""

import json
import re
import shutil
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from textwrap import dedent

import pytest

from python_common.config.environment import PROJECT_ROOT, environment, read_env_file
from python_common.config.settings import Settings
from python_common.spark import thrift
from python_dbt.project import Project
from python_dev.review import report
from python_dev.review.report import Review
from python_dev.review.run import review
from python_dev.stack.temporary import running
from python_jobs import fork
from tests.support import planted
from tests.support.commands import run_dbt
from tests.support.lake import contents
from tests.support.small_project import git, write_small_project

pytestmark = pytest.mark.slow

FILES = {
    "models/stg_sales.sql": """
        {{ config(schema='staging') }}
        select id, amount, buyer, week from {{ source('till', 'sales') }}""",
    "models/sold.sql": """
        with landed as (
            select * from {{ ref('stg_sales') }}
        )
        select id, amount, buyer, week from landed where amount >= 0""",
    "models/totals.sql": """
        {{ config(materialized='table') }}
        select sold.week, rates.name, sum(sold.amount * rates.rate) as total
        from {{ ref('sold') }} as sold cross join {{ ref('rates') }} as rates group by sold.week, rates.name""",
    "models/by_name.sql": "select name, sum(total) as total from {{ ref('totals') }} group by name",
    "models/untouched.sql": "{{ config(materialized='table') }} select count(*) as rates from {{ ref('rates') }}",
    "models/exp_sales.sql": """
        {{ config(materialized='incremental', incremental_strategy='replace_partitions', partitions='exported_weeks',
            partition_by='week', meta={'export': {'key': ['id']}}) }}
        select id, amount, week from {{ ref('sold') }} where {{ in_exported_weeks('week') }}""",
    # Two tests see what `priced` loses: one reads a table that is not made of it, one a table of checks.
    "models/priced.sql": """
        {{ config(materialized='table') }}
        select sales.id, rates.name from {{ ref('stg_sales') }} as sales
        left join {{ ref('rates') }} as rates on sales.amount = rates.rate""",
    "models/checks.sql": """
        {{ config(materialized='table') }}
        select 'priced' as subject, (select count(*) from {{ ref('stg_sales') }}) - count(*) as difference
        from {{ ref('priced') }}""",
    "tests/data/assert_priced__every_sale.sql": """
        select id from {{ ref('stg_sales') }} where (select rates from {{ ref('untouched') }}) > 0
        except select id from {{ ref('priced') }}""",
    "models/cheap.sql": "select id from {{ ref('stg_sales') }} where amount <= 40",
    "models/one_week.sql": """
        {{ config(materialized='table') }} select id from {{ ref('stg_sales') }} where week = '2026-W45'""",
    "models/small.yml": """
        sources: [{name: till, schema: small, tables: [
          {name: sales, columns: [{name: id}, {name: amount}, {name: buyer}, {name: week}]}]}]
        seeds: [{name: rates, columns: [{name: name}, {name: rate}]}]
        models:
          - {name: stg_sales, columns: [
              {name: id, config: {meta: {pii: none}}}, {name: amount, config: {meta: {pii: none}}},
              {name: buyer, config: {meta: {pii: email}}}, {name: week, config: {meta: {pii: none}}}]}
          - {name: sold, columns: [{name: id, data_tests: [unique]}]}
          - {name: checks, columns: [{name: difference, data_tests: [adds_up]}]}
          - {name: totals, data_tests: [unique_together: {arguments: {columns: [week, name]}}]}
          - {name: exp_sales, description: One row per sale., columns: [
              {name: id, data_type: int, data_tests: [unique]}, {name: amount, data_type: int},
              {name: week, data_type: string}]}
        exposures: [{name: sales_csv, label: Weekly sales (CSV), type: analysis, owner: {email: a@example.com},
          depends_on: [ref('exp_sales')]}]
        unit_tests:
          - {name: test_cheap__limit, model: cheap, expect: {rows: [{id: 1}]},
             given: [{input: ref('stg_sales'), rows: [{id: 1, amount: 40}, {id: 2, amount: 41}]}]}
          # A week that no review is of.
          - {name: test_exp_sales__week, model: exp_sales, expect: {rows: [{id: 1}]},
             overrides: {vars: {weeks: 2026-W40}},
             given: [{input: ref('sold'), rows: [{id: 1, week: 2026-W40}, {id: 2, week: 2026-W46}]}]}
    """,
    "seeds/rates.csv": "name,rate\nlow,1\nhigh,2\n",
}
HOOKS = {"on-run-start": ["{{ load_node_states() }}"], "on-run-end": ["{{ save_node_states(results) }}"]}
# id, amount, buyer, week
SALES = [
    (number, number % 50 - 3, f"person{number % 9}@example.com", f"2026-W{44 + number % 3}") for number in range(200)
]


@dataclass
class Shop:
    """A small project in git, whose tables are in a lake as its first commit makes them."""

    settings: Settings
    directory: Path

    def edit(self, file: str, old: str, new: str) -> None:
        path = self.directory / file
        assert old in path.read_text()
        path.write_text(path.read_text().replace(old, new))

    def review(self, is_static: bool = False, with_costs: bool = False) -> Review:
        project = Project(self.directory, environment())
        settings = None if is_static else self.settings
        result = review(settings, project, "main", 2, with_samples=True, with_costs=with_costs)
        assert [one.name for one in fork.forks(self.settings)] == []
        return result

    def changes(self, result: Review) -> dict[tuple[str, str | None], tuple[int, int, int]]:
        return {
            (table.node, table.week): (table.change.added, table.change.removed, table.change.changed)
            for table in result.tables
        }


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Settings]:
    with running(tmp_path_factory.mktemp("review"), "thrift") as (settings, _):
        with thrift.connect(settings) as cursor:
            thrift.rows(cursor, "create schema small")
            thrift.rows(
                cursor,
                "create table small.sales (id int, amount int, buyer string, week string) using iceberg"
                " partitioned by (week)",
            )
            thrift.rows(cursor, f"insert into small.sales values {', '.join(map(str, SALES))}")
        yield settings


@pytest.fixture(scope="module")
def first(lake: Settings, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of the project at its first commit, which is built."""
    directory = tmp_path_factory.mktemp("project")
    write_small_project(
        directory,
        **HOOKS,
        **{"macro-paths": ["macros"], "test-paths": ["tests/data"], "vars": {"skip_unchanged": True, "weeks": ""}},
        seeds={"+schema": "small", "+file_format": "iceberg"},
        flags={"indirect_selection": "buildable"},
    )
    for file, content in FILES.items():
        (directory / file).parent.mkdir(parents=True, exist_ok=True)
        (directory / file).write_text(dedent(content))
    shutil.copytree(PROJECT_ROOT / "macros", directory / "macros")
    shutil.copytree(PROJECT_ROOT / "tests" / "data" / "generic", directory / "tests" / "data" / "generic")
    for name in (".sqlfluff", "profiles.yml"):
        shutil.copy(PROJECT_ROOT / name, directory / name)
    (directory / ".gitignore").write_text("target\nlogs\n")
    git(directory, "init", "--initial-branch", "main")
    git(directory, "add", "--all")
    git(directory, "commit", "--message", "First")
    weeks = json.dumps({"weeks": "2026-W44,2026-W45,2026-W46"})
    built = run_dbt("build", "--vars", weeks, directory=directory, DBT_TARGET_PATH=str(directory / "target"))
    assert built.returncode == 0, built.stdout[-3000:]
    return directory


@pytest.fixture
def shop(lake: Settings, first: Path, tmp_path: Path) -> Shop:
    git(tmp_path, "clone", "--quiet", str(first), "changed")
    return Shop(lake, tmp_path / "changed")


WEEKS = ("2026-W44", "2026-W45", "2026-W46")


def rows_of(*weeks: str, least: int = 0) -> list[tuple[int, int, str, str]]:
    return [sale for sale in SALES if sale[1] >= least and sale[3] in weeks]


def repeated_amounts(least: int) -> int:
    """How many amounts are there several times, which a test of uniqueness counts."""
    amounts = Counter(amount for _, amount, _, _ in rows_of(*WEEKS, least=least))
    return sum(times > 1 for times in amounts.values())


def test_a_change_of_format_builds_nothing_and_needs_no_lake(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fork, "create", lambda *_: pytest.fail("a fork was created"))
    shop.edit("models/sold.sql", "with landed", "WITH  landed")
    shop.edit("models/totals.sql", "select sold.week", "-- per week\nSELECT   sold.week")
    result = shop.review(is_static=True)
    assert (result.verdict, result.scope.reached) == ("clean", set())
    assert shop.review() == result.__class__(**{**result.__dict__, "is_static": False})


def test_the_effect_is_as_counted_in_plain_python(shop: Shop, tmp_path: Path) -> None:
    production = contents(shop.settings)
    warned = "{name: amount, data_tests: [unique: {config: {severity: warn}}]}"
    shop.edit(
        "models/small.yml", "[{name: id, data_tests: [unique]}]", f"[{{name: id, data_tests: [unique]}}, {warned}]"
    )
    git(shop.directory, "commit", "--all", "--message", "Warn")
    shop.edit("models/sold.sql", "amount >= 0", "amount >= 10")
    result = shop.review()
    lost = {week: len(rows_of(week)) - len(rows_of(week, least=10)) for week in ("2026-W45", "2026-W46")}
    assert shop.changes(result) == {
        # A view that readers may have, though a table is made of it.
        ("sold", None): (0, len(rows_of(*WEEKS)) - len(rows_of(*WEEKS, least=10)), 0),
        ("totals", None): (0, 0, 6),
        ("by_name", None): (2, 2, 0),
        ("exp_sales", "2026-W45"): (0, lost["2026-W45"], 0),
        ("exp_sales", "2026-W46"): (0, lost["2026-W46"], 0),
    }
    [week] = [table for table in result.tables if table.week == "2026-W46"]
    sums = [sum(amount for _, amount, _, _ in rows_of("2026-W46", least=least)) for least in (0, 10)]
    assert week.change.columns["amount"].total == str(sums[1] - sums[0])
    assert (result.verdict, result.affected) == ("look", ["Weekly sales (CSV)"])
    assert result.not_compared == {}
    repeated = [repeated_amounts(least) for least in (0, 10)]
    assert result.tests == {"unique_sold_amount": (f"warn {repeated[0]}", f"warn {repeated[1]}")}
    samples = [sample for table in result.tables for sample in table.change.samples]
    assert {column for sample in samples for column in sample} == {"id", "amount", "week", "name", "total"}
    directory = report.write(result, tmp_path / "review").parent
    buyers = {"buyer": {buyer for _, _, buyer, _ in SALES}}
    planted.assert_nothing_of(
        planted.index_of_texts(buyers), [(path.name, path.read_bytes()) for path in directory.iterdir()]
    )
    text = report.markdown(result)
    assert f"| exp_sales 2026-W46 | {lost['2026-W46']} removed of {len(rows_of('2026-W46'))} | amount: " in text
    # The tags of the fork add metadata files.
    assert production.items() - {("catalog", production["catalog"])} <= contents(shop.settings).items()


def test_a_build_in_a_fork_skips_what_is_unchanged(shop: Shop, first: Path) -> None:
    weeks = json.dumps({"weeks": "2026-W44,2026-W45,2026-W46"})
    made = fork.create(shop.settings, "mine", timedelta(hours=1))
    try:
        variables = read_env_file(made.env_file)
        built = run_dbt("build", "--vars", weeks, directory=first, **variables)
        assert built.returncode == 0, built.stdout[-3000:]
        results = json.loads((made.directory / "target" / "run_results.json").read_text())["results"]
        others = ("operation.", "exposure.", "unit_test.")
        nodes = [result for result in results if not result["unique_id"].startswith(others)]
        reasons = re.findall(r"node state: (\S+: .*)", (made.directory / "logs" / "dbt.log").read_text())
        assert {result["adapter_response"].get("_message") for result in nodes} == {"unchanged"}, reasons

        shop.edit("seeds/rates.csv", "high,2", "high,3")
        built = run_dbt("build", "--vars", weeks, directory=shop.directory, **variables)
        assert built.returncode == 0, built.stdout[-3000:]
    finally:
        fork.drop(shop.settings, "mine")
    with thrift.connect(shop.settings) as cursor:
        assert thrift.rows(cursor, "select max(rate) from small.rates") == [(2,)]


def test_changes_of_others_in_production_are_none_of_this_one(shop: Shop) -> None:
    with thrift.connect(shop.settings) as cursor:
        thrift.rows(cursor, "insert into small.totals values ('2026-W44', 'of another program', 1)")
        shop.edit("models/totals.sql", "as total", "+ 1 as total")
        (shop.directory / "models" / "by_name.sql").rename(shop.directory / "models" / "renamed.sql")
        result = shop.review()
        thrift.rows(cursor, "delete from small.totals where name = 'of another program'")
    assert shop.changes(result) == {("totals", None): (0, 0, 6)}
    # What is on one side alone is not compared.
    assert result.not_compared == {}
    messages = {(finding.object, finding.message) for finding in result.findings}
    assert {("renamed", "model added"), ("by_name", "model removed"), ("renamed", "2 rows, 2 columns")} <= messages


def test_a_plan_that_is_worse_is_to_be_looked_at(shop: Shop) -> None:
    """All rows stay. `one_week` reads the view that hides the partition."""
    shop.edit("models/stg_sales.sql", "buyer, week", "buyer, concat(week, '') as week")
    shop.edit("models/priced.sql", "sales.amount = rates.rate", "sales.amount - rates.rate = 0")
    shop.edit("models/cheap.sql", "select id", "select distinct id")
    result = shop.review()
    assert ({*shop.changes(result).values()}, result.costs) == ({(0, 0, 0)}, {})
    assert {(finding.object, finding.message) for finding in result.findings if finding.severity != "note"} == {
        ("exp_sales", "a filter on small.sales no longer skips files: Iceberg gets none of week"),
        ("one_week", "a filter on small.sales no longer skips files: Iceberg gets none of week"),
        ("priced", "a join compares all pairs of rows (BroadcastNestedLoopJoin 0 to 1)"),
        ("cheap", "a shuffle is new (0 to 1)"),
    }
    assert result.verdict == "look"


# Other code, the same rows.
NO_EFFECT = (
    ("models/sold.sql", "amount >= 0", "not amount < 0"),
    ("models/totals.sql", "cross join", "inner join {{ ref('sold') }} as same on sold.id = same.id cross join"),
    ("models/by_name.sql", "sum(total)", "sum(total) + 0"),
    ("models/exp_sales.sql", "id, amount", "id, coalesce(amount, amount) as amount"),
    ("models/untouched.sql", "count(*)", "count(1)"),
)


def test_code_without_effect_is_clean_and_its_costs_counted(shop: Shop) -> None:
    for edit in NO_EFFECT:
        shop.edit(*edit)
    result = shop.review(with_costs=True)
    assert {table.node for table in result.tables} >= {"sold", "totals", "by_name", "exp_sales", "untouched"}
    assert (result.verdict, {*shop.changes(result).values()}) == ("clean", {(0, 0, 0)})
    # Views cost what reads them.
    assert result.costs.keys() == {"totals", "untouched", "exp_sales"}
    before, after = result.costs["totals"]
    assert (before.rows_read // len(SALES), after.rows_read // len(SALES)) == (1, 2)
    assert before.cpu_ns > 0 < before.bytes_shuffled
    assert f"| totals | {before.rows_read} | {after.rows_read} |" in report.markdown(result)


def test_a_new_test_that_fails_and_a_failed_build_are_breaking(shop: Shop) -> None:
    shop.edit("models/totals.sql", "group by", "union all select '2026-W44', 'low', 1 group by")
    shop.edit("models/by_name.sql", "sum(total)", "assert_true(false)")
    shop.edit(
        "models/small.yml", "{name: amount, data_type: int}", "{name: amount, data_type: int, data_tests: [unique]}"
    )
    result = shop.review()
    assert result.verdict == "breaking"
    breaking = {(finding.object, finding.message) for finding in result.findings if finding.severity == "breaking"}
    assert "totals" in {node for node, _ in breaking}
    assert "test unique_exp_sales_amount failed" in {message for _, message in breaking}
    assert result.not_compared.keys() == {"totals", "by_name"}


def test_a_deleted_model_of_an_exposure_is_breaking_and_named(shop: Shop) -> None:
    (shop.directory / "models" / "sold.sql").unlink()
    result = shop.review()
    [dbt, finding] = result.findings
    assert (result.verdict, dbt.severity, finding.severity) == ("breaking", "breaking", "breaking")
    assert "'sold' which was not found" in dbt.message
    # dbt names one model that reads it.
    assert (finding.object, finding.message) == ("Weekly sales (CSV)", "made of models/sold.sql, which is deleted")


# The sales without a rate of the same number, which are 1 and 2.
UNPRICED = len([amount for _, amount, _, _ in SALES if amount not in (1, 2)])


def test_tests_that_see_a_change_are_run_on_complete_builds(shop: Shop) -> None:
    shop.edit("models/priced.sql", "left join", "inner join")
    shop.edit("models/cheap.sql", "<= 40", "<= 39")
    shop.edit("models/by_name.sql", "sum(total)", "sum(cast(name as int))")
    result = shop.review()
    assert result.tests == {
        "assert_priced__every_sale": ("pass", f"fail {UNPRICED}"),
        "adds_up_checks_difference": ("pass", "fail 1"),
        "test_cheap__limit": ("pass", "fail 1"),
    }
    breaking = {finding.message for finding in result.findings if finding.severity == "breaking"}
    assert breaking == {*(f"test {name} failed" for name in result.tests), "the view by_name cannot be read"}
    # What fails a test is compared all the same.
    assert result.not_compared == {"by_name": "no rows of it are stored after the change"}
    assert result.verdict == "breaking"
    assert shop.changes(result)["priced", None] == (0, UNPRICED, 0)


def test_inputs_are_built_too_in_a_lake_without_tables(shop: Shop) -> None:
    """Of sample data, for instance. It comes last: the lake of this module is bare afterwards."""
    with thrift.connect(shop.settings) as cursor:
        thrift.rows(cursor, "drop view staging.stg_sales")
        for name in ("totals", "rates", "untouched", "exp_sales", "priced", "checks"):
            thrift.rows(cursor, f"drop table small.{name}")
        for name in ("sold", "by_name", "cheap"):
            thrift.rows(cursor, f"drop view small.{name}")
    shop.edit("models/totals.sql", "as total", "+ 1 as total")
    shop.edit("models/priced.sql", "left join", "inner join")
    result = shop.review()
    assert shop.changes(result)["totals", None] == (0, 0, 6)
    assert result.not_compared == {}
    # `untouched` is an input of this test alone.
    assert result.tests["assert_priced__every_sale"] == ("pass", f"fail {UNPRICED}")
