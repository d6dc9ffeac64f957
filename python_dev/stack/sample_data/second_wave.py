"""The second wave: what arrives after the first one was exported, late changes of old keys included."""

from collections.abc import Callable
from dataclasses import replace
from random import Random

from python_dev.stack.sample_data.edges import AWAITED_ORDER
from python_dev.stack.sample_data.expected.marts import product_sales
from python_dev.stack.sample_data.expected.rules import (
    changes,
    clean_payments,
    completed_orders,
    decoded,
    is_deleted,
    surviving_rows,
)
from python_dev.stack.sample_data.faults import damage
from python_dev.stack.sample_data.log import (
    PARTITIONS,
    PAYMENTS,
    PIZZA,
    TABLES,
    Draft,
    Log,
    Payload,
    copy,
    ends,
    number,
    shop_topic,
)
from python_dev.stack.sample_data.plan import DAY, HOUR, MINUTE, Plan
from python_dev.stack.sample_data.sources import brokerage, payments, shop, storefront
from python_dev.stack.sample_data.sources.shop_changes import change, delete
from python_dev.stack.sample_data.sources.shop_orders import ShopOrder, item_changes, order_changes, place

FIRST_NUMBER = 500_000
"""Orders of the second wave are numbered from here, above those of any first wave."""
_FIRST_ITEM = 50_000_000
_ITEMS = shop_topic("order_items")

# How the rows of each table change; a new address row is a move.
_UPDATES: dict[str, Callable[[Payload, Random], Payload]] = {
    "products": lambda row, rng: {**row, "stock": rng.randint(501, 999)},
    "customers": lambda row, rng: {**row, "segment": rng.choice(shop.SEGMENTS)},
    "addresses": lambda row, rng: shop.address(row["addressid"], rng),
    "orders": lambda row, rng: {**row, "channel": "mobile"},
    "order_items": lambda row, rng: {**row, "quantity": rng.randint(6, 9)},
}


def _late_timestamp(plan: Plan, rng: Random) -> int:
    """Return a Kafka timestamp after everything of the first wave's ordinary traffic."""
    return rng.randint(plan.end_ms + 6 * MINUTE, plan.first_wave.limit_ms)


def _late_copies(before: Log, plan: Plan, rng: Random) -> list[Draft]:
    drafts = []
    for topic in (PAYMENTS, PIZZA):
        originals = decoded(before, topic)
        chosen = rng.sample(originals, k=min(len(originals), 5 + len(originals) // 50))
        drafts += [copy(original, _late_timestamp(plan, rng)) for original in chosen]
    return drafts


def _matches_changed(before: Log, plan: Plan, rng: Random) -> list[Draft]:
    """Return changes that complete payments of the first wave, or undo that."""
    completed, clean = completed_orders(before), clean_payments(before)
    orders, drafts = surviving_rows(before, "orders"), []
    strangers = [order_id for order_id in sorted(clean) if order_id >= payments.UNMATCHED_ORDER][:5]
    for order_id in (AWAITED_ORDER, *strangers):
        order = ShopOrder(order_id, 1, clean[order_id].content["ts"] - HOUR, "ios")
        drafts.append(change("orders", order.row("Completed"), _late_timestamp(plan, rng)))

    chosen = iter(rng.sample(sorted(completed), k=min(len(completed), 12)))
    # An earlier payment of the same order replaces the survivor: minutes before, or weeks.
    for order_id, earlier in zip(chosen, (MINUTE, MINUTE, HOUR, 8 * DAY, 15 * DAY), strict=False):
        sale = payments.sale(order_id, completed[order_id].content["ts"] - earlier, rng, version=3)
        drafts.append(payments.draft(sale, _late_timestamp(plan, rng), version=3))
    # The order turns out to be placed after its payment, or is deleted.
    for order_id, deleted in zip(chosen, (False, False, True, True), strict=False):
        row = _row(orders[order_id].content)
        if deleted:
            drafts += delete("orders", row, _late_timestamp(plan, rng))
        else:
            moved = {**row, "orderdate": completed[order_id].content["ts"] + HOUR}
            drafts.append(change("orders", moved, _late_timestamp(plan, rng)))
    return drafts


def _past_changed(before: Log, plan: Plan, rng: Random) -> list[Draft]:
    """Return changes from the time of old sales that arrive only now: another price, and another address."""
    sales = sorted(product_sales(before), key=lambda sale: sale.order_item_id)
    products, customers = changes(before, "products"), changes(before, "customers")
    item_products = {record.content["orderitemid"]: record.content["productid"] for record in decoded(before, _ITEMS)}
    drafts = []
    of_known = [sale for sale in sales if sale.customer_id in customers]
    for sale in rng.sample(of_known, k=min(len(sales), 5)):
        moment, arrival_ms = sale.event_ms, _late_timestamp(plan, rng)
        if moment > plan.second_wave.limit_ms:
            continue  # at an invalid time: Kafka would refuse a record of then
        product = _row(products[item_products[sale.order_item_id]][0][1].content)
        repriced = {**product, "productname": "Late news", "price": sale.price + 1}
        drafts.append(_moved(change("products", repriced, moment, arrival_ms=arrival_ms)))
        customer = _row(customers[sale.customer_id][0][1].content)
        moved = {**customer, "shipping_address_id": customer["billing_address_id"]}
        drafts.append(_moved(change("customers", moved, moment, arrival_ms=arrival_ms)))
    return drafts


def _moved(draft: Draft) -> Draft:
    """Return a change in another partition: in that of its key a later offset would come after what is known."""
    return replace(draft, partition=(draft.partition + 1) % PARTITIONS)


def _row(payload: Payload) -> Payload:
    return {name: value for name, value in payload.items() if name != "__deleted"}


def _rows_changed(before: Log, table: str, plan: Plan, rng: Random) -> list[Draft]:
    """Return updates, deletes and returns of rows of the first wave."""
    latest, update, drafts = surviving_rows(before, table), _UPDATES[table], []
    living = [key for key, record in latest.items() if not is_deleted(record)]
    images = {
        record.content[TABLES[table]]: _row(record.content)
        for record in decoded(before, shop_topic(table))
        if not is_deleted(record)
    }
    gone = [key for key, record in latest.items() if is_deleted(record)]
    for index, key in enumerate(rng.sample(living, k=min(len(living), 12))):
        moment = _late_timestamp(plan, rng)
        if index < 5:
            drafts.append(change(table, update(images[key], rng), moment))
        else:
            drafts += delete(table, images[key], moment)
        if index >= 9:
            drafts.append(change(table, update(images[key], rng), moment))
    for key in gone[:3]:
        drafts.append(change(table, update(images[key], rng), _late_timestamp(plan, rng)))
    return drafts


def second_wave(plan: Plan, before: Log) -> Log:
    """Return the log of the second wave; its offsets follow those of `before`, the first wave."""
    span, count = plan.second_wave, 20 + plan.orders // 10
    drafts = _late_copies(before, plan, plan.rng("late copies"))
    drafts += _matches_changed(before, plan, plan.rng("changed matches"))
    drafts += _past_changed(before, plan, plan.rng("changed past"))
    for table in TABLES:
        drafts += _rows_changed(before, table, plan, plan.rng(f"late {table}"))

    placed = place(FIRST_NUMBER, count, plan, span, plan.rng("late orders"))
    drafts += order_changes(placed, span, plan.rng("late order changes"))
    drafts += item_changes(placed, _FIRST_ITEM, plan, span, plan.rng("late items"))
    drafts += payments.for_orders(placed, (1, 2, 3, 3), 0, span, plan.rng("late payments"))
    people = storefront.regulars(20, plan.rng("late store customers"))
    rng = plan.rng("late store orders")
    drafts += storefront.orders(FIRST_NUMBER, count, people, span, rng, version=2)
    rng = plan.rng("late trades")
    drafts += brokerage.trades(count, brokerage.traders(10, rng), plan.end_ms, span, rng)
    return number(drafts + damage(drafts, plan.end_ms + 6 * MINUTE), ends(before))
