"""Records on the edges of the rules: week boundaries, the 96 hour window, ties, conflicts and invalid times."""

from decimal import Decimal
from random import Random

from python_dev.stack.sample_data.codec import text
from python_dev.stack.sample_data.log import Draft, Payload, Wire
from python_dev.stack.sample_data.plan import DAY, HOUR, MINUTE, Plan
from python_dev.stack.sample_data.sources import brokerage, payments, shop, storefront
from python_dev.stack.sample_data.sources.shop_changes import change, delete, tombstone
from python_dev.stack.sample_data.sources.shop_orders import ShopOrder

EDGE_ORDER = 7_000_000
AWAITED_ORDER = 7_100_001
"""A payment of the first wave whose order arrives in the second."""
EDGE_STORE_ORDER = 900_000

SALE_ORDER = EDGE_ORDER + 400_000
EPOCH_MS, YEAR_9999_MS = 1, 253_370_764_800_000
"""Times no clock that is right would give; Kafka takes 0 for "now"."""

_WINDOW_EDGES = (-1, 0, 1, 96 * HOUR - 1, 96 * HOUR, 96 * HOUR + 1)


def payment_edges(plan: Plan, rng: Random) -> list[Draft]:
    """Return orders with payments on the edges of the 96 hour window and of each week."""
    placed_ms = plan.start_ms + 12 * HOUR
    pairs = [(placed_ms, placed_ms + offset) for offset in _WINDOW_EDGES]
    # A payment at the very start of a week, and one that just missed it.
    pairs += [(monday - HOUR, monday + offset) for monday in plan.boundaries for offset in (-1, 0)]
    pairs += [(plan.end_ms - HOUR, plan.end_ms + minutes * MINUTE) for minutes in (1, 5)]
    drafts = []
    for orderid, (orderdate, ts) in enumerate(pairs, EDGE_ORDER + 1):
        order = ShopOrder(orderid, 1, orderdate, "web")
        drafts.append(change("orders", order.row("Completed"), orderdate))
        drafts.append(payments.draft(payments.sale(orderid, ts, rng), ts))
    awaited_ms = plan.end_ms - 2 * HOUR
    return [*drafts, payments.draft(payments.sale(AWAITED_ORDER, awaited_ms, rng), awaited_ms)]


def payment_conflicts(plan: Plan, rng: Random) -> list[Draft]:
    """Return payments of one order with different content, for every step of the order that picks a survivor."""
    drafts, ts = [], plan.end_ms - 30 * HOUR

    def pair(number: int, second_ts: int, second_ms: int, partitions: tuple[int, int], arrival: int) -> None:
        order_id = EDGE_ORDER + 200_000 + number
        first, second = (payments.sale(order_id, paid_ms, rng) for paid_ms in (ts, second_ts))
        order = ShopOrder(order_id, 1, ts - 3 * HOUR, "online")
        drafts.append(change("orders", order.row("Completed"), order.orderdate))
        drafts.append(payments.draft(first, ts, partition=partitions[0]))
        drafts.append(payments.draft(second, second_ms, partition=partitions[1], arrival_ms=ts + arrival))

    # The event time decides, against the order of arrival.
    pair(1, ts - MINUTE, ts + HOUR, (0, 0), HOUR)
    pair(2, ts + MINUTE, ts - HOUR, (1, 0), HOUR)
    # Equal event times: the Kafka timestamp decides, against the order of arrival.
    pair(3, ts, ts - MINUTE, (0, 2), HOUR)
    # Equal Kafka timestamps too: the partition decides, then the offset.
    pair(4, ts, ts, (2, 1), 0)
    pair(5, ts, ts, (1, 1), 1)
    return drafts


def store_order_edges(plan: Plan, customers: list[Payload], rng: Random) -> list[Draft]:
    """Return store orders on the week boundaries, every kind of key, and ties with different content."""
    moments = [monday + offset for monday in plan.boundaries for offset in (-1, 0, 1)]
    moments += [plan.end_ms + minutes * MINUTE for minutes in (1, 2, 3)]
    keys = (None, text("order \u2116 1"), Wire(b"\x00\x00\x01\x02"), Wire(b"\xff\xfe\x80"), Wire(b""))
    drafts = []
    for index, moment in enumerate(moments):
        payload = storefront.order(1, EDGE_STORE_ORDER + index, rng.choice(customers), rng)
        drafts.append(storefront.draft(payload, moment, keys[index % len(keys)]))
    tie_ms = plan.end_ms - 20 * HOUR
    for index in range(4):
        # Same key and time, other content: the offset decides. The same number in another store is another order.
        store_id, number = 2 + index % 2, EDGE_STORE_ORDER + 500
        payload = storefront.order(store_id, number, rng.choice(customers), rng)
        drafts.append(storefront.draft(payload, tie_ms, text(str(number))))
    return drafts


def disordered_products(plan: Plan, row: Payload) -> list[Draft]:
    """Return updates of one product: two at the same instant, then the latest, whose clock is an hour behind."""
    moment = plan.end_ms - 10 * HOUR
    first, second, third = ({**row, "stock": 1_000 + step} for step in range(3))
    return [
        change("products", first, moment),
        change("products", third, moment),
        change("products", second, moment - HOUR, arrival_ms=moment + HOUR),
    ]


def edge_cases(plan: Plan, rng: Random) -> list[Draft]:
    """Return for each shop table three rows, each with another end.

    One is deleted, one returns in the millisecond of its delete, and one goes with a tombstone alone.
    """
    numbers = (1, 2, 3)
    rows: dict[str, list[Payload]] = {
        "products": [shop.product(999_000 + n, rng) for n in numbers],
        "customers": [shop.customer(999_000 + n, ["ADDR-EDGE-1"], rng) for n in numbers],
        "addresses": [shop.address(f"ADDR-EDGE-{n}", rng) for n in numbers],
        "orders": [ShopOrder(EDGE_ORDER + 300_000 + n, 1, plan.start_ms, "ios").row("Pending") for n in numbers],
        "order_items": [
            {"orderitemid": 73_000_000 + n, "orderid": EDGE_ORDER + 1, "productid": 1, "quantity": n} for n in numbers
        ],
    }
    drafts, born_ms, gone_ms = [], plan.start_ms, plan.start_ms + HOUR
    for table, (deleted, returned, lost) in rows.items():
        drafts += [change(table, row, born_ms) for row in (deleted, returned, lost)]
        drafts += delete(table, deleted, gone_ms)
        drafts += [*delete(table, returned, gone_ms), change(table, returned, gone_ms)]
        drafts.append(tombstone(table, lost, gone_ms))
    return drafts


def sale_edges(plan: Plan, rng: Random) -> list[Draft]:
    """Return orders at the instants when what they are joined with changes.

    The product is re-priced, is deleted and returns, and its buyer moves. More are on the edges of the 30 days, and at
    invalid times.
    """
    number = 999_011
    home, new_home = (shop.address(f"ADDR-EDGE-{number + step}", rng) for step in range(2))
    product = {**shop.product(number, rng), "price": Decimal("10.00")}
    buyer = {**shop.customer(number, [home["addressid"]], rng), "shipping_address_id": home["addressid"]}
    born_ms, changed_ms, gone_ms, back_ms = (plan.start_ms + hours * HOUR for hours in (24, 30, 36, 40))
    drafts = [
        change("addresses", home, born_ms - HOUR),
        change("addresses", new_home, back_ms),
        change("customers", buyer, born_ms),
        change("customers", {**buyer, "shipping_address_id": new_home["addressid"]}, changed_ms),
        change("products", product, born_ms),
        change("products", {**product, "price": Decimal("12.34")}, changed_ms),
        *delete("products", product, gone_ms),
        change("products", {**product, "price": Decimal("9.99")}, back_ms),
    ]
    moments = [turn + offset for turn in (born_ms, changed_ms, gone_ms, back_ms) for offset in (-1, 0)]
    moments += [end + offset for end in (plan.end_ms, plan.end_ms - 30 * DAY) for offset in (0, 1)]
    for step, moment in enumerate([*moments, EPOCH_MS, YEAR_9999_MS], 1):
        order = ShopOrder(SALE_ORDER + step, number, moment, "kiosk" if step % 2 else None)
        item = {"orderitemid": 74_000_000 + step, "orderid": order.orderid, "productid": number, "quantity": step}
        placed_ms = moment if plan.start_ms < moment < plan.end_ms else plan.end_ms
        drafts += [change("orders", order.row("Completed"), placed_ms), change("order_items", item, placed_ms)]
        if moment in (EPOCH_MS, YEAR_9999_MS):
            drafts.append(payments.draft(payments.sale(order.orderid, moment, rng), placed_ms))
    return drafts


def long_ago(rng: Random, customers: list[Payload], traders: list[tuple[str, str]]) -> list[Draft]:
    """Return a store order and a trade whose Kafka timestamp, their event time, is from 1970."""
    order = storefront.order(1, EDGE_STORE_ORDER + 900, rng.choice(customers), rng)
    return [storefront.draft(order, EPOCH_MS, None), brokerage.draft(rng.choice(traders), EPOCH_MS, rng)]
