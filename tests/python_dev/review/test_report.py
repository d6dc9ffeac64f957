import json
from dataclasses import asdict
from decimal import Decimal

import pytest

from python_common.errors import UserError
from python_dev.review import scope
from python_dev.review.contracts import Finding
from python_dev.review.cost import Cost
from python_dev.review.report import MARKDOWN_BYTES, Acceptance, Review, TableReport, acceptances, markdown, page, write
from python_dev.review.scope import ReviewScope
from python_dev.review.table_diff import ColumnDifference, TableChange

CHANGED = {"model.shop.sales": "SQL"}
WEEK = TableReport(
    "exp_sales",
    TableChange(
        844, 844, changed=3, columns={"amount": ColumnDifference(3, 0, 0, "1.50"), "city": ColumnDifference(0, 1, 0)}
    ),
    "2026-W45",
)


def review(**fields):
    empty = {
        "base": "abc", "change": "def-dirty", "is_static": False, "scope": ReviewScope(), "findings": [], "names": {},
        "exposures": {},
    }  # fmt: skip
    return Review(**{**empty, **fields})


@pytest.mark.parametrize(
    ("fields", "verdict"),
    [
        ({}, "clean"),
        ({"scope": ReviewScope(changed=CHANGED), "tables": [TableReport("sales", TableChange())]}, "clean"),
        ({"scope": ReviewScope(changed=CHANGED), "is_static": True}, "look"),
        ({"scope": ReviewScope(hooks=["on-run-end-0"])}, "look"),
        ({"tables": [WEEK]}, "look"),
        ({"tables": [TableReport("sales", TableChange(1, 1, missing={"after": ["city"]}))]}, "look"),
        ({"tests": {"unique_sales_id": ("pass", "warn")}}, "look"),
        ({"findings": [Finding("look", "sales.city", "column added")]}, "look"),
        ({"findings": [Finding("note", "sales.city", "no longer reaches it")]}, "clean"),
        ({"tables": [WEEK], "not_compared": {"history": "its rows depend on when it was built"}}, "undecided"),
        ({"not_compared": {"a": "b"}, "findings": [Finding("breaking", "sales.city", "column removed")]}, "breaking"),
    ],
)
def test_the_verdict_is_the_worst_of_what_was_found(fields, verdict):
    assert review(**fields).verdict == verdict
    assert f"# Review: {verdict}" in markdown(review(**fields))


def test_the_report_begins_with_the_reasons_of_its_verdict():
    text = markdown(
        review(
            scope=ReviewScope(changed=CHANGED),
            names={"model.shop.sales": "sales"},
            exposures={"Weekly sales (CSV)": ["exp_sales"], "Weekly stock (CSV)": ["equal"]},
            tables=[WEEK, TableReport("sales", TableChange(9, 10, added=1)), TableReport("equal", TableChange())],
            tests={"unique_sales_id": ("pass", "fail")},
            findings=[
                Finding("look", "sales.town", "column added"),
                Finding("breaking", "sales.city", "column removed"),
                Finding("note", "sales", "description changes"),
            ],
        )
    )
    lines = (
        "- **breaking** sales.city: column removed\n- sales.town: column added\n",
        "- tests with another answer: unique_sales_id\n",
        "- tables and weeks that change: sales, exp_sales 2026-W45\n",
        "2 of 3 tables and weeks that could change do.",
        "- unique_sales_id: pass becomes fail\n",
        "| sales | 1 added of 9 |",
        "| exp_sales 2026-W45 | 3 changed of 844 | amount: 3 changed (0.4%), sum +1.50; city: NULLs +1 |\n",
        "- Weekly sales (CSV)\n",
        "- sales: description changes\n",
        "<details>",
        "- sales: SQL\n",
        "- Compared and equal: equal\n",
    )
    places = [text.index(line) for line in lines]
    assert places == sorted(places)
    assert "Weekly stock" not in text
    assert "\n\n\n" not in text


def test_reasons_beyond_the_first_are_counted_by_kind():
    found = [Finding("look", f"a{number}", "added") for number in range(8)]
    found += [Finding("breaking", f"b{number}", "removed") for number in range(7)]
    reviewed = review(findings=found)
    assert reviewed.reasons == {
        "also breaking": "b5, b6",
        "also to look at": "a0, a1, a2, a3, a4 and 3 more",
    }
    first = [line for line in markdown(reviewed).splitlines() if line.startswith("- ")][:6]
    assert first == [*(f"- **breaking** b{number}: removed" for number in range(5)), "- also breaking: b5, b6"]
    # Those of a first screen are not listed again.
    assert markdown(review(findings=found[:2])).count("a0: added") == 1


def test_without_data_an_exposure_behind_the_change_is_missing():
    exposures = {"Weekly stock (CSV)": ["equal"]}
    text = markdown(review(is_static=True, exposures=exposures, scope=ReviewScope(changed=CHANGED)))
    assert "- Weekly stock (CSV)\n" in text
    assert "- other code: model.shop.sales\n" in text
    declared = ReviewScope(changed={"model.shop.figures": scope.BY_GRAPH}, declared=["source.shop.till.sales"])
    text = markdown(review(is_static=True, scope=declared))
    assert "# Review: look\n\n- declared otherwise: source.shop.till.sales\n" in text


def test_a_finding_links_to_the_sql_of_its_node():
    found = [Finding("look", "sales.city", "column added"), Finding("note", "other", "removed")]
    text = page(review(findings=found, sql={"sales": ("select 1", "select 2")}))
    assert '<a href="#sql-sales">sales.city</a>' in text
    assert '<details id="sql-sales">' in text
    assert "#sql-other" not in text


def test_names_and_types_are_no_markup():
    columns = {"a|b": ColumnDifference(2, 0, 0)}
    text = markdown(
        review(
            findings=[
                Finding("look", "sales.tags", "type array<int> becomes map<int,`x`>"),
                Finding("note", "a", "*b*"),
            ],
            exposures={"Files\n# Review: clean": ["sales"]},
            tables=[TableReport("sales", TableChange(9, 9, changed=2, columns=columns))],
        )
    )
    for part in (
        r"- sales.tags: type array\<int> becomes map\<int,\`x\`>",
        r"- a: \*b\*",
        "- Files # Review: clean\n",
        r"| sales | 2 changed of 9 | a\|b: 2 changed (22.2%) |",
    ):
        assert part in text


def test_samples_are_on_the_page_alone(tmp_path):
    sample = {"city": ("<Bern>", "Basel"), "note": (None, None), "link": ("[a](https://b)", "&lt;*a*|b\n## c")}
    reviewed = review(tables=[TableReport("sales", TableChange(9, 9, changed=1, samples=[sample]))])
    path = write(reviewed, tmp_path)
    assert "<del>&lt;Bern&gt;</del> <ins>Basel</ins>" in path.with_name("review.html").read_text()
    shown = path.with_name("review.html").read_text()
    assert "<del>[a](https://b)</del> <ins>&amp;lt;*a*|b ## c</ins>" in shown
    assert "Basel" not in path.read_text() + path.with_name("review.json").read_text()


def test_costs_are_in_all_three_files(tmp_path):
    before, after = Cost(200, 1_200_000, 500_000_000), Cost(400, 1_300_000, 600_000_000)
    text = write(review(costs={"sales": (before, after)}), tmp_path).read_text()
    assert "| sales | 200 | 400 | 1.2 | 1.3 | 0.5 | 0.6 |" in text
    assert "<td>sales</td>" in (tmp_path / "review.html").read_text()
    assert json.loads((tmp_path / "review.json").read_text())["costs"] == {"sales": [asdict(before), asdict(after)]}


def test_a_long_report_fits_a_comment(tmp_path):
    names = {f"model.shop.m{number:04}": f"model_with_a_long_name_{number:04}" for number in range(2000)}
    reviewed = review(
        scope=ReviewScope(changed=dict.fromkeys(names, "SQL"), affected=[*names]),
        names=names,
        findings=[Finding("look", f"{name}.column", "x" * 300) for name in names.values()],
        tables=[TableReport(name, TableChange(1, 1, changed=1)) for name in names.values()],
    )
    path = write(reviewed, tmp_path / "review")
    assert len(path.read_bytes()) <= MARKDOWN_BYTES
    assert "see review.json" in path.read_text()
    content = json.loads(path.with_name("review.json").read_text())
    assert (content["version"], content["verdict"], len(content["tables"])) == (1, "look", 2000)


def test_the_page_shows_both_sides_and_makes_no_request():
    sql = {"sales": ("select id\nfrom a where x < 1", "select id\nfrom a where x < 2")}
    text = page(review(scope=ReviewScope(changed=CHANGED), names={"model.shop.sales": "sales"}, sql=sql, tables=[WEEK]))
    for part in (
        "exp_sales 2026-W45",
        "amount: 3 changed (0.4%), sum +1.50",
        "NULLs +1",
    ):
        assert part in text
    assert "x&nbsp;&lt;&nbsp;" in text
    assert "http" not in text
    assert "<script>alert" not in page(review(is_static=True, exposures={"<script>alert(1)</script>": []}))


AMOUNT = {"amount": ColumnDifference(1, 0, 0)}


@pytest.mark.parametrize(
    ("line", "change", "verdict"),
    [
        ("exp_sales rows<=3 rounding", WEEK.change, "clean"),
        ("exp_sales rows<=2 rounding", WEEK.change, "look"),
        ("exp_sales rows<=0.5% rounding", WEEK.change, "clean"),
        ("exp_sales rows<=0.1% rounding", WEEK.change, "look"),
        ("exp_sales.amount rows<=3 rounding", WEEK.change, "clean"),
        ("exp_sales.city rows<=3 rounding", WEEK.change, "look"),
        ("other rows<=3 rounding", WEEK.change, "look"),
        # Added rows and columns are no change of a column.
        ("exp_sales.amount rows<=9 rounding", TableChange(9, 9, changed=1, columns=AMOUNT), "clean"),
        ("exp_sales.amount rows<=9 rounding", TableChange(9, 10, added=1, changed=1, columns=AMOUNT), "look"),
        (
            "exp_sales.amount rows<=9 rounding",
            TableChange(9, 9, changed=1, columns=AMOUNT, missing={"after": ["x"]}),
            "look",
        ),
    ],
)
def test_a_change_is_accepted_up_to_its_bound_alone(line, change, verdict):
    accepted = acceptances(f"Why.\n\nreview-accept: {line}\n")
    reviewed = review(tables=[TableReport("exp_sales", change)], acceptances=accepted)
    assert reviewed.verdict == verdict
    is_listed = f"- {line.replace(' ', ': ', 1)}\n" in markdown(reviewed).replace("\\", "")
    assert is_listed == (verdict == "clean")


def test_a_malformed_acceptance_is_refused_with_its_form():
    with pytest.raises(UserError, match=r"'review-accept: sales a bit' accepts nothing\. Write review-accept: NODE"):
        acceptances("review-accept: sales a bit")
    assert acceptances("We accept reviews: sales rows<=1 x") == []
    assert acceptances("  review-accept: a.b rows<=1.5% c d ") == [Acceptance("a.b", Decimal("1.5"), True, "c d")]


def test_changed_tables_come_first_then_those_that_change_most():
    changes = {
        "sales": TableChange(100, 100, changed=1),
        "new": TableChange(0, 5, added=5),
        "typed": TableChange(100, 100, changed=1, missing={"after": ["id (string)"]}),
        "all": TableChange(2, 2, changed=2),
        # What is declared of others is no code of its own.
        "ops_figures": TableChange(100, 100, changed=10),
        **{f"few{number:02}": TableChange(1000, 1000, removed=1) for number in range(40)},
    }
    reviewed = review(
        scope=ReviewScope(changed={**CHANGED, "model.shop.ops_figures": scope.BY_GRAPH}),
        names={"model.shop.sales": "sales", "model.shop.ops_figures": "ops_figures"},
        tables=[TableReport(name, change) for name, change in reversed(changes.items())],
    )
    assert [table.node for table in reviewed.differing][:5] == [*changes][:5]
    text = markdown(reviewed)
    assert "| ops_figures |" in text
    assert "- and 15 more: see review.json" in text
