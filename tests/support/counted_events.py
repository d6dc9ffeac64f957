"""How many events of the sample data a week counts, in its files or excluded from them, and late; in plain Python.

Like `python_dev.stack.sample_data.expected`, it reads the log alone and shares nothing with the SQL.
"""

from collections.abc import Iterator

from python_common.weeks import IsoWeek
from python_dev.stack.sample_data.expected import rules
from python_dev.stack.sample_data.log import Log, Record

DATASETS = ("order_lines", "customer_activity", "product_demand")


def _items(log: Log, week: str) -> Iterator[tuple[Record, Record | None]]:
    """Yield the living items that a week counts, each with its order, None if that has no valid time.

    The time of the item's last change counts instead.
    """
    orders = rules.surviving_rows(log, "orders")
    for item in rules.surviving_rows(log, "order_items").values():
        order = None if rules.is_deleted(item) else orders.get(item.content["orderid"])
        order_week = rules.event_week(order.content["orderdate"], order) if order and order.payload else None
        counted_in = order_week or rules.event_week(item.timestamp_ms, item)
        if not rules.is_deleted(item) and counted_in == week:
            yield item, order if order_week else None


def _payments(log: Log, week: str) -> Iterator[tuple[int, Record, bool]]:
    """Yield order id and payment of those that a week counts, and whether the time of payment is valid."""
    for number, payment in rules.surviving_payments(log).items():
        paid_week = rules.event_week(payment.content["ts"], payment)
        if (paid_week or rules.event_week(payment.timestamp_ms, payment)) == week:
            yield number, payment, paid_week is not None


def events(log: Log, week: str) -> dict[str, int]:
    """Return how many events a week counts, in its files or excluded from them: of what each dataset is made of."""
    items = len([*_items(log, week)])
    store_lines = sum(
        len(order.content["order_lines"])
        for order in rules.surviving_store_orders(log).values()
        if (rules.event_week(order.timestamp_ms, order) or rules.week_of(order.arrival_ms)) == week
    )
    payments = len([*_payments(log, week)])
    return {"completed_orders": payments, "product_sales": items, **dict.fromkeys(DATASETS, items + store_lines)}


def late_events(log: Log, week: str) -> dict[str, int]:
    """Return how many payments that completed an order, and living items, of a week were complete only after its end.

    The first record of payment or item and order counts, whatever has changed later.
    """
    end_ms = int(IsoWeek.parse(week).end.timestamp() * 1000)
    first_orders, first_items = (
        {key: min(record.timestamp_ms for _, record in of_key) for key, of_key in rules.changes(log, table).items()}
        for table in ("orders", "order_items")
    )
    completed = rules.completed_orders(log)
    payments = sum(
        max(payment.timestamp_ms, first_orders[number]) >= end_ms
        for number, payment, is_valid in _payments(log, week)
        if is_valid and number in completed
    )
    items = sum(
        max(first_items[item.content["orderitemid"]], first_orders[item.content["orderid"]]) >= end_ms
        for item, order in _items(log, week)
        if order
    )
    return {"completed_orders": payments, **dict.fromkeys(("order_lines", "product_sales"), items)}
