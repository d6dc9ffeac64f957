"""The amounts of the demo on docs/metrics.md, against plain Python."""

import inspect
import re
from decimal import Decimal

from python_common.config.environment import PROJECT_ROOT
from python_common.weeks import IsoWeek
from python_dev.commands import stack as cli
from python_dev.stack.sample_data import produced_log
from python_dev.stack.sample_data.expected import rules
from python_dev.stack.sample_data.expected import sales as expected_sales

WEEK = "2020-W53"


def test_the_money_of_the_demo_is_that_of_the_metrics_page() -> None:
    options = inspect.signature(cli.load_sample_data).parameters
    size = {name: options[name].default for name in ("orders", "seed", "weeks")}
    first = len(produced_log(**size, last_week=IsoWeek.parse(WEEK)))
    log = list(produced_log(**size, last_week=IsoWeek.parse(WEEK), wave=2))
    late_topics = re.findall(r" sample-data ([\w. -]+) --wave 2", (PROJECT_ROOT / "Makefile").read_text())[0].split()
    log = log[:first] + [record for record in log[first:] if record.topic in late_topics]
    lines = [line for line in expected_sales.lines(log) if line.week == WEEK]
    amounts = [line.line_amount or Decimal(0) for line in lines]
    of_shop = [amount for amount, line in zip(amounts, lines, strict=True) if line.order[0] == "shop"]
    sales = [sale.total_amount for sale in expected_sales.product_sales(log) if sale.week == WEEK]
    orders = rules.surviving_rows(log, "orders")
    paid: dict[bool, list[Decimal]] = {True: [], False: []}
    for key, payment in rules.completed_orders(log).items():
        if rules.event_week(payment.content["ts"], payment) == WEEK:
            ordered_week = rules.event_week(orders[key].content["orderdate"], orders[key])
            paid[ordered_week == WEEK].append(rules.money(payment.content["amount"]))

    expected = [(len(rows), sum(rows)) for rows in (amounts, of_shop, sales, paid[True], paid[False])]
    expected.insert(2, (len(of_shop) - len(sales), sum(of_shop) - sum(sales)))
    section = (PROJECT_ROOT / "docs" / "metrics.md").read_text().partition("## Which money?")[2]
    rows_of_page = re.findall(r"^\|[ 1-5]*\|.* \| ([\d,]+) \| ([\d,.]+) \|$", section, re.MULTILINE)
    assert rows_of_page == [(f"{count:,}", f"{amount:,}") for count, amount in expected]
