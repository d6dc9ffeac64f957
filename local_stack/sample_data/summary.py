"""The truth as counts and totals: what `truth.json` holds. No value of a person is in it."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from decimal import Decimal
from typing import Any

from local_stack.sample_data import truth
from local_stack.sample_data.log import PARTITIONS, TABLES, TOPICS, Log, Record
from local_stack.sample_data.plan import Plan


def _topic(records: list[Record]) -> dict[str, Any]:
    partitions = Counter(record.partition for record in records)
    return {
        "records": len(records),
        "partitions": {str(partition): partitions[partition] for partition in range(PARTITIONS)},
        "decoded": sum(record.payload is not None for record in records),
        "tombstones": sum(record.value is None for record in records),
        "dead_letters": dict(sorted(Counter(each.error for each in records if each.error).items())),
        "max_timestamp_ms": max(record.timestamp_ms for record in records),
    }


def _table(log: Log, table: str) -> dict[str, int]:
    rows = truth.surviving_rows(log, table).values()
    return {"rows": len(rows), "deleted": sum(map(truth.is_deleted, rows))}


def _by_week(items: Iterable[Any], event_ms: Callable[[Any], int], figures: Callable[[list], dict]) -> dict:
    weeks = defaultdict(list)
    for item in items:
        weeks[truth.week_of(event_ms(item))].append(item)
    return {week: figures(weeks[week]) for week in sorted(weeks)}


def _line_figures(lines: list[truth.OrderLine]) -> dict[str, Any]:
    return {
        "rows": len(lines),
        "quantity": sum(line.quantity for line in lines),
        "net_price": str(sum((line.net_price for line in lines), Decimal("0.00"))),
    }


def _payment_figures(payments: list[Record]) -> dict[str, Any]:
    amounts = (truth.money(payment.payload["amount"]) for payment in payments)
    return {"rows": len(payments), "amount": str(sum(amounts, Decimal("0.00")))}


def summarise(log: Log, plan: Plan, wave: int) -> dict[str, Any]:
    """Return the counts and totals of a log; money as strings with two decimals, weeks by their label."""
    by_topic = {topic: [record for record in log if record.topic == topic] for topic in TOPICS}
    payments, clean = truth.surviving_payments(log), truth.clean_payments(log)
    completed = list(truth.completed_orders(log).values())
    lines, prices = truth.order_lines(log), truth.trade_prices(log)
    return {
        "parameters": {
            "orders": plan.orders,
            "seed": plan.seed,
            "weeks": plan.weeks,
            "last_week": str(plan.last_week),
            "wave": wave,
        },
        "topics": {topic: _topic(records) for topic, records in by_topic.items()},
        "entities": {
            "payments": {"rows": len(payments), "conflicts": len(truth.conflicting_payments(log))},
            "store_orders": {
                "rows": len(truth.surviving_store_orders(log)),
                "conflicts": len(truth.conflicting_store_orders(log)),
            },
            **{table: _table(log, table) for table in TABLES},
            "trades": {"rows": len(prices)},
        },
        "payments": {
            "clean": len(clean),
            "quarantined": len(payments) - len(clean),
            "unmatched": len(clean) - len(completed),
        },
        "order_lines": {
            **_line_figures(lines),
            "weeks": _by_week(lines, lambda line: line.event_ms, _line_figures),
        },
        "completed_orders": {
            **_payment_figures(completed),
            "weeks": _by_week(completed, lambda each: each.payload["ts"], _payment_figures),
        },
        "trades": {"rows": len(prices), "total_price": str(sum(prices, Decimal("0.00")))},
    }
