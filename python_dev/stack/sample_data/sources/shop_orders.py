"""The web shop's orders and their items."""

from dataclasses import dataclass
from random import Random

from python_dev.stack.sample_data.log import Draft, Payload
from python_dev.stack.sample_data.plan import DAY, HOUR, MINUTE, SECOND, Plan, Span
from python_dev.stack.sample_data.sources.shop import customer_count, product_count
from python_dev.stack.sample_data.sources.shop_changes import change, closing, delete

CHANNELS = (
    None,
    None,
    "online",
    "Online",
    "web",
    "Web ",
    "ONLINE",
    "mobile",
    "Mobile",
    "iOS",
    "ios",
    " IOS",
    "android",
    "app",
    "kiosk",
)
ORPHAN_ORDER, ORPHAN_PRODUCT = 8_000_000, 800_000


@dataclass(frozen=True)
class ShopOrder:
    """An order as it was placed; times in epoch milliseconds."""

    orderid: int
    customerid: int
    orderdate: int
    channel: str | None

    def row(self, status: str) -> Payload:
        """Return the order's row with a status."""
        return {
            "orderid": self.orderid,
            "customerid": self.customerid,
            "orderdate": self.orderdate,
            "status": status,
            "channel": self.channel,
        }


def place(first_id: int, count: int, plan: Plan, span: Span, rng: Random) -> list[ShopOrder]:
    """Return new orders with random dates; a few name a customer that does not exist."""
    customers = customer_count(plan)
    return [
        ShopOrder(
            orderid=orderid,
            customerid=rng.randint(1, customers) if rng.random() < 0.99 else 700_000 + orderid,
            orderdate=span.moment(rng),
            channel=rng.choice(CHANNELS),
        )
        for orderid in range(first_id, first_id + count)
    ]


def order_changes(orders: list[ShopOrder], span: Span, rng: Random) -> list[Draft]:
    """Return the log of the orders: placed, mostly completed, sometimes deleted, and some of those restored."""
    drafts = []
    for order in orders:
        placed_ms = order.orderdate + rng.randint(50, 3 * SECOND)
        completed_ms = placed_ms + rng.randint(MINUTE, 4 * DAY)
        deleted_ms = completed_ms + rng.randint(MINUTE, DAY)
        restored_ms = deleted_ms + rng.randint(0, 6 * HOUR)
        completed, deleted, restored = rng.random() < 0.8, rng.random() < 0.02, rng.random() < 0.5
        drafts.append(change("orders", order.row("Pending"), placed_ms))
        if completed and completed_ms <= span.limit_ms:
            # The relay of the shop sometimes sends an update hours late.
            arrival_ms = completed_ms + (3 * HOUR if rng.random() < 0.03 else 0)
            drafts.append(change("orders", order.row("Completed"), completed_ms, arrival_ms=arrival_ms))
        if deleted and deleted_ms <= span.limit_ms:
            drafts += delete("orders", order.row("Completed"), deleted_ms)
            if restored and restored_ms <= span.limit_ms:
                drafts.append(change("orders", order.row("Completed"), restored_ms))
    return drafts


def item_changes(orders: list[ShopOrder], first_id: int, plan: Plan, span: Span, rng: Random) -> list[Draft]:
    """Return the log of the orders' items: one to four each, some corrected, some removed, some orphans."""
    drafts, orderitemid, products = [], first_id, product_count(plan)
    for order in orders:
        for _ in range(rng.choice((1, 1, 2, 2, 3, 4))):
            orphan = rng.random()
            row = {
                "orderitemid": orderitemid,
                "orderid": order.orderid if orphan > 0.01 else ORPHAN_ORDER + orderitemid,
                "productid": rng.randint(1, products) if orphan < 0.99 else ORPHAN_PRODUCT + orderitemid,
                "quantity": rng.randint(1, 5),
            }
            placed_ms = order.orderdate + rng.randint(50, 3 * SECOND)
            changed_ms = placed_ms + rng.randint(SECOND, HOUR)
            drafts.append(change("order_items", row, placed_ms))
            chance = rng.random()
            if chance < 0.03 and changed_ms <= span.limit_ms:
                drafts.append(change("order_items", {**row, "quantity": rng.randint(1, 5)}, changed_ms))
            elif chance < 0.05 and changed_ms <= span.limit_ms:
                drafts += delete("order_items", row, changed_ms)
            orderitemid += 1
    return drafts


def closing_order(plan: Plan) -> tuple[ShopOrder, list[Draft]]:
    """Return an order placed just before the last boundary, and its changes at and after it, items included."""
    order = ShopOrder(7_900_001, 1, plan.end_ms - 1, None)
    item = {"orderitemid": 79_000_001, "orderid": order.orderid, "productid": 1, "quantity": 2}
    drafts = closing("orders", [order.row("Pending"), order.row("Completed")], plan.end_ms)
    return order, drafts + closing("order_items", [item, {**item, "quantity": 3}], plan.end_ms)
