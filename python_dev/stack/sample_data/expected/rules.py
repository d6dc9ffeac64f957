"""What is expected of a log, by the business rules in plain Python: who survives, and what belongs together.

It reads the log alone and shares nothing with the SQL that it is compared with.
"""

import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from decimal import ROUND_HALF_UP, Decimal
from typing import TypeVar

from python_common.weeks import IsoWeek
from python_dev.stack.sample_data.codec import decode
from python_dev.stack.sample_data.log import PAYMENTS, PIZZA, TABLES, Record, shop_topic
from python_dev.stack.sample_data.plan import HOUR

_GOOD_CODE = re.compile(r"[A-Z0-9]{8}")
_WINDOW_MS = 96 * HOUR
_FIRST_VALID_MS = int(datetime(2000, 1, 1, tzinfo=UTC).timestamp()) * 1000
_CENT = Decimal("0.01")

Key = TypeVar("Key")
Change = tuple[int, Record]
"""The time of a change in Kafka's order, in epoch milliseconds, and its record."""


def week_of(event_ms: int) -> str:
    """Return the label of the ISO week of an epoch millisecond."""
    return str(IsoWeek.of(datetime.fromtimestamp(event_ms // 1000, UTC)))


def is_valid(event_ms: int | None, record: Record) -> bool:
    """Return whether an event time is from this century and at most an hour ahead of its record's timestamp."""
    return event_ms is not None and _FIRST_VALID_MS <= event_ms <= record.timestamp_ms + HOUR


def event_week(event_ms: int | None, record: Record) -> str | None:
    """Return the week of an event, None for one at an invalid time."""
    return week_of(event_ms) if event_ms is not None and is_valid(event_ms, record) else None


def money(amount: float) -> Decimal:
    """Return a double as money: two decimals, halves away from zero."""
    return Decimal(str(amount)).quantize(_CENT, ROUND_HALF_UP)


def text(value: str | None) -> str | None:
    """Return text without white space around it, None if nothing is left."""
    return (value or "").strip() or None


def decoded(log: Iterable[Record], topic: str) -> list[Record]:
    """Return the records of a topic that hold a payload."""
    return [record for record in log if record.topic == topic and record.payload is not None]


def _payment_key(record: Record) -> int:
    order_id: int = record.content["order_id"]
    return order_id


def _store_order_key(record: Record) -> tuple[int, int]:
    return record.content["store_id"], record.content["store_order_id"]


def _arrival(record: Record) -> tuple[int, int, int]:
    return record.timestamp_ms, record.partition, record.offset


def _payment_order(record: Record) -> tuple[bool, int, int, int, int]:
    # None among the invalid ones comes first, as NULL does.
    paid_ms = record.content["ts"]
    return not is_valid(paid_ms, record), -(2**63) if paid_ms is None else paid_ms, *_arrival(record)


def _store_order_order(record: Record) -> tuple[bool, int, int, int]:
    return not is_valid(record.timestamp_ms, record), *_arrival(record)


def surviving_payments(log: Iterable[Record]) -> dict[int, Record]:
    """Return the payment that stays per order id: the earliest by (ts, Kafka timestamp, partition, offset).

    One at an invalid time stays only if there is no other.
    """
    survivors: dict[int, Record] = {}
    for record in sorted(decoded(log, PAYMENTS), key=_payment_order):
        survivors.setdefault(_payment_key(record), record)
    return survivors


def surviving_store_orders(log: Iterable[Record]) -> dict[tuple[int, int], Record]:
    """Return the store order that stays per (store_id, store_order_id): the earliest, its event time is Kafka's.

    One at an invalid time stays only if there is no other.
    """
    survivors: dict[tuple[int, int], Record] = {}
    for record in sorted(decoded(log, PIZZA), key=_store_order_order):
        survivors.setdefault(_store_order_key(record), record)
    return survivors


def in_order(changes: Iterable[Record]) -> list[Change]:
    """Return the changes of one key in Kafka's order, each with its time: the greatest of its partition up to it.

    Within a partition the offset decides, across partitions that time, then the partition.
    """
    newest: dict[int, int] = {}
    timed = []
    for record in sorted(changes, key=lambda record: (record.partition, record.offset)):
        newest[record.partition] = max(newest.get(record.partition, record.timestamp_ms), record.timestamp_ms)
        timed.append((newest[record.partition], record))
    return sorted(timed, key=lambda change: (change[0], change[1].partition, change[1].offset))


def changes(log: Iterable[Record], table: str) -> dict[int | str, list[Change]]:
    """Return the changes per primary key of a shop table in their order, deletes and tombstones included."""
    of_keys = defaultdict(list)
    for record in log:
        if record.topic == shop_topic(table) and record.error is None:
            of_keys[_row_key(record, table)].append(record)
    return {key: in_order(records) for key, records in of_keys.items()}


def surviving_rows(log: Iterable[Record], table: str) -> dict[int | str, Record]:
    """Return the latest change per primary key of a shop table, deletes and tombstones included (see `is_deleted`)."""
    return {key: of_key[-1][1] for key, of_key in changes(log, table).items()}


def _row_key(record: Record, table: str) -> int | str:
    # A tombstone names its row in the key alone.
    row = decode(record.key) if record.payload is None else record.payload
    key: int | str = row[TABLES[table]]
    return key


def is_deleted(record: Record) -> bool:
    """Return whether a change of a shop table is a delete."""
    return record.payload is None or record.content["__deleted"] == "true"


def _conflicts(records: Iterable[Record], key_of: Callable[[Record], Key]) -> set[Key]:
    contents = defaultdict(set)
    for record in records:
        present = {name: value for name, value in record.content.items() if value is not None}
        contents[key_of(record)].add(json.dumps(present, sort_keys=True))
    return {key for key, payloads in contents.items() if len(payloads) > 1}


def conflicting_payments(log: Iterable[Record]) -> set[int]:
    """Return the order ids that were sent with more than one content."""
    return _conflicts(decoded(log, PAYMENTS), _payment_key)


def conflicting_store_orders(log: Iterable[Record]) -> set[tuple[int, int]]:
    """Return the (store_id, store_order_id) that were sent with more than one content."""
    return _conflicts(decoded(log, PIZZA), _store_order_key)


def clean_payments(log: Iterable[Record]) -> dict[int, Record]:
    """Return the surviving payments whose confirmation code is eight capitals or digits."""
    return {
        order_id: record
        for order_id, record in surviving_payments(log).items()
        if _GOOD_CODE.fullmatch(record.content["confirmation_code"])
    }


def completed_orders(log: Iterable[Record]) -> dict[int, Record]:
    """Return the clean payments that complete an order: made 0 to 96 hours after it, both ends included.

    The order is the latest image and not deleted.
    """
    log = list(log)
    orders = surviving_rows(log, "orders")
    completed = {}
    for order_id, payment in clean_payments(log).items():
        order = orders.get(order_id)
        if order is None or is_deleted(order):
            continue
        if 0 <= payment.content["ts"] - order.content["orderdate"] <= _WINDOW_MS:
            completed[order_id] = payment
    return completed
