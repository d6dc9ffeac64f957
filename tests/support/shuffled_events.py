"""Some 10,000 events that contradict, repeat, delete and overtake each other, in the shape the ingester lands them in.

Every event is drawn so that keys, joins and time windows collide often. In which wave an event arrives has nothing to
do with when it happened, except that nothing arrives twice. Each seed has other keys: the events of several share
tables and meet nowhere.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from random import Random
from typing import Any

Row = dict[str, Any]

START = datetime(2026, 10, 5, tzinfo=UTC)
HOUR, DAY, WINDOW = timedelta(hours=1), timedelta(days=1), timedelta(hours=96)
INSTANT = timedelta(milliseconds=1)
AHEAD = 11 * 365 * DAY
ORDERS, ITEMS, PRODUCTS, CUSTOMERS, ADDRESSES, STORE_ORDERS = 900, 1_400, 60, 50, 50, 700
# Columns with keys, or with references to them: of numbers, and of text.
NUMBERS = {"order_id", "customer_id", "store_id", "orderid", "orderitemid", "productid", "customerid"}
ADDRESS_IDS = {"addressid", "shipping_address_id", "billing_address_id"}
OF_A_SEED = 100_000
"""More than a seed has of anything."""


@dataclass(frozen=True)
class Event:
    """One row of a bronze table, without batch and time of ingestion."""

    table: str
    row: Row


def events(seed: int) -> list[Event]:
    """Return the events of a seed in the order of their Kafka offsets."""
    rng = Random(seed)
    drawn = [
        *(_payment(rng) for _ in range(2_600)),
        *(_store_order(rng) for _ in range(1_500)),
        *_changes(rng, "orders", "orderid", ORDERS, 1_900, _order),
        *_changes(rng, "order_items", "orderitemid", ITEMS, 2_300, _order_item),
        *_changes(rng, "products", "productid", PRODUCTS, 260, _product),
        *_changes(rng, "customers", "customerid", CUSTOMERS, 220, _customer),
        *_changes(rng, "addresses", "addressid", ADDRESSES, 220, _address),
        *(_trade(rng) for _ in range(300)),
    ]
    first = OF_A_SEED * seed
    positioned = (event.row | _position(rng, event, first + number) for number, event in enumerate(drawn))
    return [Event(event.table, _keyed(row, first)) for event, row in zip(drawn, positioned, strict=True)]


def _keyed(row: Row, first: int) -> Row:
    """Return a row with its keys, and those it refers to, moved into the seed's range."""
    keyed = dict(row)
    for column, value in row.items():
        if isinstance(value, dict):
            keyed[column] = _keyed(value, first)
        elif column in NUMBERS:
            keyed[column] = first + value
        elif column in ADDRESS_IDS and value is not None:
            keyed[column] = f"{first}{value}"
    return keyed


def waves(seed: int, count: int) -> Iterator[list[Event]]:
    """Yield the events of a seed in `count` waves, each drawn at random."""
    rng = Random(f"waves of {seed}")
    arrived: list[list[Event]] = [[] for _ in range(count)]
    for event in events(seed):
        rng.choice(arrived).append(event)
    yield from arrived


def _position(rng: Random, event: Event, number: int) -> Row:
    # Few instants: ties in Kafka's time are frequent, and partition and offset have to decide. The clocks of the
    # shop's connectors go back from one offset to the next, some are years ahead, and keys move between partitions.
    # Every second record is of a topic that was recreated, whose offsets begin again.
    is_ahead = event.table.startswith("shiftleft") and rng.randrange(60) == 0
    moment = START + rng.randrange(28 * 4) * 6 * HOUR + is_ahead * AHEAD
    return {
        "kafka_topic": event.table,
        "kafka_generation": number % 2 or None,
        "kafka_partition": rng.randrange(3),
        "kafka_offset": number // 2,
        "kafka_timestamp": event.row.get("kafka_timestamp") or moment,
        "kafka_raw_value": event.row.get("kafka_raw_value", b"not read by any model"),
    }


def _ordered_at(order_id: int) -> datetime:
    return START + Random(order_id).randrange(28 * 24) * HOUR


def _payment(rng: Random) -> Event:
    # One in ten is of an order that is nowhere.
    order_id = rng.randrange(ORDERS + ORDERS // 10)
    after_order = rng.choice((timedelta(0), HOUR, DAY, WINDOW, WINDOW + INSTANT, -INSTANT, 5 * DAY))
    row = {
        "order_id": order_id,
        "customer_id": rng.randrange(CUSTOMERS),
        "confirmation_code": rng.choice(("AB12CD34", "ZZ99ZZ99", "00000000", "0")),
        "payment_method": rng.choice(("card", None)),
        "amount": rng.randrange(10_000) / 100,
        "ts": _ordered_at(order_id) + after_order,
    }
    return Event("payments", row)


def _store_order(rng: Random) -> Event:
    lines = [
        {
            "product_id": rng.randrange(20),
            "category": rng.choice(("pizza", "drinks")),
            "quantity": quantity,
            "unit_price": 2.5,
            "net_price": 2.5 * quantity,
        }
        for quantity in (rng.randint(1, 4) for _ in range(rng.randint(0, 5)))
    ]
    row = {
        "store_id": rng.randint(1, 5),
        "store_order_id": rng.randrange(STORE_ORDERS // 5),
        "customer": {"userid": f"User_{rng.randrange(9)}"},
        "order_lines": lines,
    }
    return Event("pizza_orders", row)


def _changes(rng: Random, table: str, key_column: str, keys: int, count: int, draw: Any) -> Iterator[Event]:
    """Yield changes of a shop table; one in eight is a delete, half of these with a tombstone at the same instant."""
    name = f"shiftleft_public_{table}"
    for _ in range(count):
        number = rng.randrange(keys)
        key = f"A{number}" if table == "addresses" else number
        kafka_key = {"kafka_key": {key_column: key}}
        deleted = rng.randrange(8) == 0
        # A row without __deleted lives.
        deleted_flag = "true" if deleted else rng.choice(("false", None))
        change = {key_column: key, **draw(rng, number), **kafka_key, "__deleted": deleted_flag}
        yield Event(name, change)
        if deleted and rng.randrange(2):
            moment = START + rng.randrange(28 * 4) * 6 * HOUR
            yield Event(name, {**kafka_key, "kafka_timestamp": moment, "kafka_raw_value": None})


def _order(rng: Random, order_id: int) -> Row:
    moved = rng.choice((timedelta(0), timedelta(0), timedelta(0), DAY, -DAY))
    return {
        "customerid": rng.randrange(CUSTOMERS + 5),
        "orderdate": (_ordered_at(order_id) + moved).replace(tzinfo=None),
        "status": rng.choice(("Completed", "Pending")),
        "channel": rng.choice(("iOS", "web", " Online", "fax", None)),
    }


def _order_item(rng: Random, order_item_id: int) -> Row:
    # An item mostly stays with its order, but some move to another one.
    order_id = order_item_id % ORDERS if rng.randrange(6) else rng.randrange(ORDERS + 50)
    return {"orderid": order_id, "productid": rng.randrange(PRODUCTS + 3), "quantity": rng.randint(1, 5)}


def _product(rng: Random, product_id: int) -> Row:
    return {
        "productname": rng.choice(("Boots", "Hat", "Coat", "")),
        "price": Decimal(rng.randrange(0, 5_000)).scaleb(-2),
    }


def _customer(rng: Random, customer_id: int) -> Row:
    return {
        "customername": f"Customer {rng.randrange(99)}",
        "segment": rng.choice(("Premium", "Regular", "New")),
        "shipping_address_id": rng.choice((f"A{rng.randrange(ADDRESSES + 3)}", None)),
        "billing_address_id": f"A{rng.randrange(ADDRESSES + 3)}",
    }


def _address(rng: Random, number: int) -> Row:
    return {"city": rng.choice(("Berlin", "Lyon", "Oslo")), "state": rng.choice(("BE", "ARA", "OS"))}


def _trade(rng: Random) -> Event:
    row = {
        "side": rng.choice(("BUY", "SELL")),
        "quantity": rng.randint(1, 99),
        "price": rng.randrange(10_000),
        "userid": "User_1",
    }
    return Event("stock_trades", row)
