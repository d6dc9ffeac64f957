"""The expected results as counts and totals: the content of `expected.json`. No value of a person is in it."""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable
from decimal import Decimal
from typing import TypeVar

from python_dev.stack.sample_data.expected import marts, rules
from python_dev.stack.sample_data.expected.marts import Line, Sale, Totals, Trade
from python_dev.stack.sample_data.log import PARTITIONS, TABLES, TOPICS, Log, Record
from python_dev.stack.sample_data.plan import Plan

Figures = dict[str, int | str]
Happened = TypeVar("Happened")
Dated = TypeVar("Dated", Line, Sale, Trade)


def _topic(records: list[Record]) -> dict[str, object]:
    partitions = Counter(record.partition for record in records)
    return {
        "records": len(records),
        "partitions": {str(partition): partitions[partition] for partition in range(PARTITIONS)},
        "decoded": sum(record.payload is not None for record in records),
        "tombstones": sum(record.value is None for record in records),
        "dead_letters": dict(sorted(Counter(record.error for record in records if record.error).items())),
        "max_timestamp_ms": max((record.timestamp_ms for record in records), default=None),
    }


def _table(log: Log, table: str) -> dict[str, int]:
    rows = rules.surviving_rows(log, table).values()
    return {"rows": len(rows), "deleted": sum(map(rules.is_deleted, rows))}


def _sum(amounts: Iterable[Decimal | None]) -> str:
    return str(sum((amount for amount in amounts if amount is not None), Decimal("0.00")))


def _by_week(
    items: Iterable[Happened], week_of: Callable[[Happened], str | None], figures: Callable[[list[Happened]], Figures]
) -> dict[str, Figures]:
    """Return the figures per week; what happened at an invalid time belongs to none."""
    weeks = defaultdict(list)
    for item in items:
        week = week_of(item)
        if week is not None:
            weeks[week].append(item)
    return {week: figures(weeks[week]) for week in sorted(weeks)}


def _weeks(items: Iterable[Dated], figures: Callable[[list[Dated]], Figures]) -> dict[str, Figures]:
    return _by_week(items, lambda item: item.week, figures)


def _line_figures(lines: list[Line]) -> Figures:
    return {
        "rows": len(lines),
        "quantity": sum(line.quantity for line in lines),
        "line_amount": _sum(line.line_amount for line in lines),
    }


def _sale_figures(sales: list[Sale]) -> Figures:
    return {
        "rows": len(sales),
        "quantity": sum(sale.quantity for sale in sales),
        "total_amount": _sum(sale.total_amount for sale in sales),
    }


def _demand_figures(lines: list[Line]) -> Figures:
    return _total_figures(marts.demand(lines).values())


def _activity_figures(lines: list[Line]) -> Figures:
    return _total_figures(marts.activity(lines).values())


def _total_figures(groups: Collection[Totals]) -> Figures:
    return {
        "rows": len(groups),
        "order_count": sum(group.order_count for group in groups),
        "customer_count": sum(group.customer_count for group in groups),
        "line_count": sum(group.line_count for group in groups),
        "unpriced_line_count": sum(group.unpriced_line_count for group in groups),
        "quantity": sum(group.quantity for group in groups),
        "order_value": _sum(group.order_value for group in groups),
    }


def _trade_figures(trades: list[Trade]) -> Figures:
    return {"rows": len(trades), "total_price": _sum(trade.total_price for trade in trades)}


def _payment_figures(payments: list[Record]) -> Figures:
    amounts = (rules.money(payment.content["amount"]) for payment in payments)
    return {"rows": len(payments), "amount": _sum(amounts)}


def _payment_week(payment: Record) -> str | None:
    return rules.event_week(payment.content["ts"], payment)


def _sales(log: Log, plan: Plan) -> dict[str, object]:
    lines, sales = marts.lines(log), marts.product_sales(log)
    groups = sorted({line.channel_group for line in lines})
    rolling = marts.customers_30d(sales, plan.end_ms)

    return {
        "order_lines": {
            **_line_figures(lines),
            "channel_groups": {
                group: _line_figures([line for line in lines if line.channel_group == group]) for group in groups
            },
            "weeks": _weeks(lines, _line_figures),
        },
        "product_sales": {
            **_sale_figures(sales),
            "backdated": sum(sale.is_backdated for sale in sales),
            "excluded": marts.excluded(log),
            "weeks": _weeks(sales, _sale_figures),
        },
        "product_demand": {"weeks": _weeks(lines, _demand_figures)},
        "customer_activity": {"weeks": _weeks(lines, _activity_figures)},
        "customers_30d": {
            "rows": len(rolling),
            "total_amount": _sum(amount for amount, _ in rolling.values()),
            "orders": sum(orders for _, orders in rolling.values()),
        },
    }


def summarise(log: Log, plan: Plan, wave: int) -> dict[str, object]:
    """Return the counts and totals of a log; money as strings with two decimals, weeks by their label."""
    by_topic = {topic: [record for record in log if record.topic == topic] for topic in TOPICS}
    payments, clean = rules.surviving_payments(log), rules.clean_payments(log)
    completed = list(rules.completed_orders(log).values())
    trades = marts.trades(log)
    return {
        "parameters": {
            "orders": plan.orders,
            "seed": plan.seed,
            "weeks": plan.weeks,
            "first_week": str(plan.last_week.minus(plan.weeks - 1)),
            "last_week": str(plan.last_week),
            "wave": wave,
        },
        "topics": {topic: _topic(records) for topic, records in by_topic.items()},
        "entities": {
            "payments": {"rows": len(payments), "conflicts": len(rules.conflicting_payments(log))},
            "store_orders": {
                "rows": len(rules.surviving_store_orders(log)),
                "conflicts": len(rules.conflicting_store_orders(log)),
            },
            **{table: _table(log, table) for table in TABLES},
            "trades": {"rows": len(trades)},
        },
        "payments": {
            "clean": len(clean),
            "quarantined": len(payments) - len(clean),
            "unmatched": len(clean) - len(completed),
        },
        "completed_orders": {
            **_payment_figures(completed),
            "weeks": _by_week(completed, _payment_week, _payment_figures),
        },
        "trades": {**_trade_figures(trades), "weeks": _weeks(trades, _trade_figures)},
        **_sales(log, plan),
    }
