"""How many events of the sample data a week counts: in its files, excluded from them, and late; in plain Python.

Like `python_dev.stack.sample_data.expected`, it reads the log alone and shares nothing with the SQL.
"""

from collections.abc import Iterable

from python_common.weeks import IsoWeek
from python_dev.stack.sample_data.expected import rules, sales
from python_dev.stack.sample_data.log import Record


def quarantined_lines(log: Iterable[Record], week: str, needed: str | None = None) -> int:
    """Return how many living items a week counts that a dataset excludes.

    These have no living order, one at an invalid time, or not what the dataset needs, `customerid` or `productid`.
    """
    log = list(log)
    orders, count = rules.surviving_rows(log, "orders"), 0
    for record in rules.surviving_rows(log, "order_items").values():
        order = orders.get(record.content["orderid"]) if record.payload else None
        order_week, counted_in = _weeks_of(record, order)
        in_file = order is not None and not rules.is_deleted(order) and order_week is not None
        if order and in_file and needed:
            in_file = (order.content | record.content)[needed] is not None
        count += not rules.is_deleted(record) and not in_file and counted_in == week
    return count


def unsold_items(log: Iterable[Record], week: str) -> int:
    """Return how many living items a week counts that are no sale of it."""
    log = list(log)
    orders = rules.surviving_rows(log, "orders")
    sold = {sale.order_item_id for sale in sales.product_sales(log) if sale.week}
    return sum(
        not rules.is_deleted(record)
        and record.content["orderitemid"] not in sold
        and _weeks_of(record, orders.get(record.content["orderid"]))[1] == week
        for record in rules.surviving_rows(log, "order_items").values()
    )


def events(log: Iterable[Record], week: str) -> dict[str, int]:
    """Return how many events a week counts, in its files or excluded from them: of what each dataset is made of."""
    log = list(log)
    orders = rules.surviving_rows(log, "orders")
    payments = [(record.content["ts"], record) for record in rules.surviving_payments(log).values()]
    living = [row for row in rules.surviving_rows(log, "order_items").values() if not rules.is_deleted(row)]
    items = sum(_weeks_of(item, orders.get(item.content["orderid"]))[1] == week for item in living)
    store_lines = sum(
        len(order.content["order_lines"])
        for order in rules.surviving_store_orders(log).values()
        if (rules.event_week(order.timestamp_ms, order) or rules.week_of(order.arrival_ms)) == week
    )
    return {
        "completed_orders": sum(
            (rules.event_week(ts, payment) or rules.event_week(payment.timestamp_ms, payment)) == week
            for ts, payment in payments
        ),
        "product_sales": items,
        **dict.fromkeys(("order_lines", "customer_activity", "product_demand"), items + store_lines),
    }


def rejected_payments(log: Iterable[Record], week: str) -> int:
    """Return how many payments a week counts that complete no order, or do so at an invalid time."""
    log = list(log)
    completed, count = rules.completed_orders(log), 0
    for number, payment in rules.surviving_payments(log).items():
        paid_week = rules.event_week(payment.content["ts"], payment)
        counted_in = paid_week or rules.event_week(payment.timestamp_ms, payment)
        count += counted_in == week and (number not in completed or paid_week is None)
    return count


def late_events(log: Iterable[Record], week: str) -> dict[str, int]:
    """Return how many payments that completed an order, and living items, of a week were complete only after its end.

    The first record of payment or item and order counts, whatever has changed later.
    """
    log = list(log)
    end_ms = int(IsoWeek.parse(week).end.timestamp() * 1000)
    orders = rules.surviving_rows(log, "orders")
    first = {
        table: {
            key: min(record.timestamp_ms for _, record in of_key) for key, of_key in rules.changes(log, table).items()
        }
        for table in ("orders", "order_items")
    }
    payments = rules.surviving_payments(log)
    payments_late = sum(
        rules.event_week(payments[number].content["ts"], payments[number]) == week
        and max(payments[number].timestamp_ms, first["orders"][number]) >= end_ms
        for number in rules.completed_orders(log)
    )
    items_late = 0
    for key, item in rules.surviving_rows(log, "order_items").items():
        order = None if rules.is_deleted(item) else orders.get(item.content["orderid"])
        if order and _weeks_of(item, order)[0] == week:
            items_late += max(first["order_items"][key], first["orders"][item.content["orderid"]]) >= end_ms
    return {"completed_orders": payments_late, **dict.fromkeys(("order_lines", "product_sales"), items_late)}


def _weeks_of(item: Record, order: Record | None) -> tuple[str | None, str | None]:
    """Return the week of an item's order, and the week that counts the item: its last change's without one."""
    order_week = rules.event_week(order.content["orderdate"], order) if order and order.payload else None
    return order_week, order_week or rules.event_week(item.timestamp_ms, item)
