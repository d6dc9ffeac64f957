"""The expected sales: rows as of the order, the lines of every channel, and the figures over them.

Like `rules` it reads the log alone. A row as of a moment is found by walking its changes, not by periods.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from decimal import Decimal

from python_dev.stack.sample_data.expected import rules
from python_dev.stack.sample_data.log import TRADES, Payload, Record
from python_dev.stack.sample_data.plan import DAY

_CHANNELS = {
    "store": ("store", "Physical"),
    "online": ("online", "Digital"),
    "web": ("online", "Digital"),
    "mobile": ("mobile", "Digital"),
    "ios": ("mobile", "Digital"),
    "android": ("mobile", "Digital"),
    "app": ("mobile", "Digital"),
}
Changes = dict[int | str, list[rules.Change]]
Key = tuple[str | int | None, ...]


@dataclass(frozen=True)
class Item:
    """A living order item; `reason` is why it is no sale, `order` and `product` are rows as of the order."""

    order_item_id: int
    quantity: int
    product_id: int
    order: Record | None
    product: Record | None
    is_backdated: bool
    reason: str | None


@dataclass(frozen=True)
class Sale:
    """An item that was sold, with the addresses as of the order."""

    order_item_id: int
    order_id: int
    customer_id: int
    event_ms: int
    week: str | None
    quantity: int
    price: Decimal
    is_backdated: bool
    shipping_city: str | None
    shipping_state: str | None
    billing_state: str | None

    @property
    def total_amount(self) -> Decimal:
        """What was paid for the item."""
        return self.quantity * self.price


@dataclass(frozen=True)
class Line:
    """An order line of any channel; keys begin with `store` or `shop`. A line of a store counts from 1."""

    order: Key
    line_number: int | None
    customer: Key
    product: Key
    category: str | None
    channel: str
    channel_group: str
    week: str | None
    quantity: int
    line_amount: Decimal | None


@dataclass(frozen=True)
class Totals:
    """The figures of a group of order lines; `order_value` is None if no line has a price."""

    order_count: int
    customer_count: int
    line_count: int
    unpriced_line_count: int
    quantity: int
    order_value: Decimal | None


@dataclass(frozen=True)
class Trade:
    """A trade; its price in currency units."""

    week: str | None
    total_price: Decimal


def as_of(changes: list[rules.Change], moment_ms: int) -> tuple[Record | None, bool]:
    """Return the newest of a row's changes up to a moment, and whether it is in fact the first one from after it.

    A delete has no value.
    """
    before = [record for time_ms, record in changes if time_ms <= moment_ms]
    row = before[-1] if before else changes[0][1]
    return (None, False) if rules.is_deleted(row) else (row, not before)


def items(log: Iterable[Record]) -> list[Item]:
    """Return the living order items with their order and their product."""
    log = list(log)
    orders, products = rules.surviving_rows(log, "orders"), rules.changes(log, "products")
    return [
        _item(record.content, orders, products)
        for record in rules.surviving_rows(log, "order_items").values()
        if not rules.is_deleted(record)
    ]


def _item(row: Payload, orders: dict[int | str, Record], products: Changes) -> Item:
    order, product, is_backdated, reason = orders.get(row["orderid"]), None, False, None
    if order is None or rules.is_deleted(order):
        reason = "no order" if order is None else "order deleted"
        order = None
    elif order.content["orderdate"] is None:
        reason = "no order time"
    else:
        if row["productid"] in products:
            product, is_backdated = as_of(products[row["productid"]], order.content["orderdate"])
        if product is None:
            reason = "no product"
        elif not rules.text(product.content["productname"]):
            reason = "no product name"
        elif not product.content["price"] or product.content["price"] < 0:
            reason = "no price"
    return Item(row["orderitemid"], row["quantity"], row["productid"], order, product, is_backdated, reason)


def product_sales(log: Iterable[Record]) -> list[Sale]:
    """Return the items that were sold, with product, customer and addresses as of their order."""
    log = list(log)
    customers, addresses = rules.changes(log, "customers"), rules.changes(log, "addresses")
    sales = []
    for item in items(log):
        if item.reason or item.order is None or item.product is None:
            continue
        order = item.order.content
        moment, backdated = order["orderdate"], item.is_backdated
        address_of: dict[str, Payload] = {}
        customer, early = _row_as_of(customers, order["customerid"], moment)
        backdated |= early
        for side in ("shipping", "billing"):
            addressid = customer.content[f"{side}_address_id"] if customer else None
            address, early = _row_as_of(addresses, addressid, moment)
            backdated |= early
            address_of[side] = address.content if address else {"city": None, "state": None}
        sales.append(
            Sale(
                item.order_item_id,
                order["orderid"],
                order["customerid"],
                moment,
                rules.event_week(moment, item.order),
                item.quantity,
                item.product.content["price"],
                backdated,
                rules.text(address_of["shipping"]["city"]),
                rules.text(address_of["shipping"]["state"]),
                rules.text(address_of["billing"]["state"]),
            )
        )
    return sales


def _row_as_of(changes: Changes, key: int | str | None, moment_ms: int) -> tuple[Record | None, bool]:
    return as_of(changes[key], moment_ms) if key in changes else (None, False)


def excluded(log: Iterable[Record]) -> dict[str, int]:
    """Return how many living items are no sale, by reason."""
    return dict(Counter(item.reason for item in items(log) if item.reason))


def lines(log: Iterable[Record]) -> list[Line]:
    """Return the order lines of every channel."""
    log = list(log)
    order_lines = []
    for (store, number), record in rules.surviving_store_orders(log).items():
        for line_number, line in enumerate(record.content["order_lines"], 1):
            order_lines.append(
                Line(
                    ("store", store, number),
                    line_number,
                    ("store", record.content["customer"]["userid"]),
                    ("store", line["product_id"]),
                    rules.text(line["category"]),
                    *_CHANNELS["store"],
                    rules.event_week(record.timestamp_ms, record),
                    line["quantity"],
                    rules.money(line["net_price"]),
                )
            )
    for item in items(log):
        if item.order is None:
            continue
        order = item.order.content
        spelling = (rules.text(order["channel"]) or "online").lower()
        channel, channel_group = _CHANNELS.get(spelling, (spelling, "Other"))
        price = item.product.content["price"] if item.product else None
        order_lines.append(
            Line(
                ("shop", order["orderid"]),
                None,
                ("shop", order["customerid"]),
                ("shop", item.product_id),
                rules.text(item.product.content["category"]) if item.product else None,
                channel,
                channel_group,
                rules.event_week(order["orderdate"], item.order),
                item.quantity,
                None if price is None else item.quantity * price,
            )
        )
    return order_lines


def demand(lines: Iterable[Line]) -> dict[Key, Totals]:
    """Return the figures of order lines per channel group, product and category."""
    return _totals(lines, lambda line: (line.channel_group, "-".join(map(str, line.product)), line.category))


def activity(lines: Iterable[Line]) -> dict[Key, Totals]:
    """Return the figures of order lines per customer."""
    return _totals(lines, lambda line: line.customer)


def _totals(lines: Iterable[Line], key_of: Callable[[Line], Key]) -> dict[Key, Totals]:
    groups = defaultdict(list)
    for line in lines:
        groups[key_of(line)].append(line)
    totals = {}
    for key, group in groups.items():
        prices = [line.line_amount for line in group if line.line_amount is not None]
        totals[key] = Totals(
            order_count=len({line.order for line in group}),
            customer_count=len({line.customer for line in group}),
            line_count=len(group),
            unpriced_line_count=len(group) - len(prices),
            quantity=sum(line.quantity for line in group),
            order_value=sum(prices, Decimal("0.00")) if prices else None,
        )
    return totals


def customers_30d(sales: Iterable[Sale], as_of_ms: int) -> dict[int, tuple[Decimal, int]]:
    """Return per customer the amount and the number of orders in the 30 days up to and including a moment."""
    by_customer = defaultdict(list)
    for sale in sales:
        if 0 <= as_of_ms - sale.event_ms < 30 * DAY:
            by_customer[sale.customer_id].append(sale)
    return {
        customer: (sum((sale.total_amount for sale in bought), Decimal(0)), len({sale.order_id for sale in bought}))
        for customer, bought in by_customer.items()
    }


def trades(log: Iterable[Record]) -> list[Trade]:
    """Return every trade; `price` in the record is in cents."""
    trade_rows = []
    for record in rules.decoded(log, TRADES):
        cents = record.content["quantity"] * record.content["price"]
        trade_rows.append(Trade(rules.event_week(record.timestamp_ms, record), Decimal(cents).scaleb(-2)))
    return trade_rows
