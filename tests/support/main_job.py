"""What plain Python expects of the main lake after a wave: batches, marts, lists, files and their manifests."""

import re
from decimal import Decimal

from python_common.spark import thrift
from python_common.weeks import IsoWeek
from python_dev.stack.sample_data import produced_log
from python_dev.stack.sample_data.expected import marts
from tests.support import counted_events
from tests.support.lake import SIZE, Lake, newest

FIGURES = {
    "order_lines": {"mart": "order_lines", "week": "ordered_week", "sums": ("quantity", "line_amount")},
    "completed_orders": {"mart": "completed_orders", "week": "paid_week", "sums": ("amount",)},
    "product_sales": {"mart": "product_sales", "week": "ordered_week", "sums": ("quantity", "total_amount")},
    "customer_activity": {
        "mart": "customer_activity_weekly",
        "week": "ordered_week",
        "sums": ("order_count", "line_count", "unpriced_line_count", "quantity", "order_value"),
    },
    "product_demand": {
        "mart": "product_demand_weekly",
        "week": "ordered_week",
        "sums": ("order_count", "line_count", "unpriced_line_count", "customer_count", "quantity", "order_value"),
    },
    "trades": {"mart": "trades", "week": "traded_week", "sums": ("total_price",)},
}
EXPORTED = ("order_lines", "completed_orders", "product_sales", "customer_activity")
# Its small groups are suppressed, so its sums are not the expected ones.
AGGREGATED = ("product_demand",)


def assert_as_expected(lake: Lake, wave: int) -> None:
    assert_batch_metadata_is_as_expected(lake)
    assert_marts_are_as_expected(lake)
    assert_sales_are_as_expected(lake, wave)
    assert_lists_are_as_expected(lake)
    assert_csv_is_as_expected(lake, version=wave)
    assert_manifests_count_what_is_excluded(lake, wave)
    assert_weeks_add_up(lake, wave)


def assert_batch_metadata_is_as_expected(lake: Lake) -> None:
    """Batch by batch, the batch metadata adds up to what was produced, without a gap between ranges."""
    figures = "sum(landed_rows), sum(dead_letters), sum(until_offset - from_offset), max(until_offset)"
    batches = lake.query("ops.ingest_batches", f"select topic, kafka_partition, {figures} from rows group by all")
    landed: dict[str, dict[str, int]] = {}
    dead: dict[str, int] = {}
    for topic, partition, rows, dead_letters, spanned, until in batches:
        landed.setdefault(topic, {})[str(partition)] = rows
        dead[topic] = dead.get(topic, 0) + dead_letters
        assert spanned == until, (topic, partition)
    expected = lake.expected["topics"]
    assert landed == {topic: facts["partitions"] for topic, facts in expected.items()}
    assert dead == {topic: sum(facts["dead_letters"].values()) for topic, facts in expected.items()}


def assert_marts_are_as_expected(lake: Lake) -> None:
    """Week by week and in all; what happened at an invalid time is there too, without a week."""
    for name, figures in FIGURES.items():
        mart, expected = f"marts.fct_{figures['mart']}", lake.expected[name]
        sums = ", ".join(f"sum({column})" for column in figures["sums"])
        rows_by_week = lake.query(mart, f"select {figures['week']}, count(*), {sums} from rows group by all")
        weeks = {week: tuple(map(Decimal, numbers)) for week, *numbers in rows_by_week if week}
        assert weeks == {
            week: tuple(Decimal(in_week[column]) for column in ("rows", *figures["sums"]))
            for week, in_week in expected["weeks"].items()
        }, name
        assert sum(rows for _, rows, *_ in rows_by_week) == expected.get(
            "rows", sum(rows for rows, *_ in weeks.values())
        ), name
    groups = "select channel_group, count(*), sum(quantity), sum(line_amount) from rows group by all"
    assert {group: tuple(map(Decimal, numbers)) for group, *numbers in lake.query("marts.fct_order_lines", groups)} == {
        group: tuple(map(Decimal, figures.values()))
        for group, figures in lake.expected["order_lines"]["channel_groups"].items()
    }


def end_ms(week: IsoWeek) -> int:
    return int(week.end.timestamp()) * 1000


def customers_30d(lake: Lake, week: IsoWeek) -> dict[int, tuple[Decimal, int]]:
    """Return the 30-day figures as of the end of a week by customer."""
    figures = "select customer_id, total_amount_30d, order_count_30d from rows"
    as_of = f"as_of = timestamptz '{week.end.isoformat()}' and unpriced_line_count = 0"
    rows = lake.query("marts.fct_customers_rolling_30d", f"{figures} where {as_of}")
    return {customer: (amount, orders) for customer, amount, orders in rows}


def assert_sales_are_as_expected(lake: Lake, wave: int) -> None:
    """Row by row: the price, the addresses and the flag as of each order, and what customers bought in 30 days."""
    sales = marts.product_sales(produced_log(**SIZE, wave=wave))
    columns = "order_item_id, price, total_amount, is_backdated_dimension, shipping_city, shipping_state, billing_state"
    assert set(lake.query("marts.fct_product_sales", f"select {columns} from rows")) == {
        (
            sale.order_item_id,
            sale.price,
            sale.total_amount,
            sale.is_backdated,
            sale.shipping_city,
            sale.shipping_state,
            sale.billing_state,
        )
        for sale in sales
    }
    assert customers_30d(lake, lake.last_week) == marts.customers_30d(sales, end_ms(lake.last_week))


def assert_lists_are_as_expected(lake: Lake) -> None:
    """What the marts exclude is listed: bad codes, payments without their order, contradictions."""
    payments, entities = lake.expected["payments"], lake.expected["entities"]
    expected = {
        "masked.int_payments_quarantined": payments["quarantined"],
        "joined.int_payments_unmatched": payments["quarantined"] + payments["unmatched"],
        "ops.conflicts where source_system = 'payments'": entities["payments"]["conflicts"],
        "ops.conflicts where source_system = 'storefront'": entities["store_orders"]["conflicts"],
    }
    by_reason = "select exclusion_reason, count(*) from joined.int_order_items_excluded group by exclusion_reason"
    with thrift.connect(lake.settings) as cursor:
        counts = {listed: thrift.rows(cursor, f"select count(*) from {listed}")[0][0] for listed in expected}
        assert dict(thrift.rows(cursor, by_reason)) == lake.expected["product_sales"]["excluded"]
    assert counts == expected


def assert_csv_is_as_expected(lake: Lake, version: int) -> None:
    for name in EXPORTED:
        figures = FIGURES[name]
        manifest, rows = newest(lake, name)
        expected = lake.expected[name]["weeks"][str(lake.last_week)]
        assert manifest["version"] == version, name
        assert len(rows) == manifest["rows"] == expected["rows"], name
        for column in figures["sums"]:
            # A line without a known price has none in the file.
            assert sum(Decimal(row[column] or 0) for row in rows) == Decimal(expected[column]), (name, column)
            assert Decimal(manifest["control_totals"][column]) == Decimal(expected[column]), (name, column)


def assert_manifests_count_what_is_excluded(lake: Lake, wave: int) -> None:
    """Items without an order have no time: they count for the week that they came in."""
    events = counted_events.events(produced_log(**SIZE, wave=wave), str(lake.last_week))
    for name in EXPORTED:
        manifest, rows = newest(lake, name)
        assert sum(manifest["quarantined_by_reason"].values()) == manifest["quarantined"] > 0, name
        in_file = sum(int(row["line_count"]) for row in rows) if name == "customer_activity" else manifest["rows"]
        assert in_file + manifest["quarantined"] == events[name], name


def assert_weeks_add_up(lake: Lake, wave: int) -> None:
    """All events of the last week are counted: in the file, or with the reason why they are not."""
    checks = lake.query(
        "ops.reconciliation",
        "select subject, left_rows, right_rows from rows where check_name like '% of the weeks = % + %'",
    )
    events = counted_events.events(produced_log(**SIZE, wave=wave), str(lake.last_week))
    counts = {re.sub("exp_weekly__|fct_|_weekly$", "", subject): sides for subject, *sides in checks}
    assert counts == {name: [count, count] for name, count in events.items()}
