"""A quick review of a few models by hand, on rows that a test writes."""

import json
from dataclasses import replace
from pathlib import Path

import duckdb
import pytest
from typer.testing import CliRunner

from python_dbt.manifest import Column, DbtManifest, Macro, Node
from python_dbt.project import Project
from python_dev.commands import review as command
from python_dev.review import quick, report, scope
from python_dev.review.quick import QuickReview
from python_dev.review.report import Review
from python_dev.review.scope import Side
from tests.support.small_project import copy_project, git

STAGED = "select cast(id as bigint) as id, try_cast(amount as decimal(10, 2)) as amount from bronze.sales"
SOLD = "select id, sum(amount) as amount from marts.staged where amount > 1 group by id"
COUNTED = "select count(*) as sales, sum(amount) as amount from marts.sold"
PARENTS = {"staged": ["source.p.till.sales"], "sold": ["model.p.staged"], "counted": ["model.p.sold"]}


@pytest.fixture(autouse=True)
def sample(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Landed rows: `id` and `amount` as text, one amount of which is none."""
    rows = "from (values ('1', '1.50'), ('2', '0.50'), ('3', '7.00'), ('3', 'none')) as rows (id, amount)"
    duckdb.execute(f"copy (select * {rows}) to '{tmp_path}/bronze.sales.parquet'")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def data_test(name: str, sql: str, *parents: str, **more: object) -> Node:
    """Return a data test."""
    return Node(
        f"test.p.{name}", "test", name, "", compiled_code=sql, parents=[f"model.p.{one}" for one in parents], **more
    )


def unit_test(given: list[dict[str, object]], expected: list[dict[str, object]], **more: object) -> Node:
    """Return a unit test of `sold`."""
    inputs = [{"input": "ref('staged')", "rows": given}]
    name = {"unique_id": "unit_test.p.sold.adds", "resource_type": "unit_test", "name": "adds", "schema": ""}
    return Node(**name, parents=["model.p.sold"], given=inputs, expect={"rows": expected}, **more)


def project(*tests: Node, **sql: str) -> DbtManifest:
    """Return a project of three models, with other SQL or further models by name."""
    models = {"staged": STAGED, "sold": SOLD, "counted": COUNTED} | sql
    nodes = [
        Node(
            f"model.p.{name}", "model", name, "marts", name, package_name="p", raw_code=text, compiled_code=text,
            parents=PARENTS.get(name, ["model.p.sold"]), materialized="view", config={"materialized": "view"},
        )
        for name, text in models.items()
    ]  # fmt: skip
    source = Node("source.p.till.sales", "source", "sales", "bronze", identifier="sales", source_name="till")
    data_tests = [one for one in tests if one.resource_type == "test"]
    unit_tests = {one.unique_id: one for one in tests if one.resource_type == "unit_test"}
    return DbtManifest(
        {one.unique_id: one for one in (*nodes, *data_tests)}, {source.unique_id: source}, unit_tests=unit_tests
    )


def review(before: DbtManifest, after: DbtManifest) -> QuickReview:
    """Review a change."""
    compared = scope.compare(Side(before, {}), Side(after, {}))
    nodes = {**before.nodes, **after.nodes, **before.unit_tests, **after.unit_tests}
    names = {unique_id: node.name for unique_id, node in nodes.items()}
    of_code = Review("base", "change", False, compared, [], names, [], [])
    return quick.review(of_code, *quick.build(before, Path(), Path()), quick.Places(after, Path()))


def changed(old: str, new: str, *tests: Node) -> QuickReview:
    """Review another text in the SQL of `sold`, with the same tests before and after it."""
    assert old in SOLD
    return review(project(*tests), project(*tests, sold=SOLD.replace(old, new)))


def messages(result: Review, severity: str) -> dict[str, str]:
    return {one.object: one.message for one in result.findings if one.severity == severity}


MANY = data_test("many", "select * from marts.counted where sales < 2", "counted")
ADDS = unit_test(
    [{"id": 1, "amount": 1.1}, {"id": 1, "amount": 2}, {"id": 2, "amount": 0.2}], [{"id": 1, "amount": 3.1}]
)


@pytest.mark.parametrize(
    ("limit", "tests", "verdict", "answers"),
    [
        ("1.20", [], "nothing found in 2 models and 0 tests; run the full review before merging", {}),
        ("1.05", [ADDS], "nothing found in 2 models and 1 tests; run the full review before merging", {}),
        ("2", [], "look", {}),
        ("2", [MANY], "breaking", {"many": ("pass", "fail 1")}),
        ("2", [replace(MANY, config={"severity": "warn"})], "look", {"many": ("pass", "warn 1")}),
        ("1.50", [ADDS], "breaking", {"adds": ("pass", "fail 2")}),
    ],
)
def test_the_verdict_is_never_clean_and_shows_other_answers(
    limit: str, tests: list[Node], verdict: str, answers: dict[str, tuple[str, str]]
) -> None:
    result = changed("amount > 1", f"amount > {limit}", *tests)
    assert (result.verdict, result.tests) == (verdict, answers)
    assert report.markdown(result).splitlines()[1] == f"# Review: {verdict}"
    assert [table.node for table in result.tables] == ["counted", "sold"]


def test_rows_that_differ_are_counted_where_they_are_read() -> None:
    rows = {
        table.node: (table.change.rows_before, table.change.rows_after) for table in changed("> 1", "> 2").differing
    }
    assert rows == {"sold": (2, 1), "counted": (1, 1)}


def test_a_unit_test_with_another_context_needs_spark() -> None:
    overridden = unit_test([{"id": 1, "amount": 3}], [{"id": 1}], overrides={"vars": {"week": "2026-W01"}})
    result = changed("> 1", "> 1.20", overridden)
    assert messages(result, "note") == {"adds": "needs Spark: it overrides variables or macros"}
    before, after = (project(unit_test([], []), sold=sql) for sql in (SOLD, SOLD.replace("> 1", "> 1.20")))
    for side in (before, after):
        side.macros["macro.p.masked"] = Macro("masked", "p", "{% if model.resource_type == 'unit_test' %}")
        side.nodes["model.p.sold"].macros.append("macro.p.masked")
    assert messages(review(before, after), "note") == {"adds": "needs Spark: it overrides masked"}


def test_a_config_that_sql_does_not_show_is_undecided() -> None:
    after = project()
    sold = after.nodes["model.p.sold"]
    after.nodes["model.p.sold"] = replace(sold, config={"materialized": "table"}, materialized="table")
    result = review(project(), after)
    assert result.not_compared == {"sold": "needs Spark: config materialized view becomes table"}


def test_what_only_an_increment_reads_is_undecided() -> None:
    bounded = SOLD.replace("amount > 1", "id > cast(lakehouse_bound('sales_after', '0') as bigint) and amount > 1")
    for sql in (bounded, bounded.replace(" and amount > 1", "")):
        result = review(project(sold=sql), project(sold=sql.replace("id >", "id >=")))
        assert result.not_compared == {"sold": "needs Spark: it is incremental, and reads other batches or keys"}
    assert review(project(sold=bounded), project(sold=bounded.replace("> 1", "> 1.20"))).not_compared == {}


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("sum(amount)", "mode(amount)", "mode was not compared with Spark's"),
        ("amount > 1", "price > 1", "Binder Error"),
        ("amount > 1", "amount > true", "Binder Error"),
        ("amount > 1", "tests.amount > 1", "Binder Error"),
        ("sum(amount)", "array(sum(amount))", "its columns are not compared, Binder Error"),
    ],
)
def test_sql_that_duckdb_does_not_run_is_undecided(old: str, new: str, reason: str) -> None:
    result = changed(old, new)
    assert (result.verdict, report.EXIT_CODES[result.verdict], [*result.not_compared]) == ("undecided", 12, ["sold"])
    assert result.not_compared["sold"].startswith(f"needs Spark: {reason}")
    assert messages(result, "note")["counted"].startswith("needs Spark: ")


def test_sql_that_begins_to_fail_is_breaking_but_new_sql_not() -> None:
    wrong = SOLD.replace("amount > 1", "cast(concat('a', id) as bigint) > 1")
    result = review(project(), project(sold=wrong))
    assert result.verdict == "breaking"
    assert messages(result, "breaking") == {"sold": "fails on the sample data (ConversionException)"}
    assert [*review(project(), project(extra=wrong)).not_compared] == ["extra"]


def test_a_column_of_another_type_is_found() -> None:
    [table] = changed("select id", "select cast(id as int) as id").differing
    assert table.change.missing == {"before": ["id (BIGINT)"], "after": ["id (INTEGER)"]}


def test_what_fails_on_both_sides_is_never_green() -> None:
    wrong = data_test("wrong", "select * from marts.sold where unknown", "sold")
    failing = {"extra": "select cast('a' as int) as x from marts.sold"}
    result = review(project(wrong, **failing), project(wrong, **failing, sold=SOLD.replace("> 1", "> 1.20")))
    assert {*messages(result, "note")} == {"wrong", "extra"}
    assert (result.built, result.tested) == (2, 0)


def test_a_masked_column_is_built_with_a_key_of_no_lake() -> None:
    pads = "(select unhex(substr(split_part(pads.value, ':', 2), 1, 128)) from spark_catalog.default.pii_pads as pads)"
    masked = f"select id, sha2(concat({pads}, encode(cast(id as string), 'UTF-8')), 256) as masked from marts.staged"
    result = review(
        project(sold=masked, counted="select 1 as x"),
        project(sold=f"{masked} where id > 0", counted="select 2 as x"),
    )
    assert {table.node for table in result.differing} == {"counted"}


def test_against_nothing_all_is_tested_and_named(tmp_path: Path) -> None:
    tests = [
        data_test("wrong", "select * from marts.counted where sales > 1", "counted"),
        data_test("moded", "select mode(id) from marts.sold", "sold"),
        unit_test([{"id": 1, "amount": 2}], [{"id": 1, "amount": 3}]),
    ]
    result = quick.of_all(
        project(*tests, extra="select xxhash64(id) as x from marts.sold"), Project(tmp_path, {}), Path()
    )
    assert messages(result, "breaking") == {"wrong": "test answers fail 1", "adds": "test answers fail 2"}
    assert {*result.not_compared} == {"moded", "extra"}
    assert (result.verdict, result.built, result.tested) == ("breaking", 3, 2)
    result = quick.of_all(project(), Project(tmp_path, {}), Path())
    assert result.verdict == "nothing found in 3 models and 0 tests; run the full review before merging"


def test_a_table_that_was_not_landed_needs_spark(sample: Path) -> None:
    (sample / "bronze.sales.parquet").unlink()
    assert changed("> 1", "> 2").not_compared == {"sold": "needs Spark: made of sales"}


def test_a_seed_is_read_as_declared(tmp_path: Path) -> None:
    rates = tmp_path / "rates.csv"
    rates.write_text("name,rate\nfull,1.50\n,2\n")
    node = Node(
        "seed.p.rates",
        "seed",
        "rates",
        "reference",
        "rates",
        original_file_path=str(rates),
        columns={"name": Column("string")},
        config={"column_types": {"rate": "decimal(4,2)"}},
    )
    engine = quick.Engine(tmp_path)
    places = quick.Places(DbtManifest({node.unique_id: node}), Path())
    engine.build(places, [node.unique_id])
    assert engine.run("select name, rate::varchar from before.reference.rates order by rate") == [
        ("full", "1.50"),
        (None, "2.00"),
    ]
    engine = quick.Engine(tmp_path)
    engine.build(quick.Places(DbtManifest({node.unique_id: replace(node, config={})}), Path()), [node.unique_id])
    assert [str(error) for error in engine.errors.values()] == ["its columns have no declared types"]


@pytest.mark.slow
def test_both_sides_are_compiled_for_the_weeks_of_the_sample(
    tmp_path: Path, sample: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a checkout of this project that has no landed rows, the one mart that reads none is compared."""
    monkeypatch.setenv("LAKEHOUSE_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(command, "SAMPLE", sample)
    monkeypatch.setattr(command, "PROJECT_ROOT", tmp_path / "project")
    assert "make sample" in str(CliRunner().invoke(command.app, ["--quick"]).exception)
    (sample / "weeks").write_text("2001-W01")
    directory = tmp_path / "project"
    directory.mkdir()
    copy_project(directory)
    git(directory, "init", "--quiet")
    git(directory, "add", "--all")
    git(directory, "commit", "--quiet", "--message", "before")
    for file, old, new in (
        ("models/marts/dim_dates.sql", "quarter(date_day)", "month(date_day)"),
        ("models/exports/exp_weekly__order_lines.sql", "where", "where true and"),
    ):
        text = (directory / file).read_text()
        (directory / file).write_text(text.replace(old, new))
    ended = CliRunner().invoke(command.app, ["--quick", "--base", "HEAD"])
    result = json.loads((directory / "target" / "review" / "review.json").read_text())
    assert (ended.exit_code, result["verdict"]) == (12, "undecided")
    assert [table["node"] for table in result["tables"] if table["change"]["changed"]] == ["dim_dates"]
    assert [*result["not_compared"]] == ["exp_weekly__order_lines"]
    assert all("2001-W01" in sql for sql in result["sql"]["exp_weekly__order_lines"])
    assert {file.suffix for file in (tmp_path / "home" / "review-cache").iterdir()} == {".json", ".msgpack"}
