"""The questions of analysts, asked of the main lake: each has an answer, and the metrics are those of plain Python."""

import re
from datetime import UTC, datetime
from decimal import Decimal

import pytest

from python_common.config.environment import PROJECT_ROOT, home
from python_common.spark import thrift
from python_dbt.manifest import load
from python_dev.stack.sample_data import produced_log
from python_dev.stack.sample_data.expected import marts, rules
from tests.support.commands import run_dbt
from tests.support.lake import DATASETS, SIZE, Lake

ANALYSES = sorted(path.stem for path in (PROJECT_ROOT / "analyses").glob("*.sql"))
Rows = list[dict[str, object]]


def ask(lake: Lake, sql: str) -> Rows:
    with thrift.connect(lake.settings) as cursor:
        rows = thrift.rows(cursor, sql)
        return [dict(zip([name for name, *_ in cursor.description], row, strict=True)) for row in rows]


@pytest.fixture(scope="module")
def compiled(lake: Lake, first_wave: object) -> dict[str, str]:
    """The SQL of each analysis; what a table was is asked of now, for no snapshot is of last Monday."""
    target = home() / "target" / "analyses"
    now = f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S}"
    done = run_dbt("compile", "--select", "path:analyses", "--vars", f"as_of: '{now}'", "--target-path", str(target))
    assert done.returncode == 0, done.stdout
    nodes = load(target / "manifest.json").nodes.values()
    return {node.name: node.compiled_code for node in nodes if node.resource_type == "analysis" and node.description}


@pytest.fixture(scope="module")
def answers(lake: Lake, compiled: dict[str, str]) -> dict[str, Rows]:
    return {name: ask(lake, sql) for name, sql in compiled.items()}


def test_every_analysis_is_described_and_has_an_answer(answers: dict[str, Rows]) -> None:
    assert sorted(answers) == ANALYSES
    assert [name for name, rows in answers.items() if not rows] == []
    assert [
        (name, column)
        for name, rows in answers.items()
        for column in rows[0]
        if all(row[column] is None for row in rows)
    ] == []


def test_metrics_are_as_expected(lake: Lake, answers: dict[str, Rows]) -> None:
    week = str(lake.last_week)
    lines = [line for line in marts.lines(produced_log(**SIZE, wave=1)) if line.week == week]
    expected = {name: lake.expected[name]["weeks"][week] for name in ("product_sales", "completed_orders", "trades")}
    gross = sum(line.line_amount or 0 for line in lines)
    metrics = dict(answers["metrics_of_a_week"][0])
    page = (PROJECT_ROOT / "docs" / "metrics.md").read_text()
    assert [name for name in metrics if f"\n| `{name}` | " not in page] == []
    average = metrics.pop("average_order_value")
    assert metrics == {
        "orders": len({line.order for line in lines}),
        "order_lines": len(lines),
        "pieces": sum(line.quantity for line in lines),
        "active_customers": len({line.customer for line in lines if line.customer[-1] is not None}),
        "gross_order_value": gross,
        "product_sales": Decimal(expected["product_sales"]["total_amount"]),
        "completed_orders": expected["completed_orders"]["rows"],
        "paid_amount": Decimal(expected["completed_orders"]["amount"]),
        "traded_value": Decimal(expected["trades"]["total_price"]),
    }
    assert abs(average - gross / metrics["orders"]) < Decimal("0.01")


def test_gross_order_value_less_unsold_lines_is_product_sales(lake: Lake, answers: dict[str, Rows]) -> None:
    [metrics] = answers["metrics_of_a_week"]
    figures = {row["step"]: (row["item_count"], row["amount"] or 0) for row in answers["shop_money_of_a_week"]}
    for counted in (0, 1):
        assert figures[1][counted] - figures[2][counted] == figures[3][counted] > 0
        assert figures[2][counted] > 0
    assert figures[3][1] == metrics["product_sales"]
    assert figures[4][0] + figures[5][0] == metrics["completed_orders"]
    assert figures[4][1] + figures[5][1] == metrics["paid_amount"]


def test_shares_and_sums_add_up(lake: Lake, answers: dict[str, Rows]) -> None:
    [metrics] = answers["metrics_of_a_week"]
    for name, share, amount, metric in (
        ("brand_sales", "sales_share", "product_sales", "product_sales"),
        ("payment_method_shares", "paid_share", "paid_amount", "paid_amount"),
    ):
        assert abs(sum(row[share] for row in answers[name]) - 1) < Decimal("0.0001"), name
        assert sum(row[amount] for row in answers[name]) == metrics[metric], name
    for name in ("orders_by_hour", "lines_of_one_week"):
        assert sum(row["gross_order_value"] or 0 for row in answers[name]) == metrics["gross_order_value"], name
    week = next(row for row in answers["sales_as_of_a_moment"] if row["ordered_week"] == str(lake.last_week))
    assert week["product_sales"] == metrics["product_sales"]


def test_orders_and_demand_are_as_expected(lake: Lake, answers: dict[str, Rows]) -> None:
    week = str(lake.last_week)
    log = produced_log(**SIZE, wave=1)
    orders = rules.surviving_rows(log, "orders")
    paid = sum(
        rules.event_week(orders[key].content["orderdate"], orders[key]) == week for key in rules.completed_orders(log)
    )
    [metrics] = answers["metrics_of_a_week"]
    assert sum(row["paid_order_count"] for row in answers["orders_paid"]) == paid > 0
    assert sum(row["gross_order_value"] or 0 for row in answers["orders_paid"]) == metrics["gross_order_value"]
    lines = [line for line in marts.lines(log) if line.week == week and line.product[-1] is not None]
    assert {
        (row["channel_group"], row["product_key"], row["category"]): (row["quantity"], row["order_value"])
        for row in answers["weekly_demand"]
    } == {key: (totals.quantity, totals.order_value) for key, totals in marts.demand(lines).items()}
    assert {row["dataset"]: row["file_rows"] for row in answers["weekly_file_rows"]} == {
        name: lake.expected[name]["weeks"][week]["rows"] for name in DATASETS
    }


def test_one_week_reads_the_files_of_one_week(lake: Lake, compiled: dict[str, str]) -> None:
    """What a partition answers by itself is not in the filter behind the scan, which other tables need."""
    plans = {}
    for name in ("lines_of_one_week", "orders_by_hour"):
        [row] = ask(lake, f"explain {compiled[name]}")
        plans[name] = str(*row.values()).split("== Physical Plan ==")[-1]
        assert f"ordered_week = '{lake.last_week}'" in plans[name], name
    assert [name for name, plan in plans.items() if re.search(r"\bFilter\b", plan)] == ["orders_by_hour"]
