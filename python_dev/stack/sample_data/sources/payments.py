"""The payment provider: sales, their copies, and the later schema versions."""

from collections.abc import Sequence
from random import Random

from python_dev.stack.sample_data.codec import encode, text
from python_dev.stack.sample_data.log import PARTITIONS, PAYMENTS, Draft, Payload, copy, partition_of
from python_dev.stack.sample_data.plan import DAY, HOUR, MINUTE, SECOND, Span
from python_dev.stack.sample_data.sources.shop_orders import ShopOrder
from python_dev.stack.sample_data.text import HOSTILE_WORDS, hostile, token

UNMATCHED_ORDER = 9_000_000
_BAD_CODES = ("abcd1234", "ABC1234", "ABCD12345", "ABCD123 ", "", "\u00c4BCD1234")
_METHODS = ("card", "wallet", "transfer", "voucher")


def sale(order_id: int, ts: int, rng: Random, version: int = 1, code: str | None = None) -> Payload:
    """Return a payment of a schema version; `ts` in epoch milliseconds, `code` a good one unless given."""
    payload = {
        "order_id": order_id,
        "product_id": rng.randint(0, 500),
        "customer_id": rng.randint(0, 5_000),
        "confirmation_code": token(rng, 8) if code is None else code,
        "cc_number": "-".join(f"{rng.randint(0, 9_999):04}" for _ in range(4)),
        "expiration": f"{rng.randint(1, 12):02}/{rng.randint(27, 33)}",
        "amount": rng.randint(100, 99_999) / 100,
        "ts": ts,
    }
    if version >= 2:
        payload["payment_method"] = _method(rng)
    if version >= 3:
        payload["installments"] = rng.choice((None, 1, 3, 12))
    return payload


def _method(rng: Random) -> str | None:
    draw = rng.random()
    if draw < 0.1:
        return None
    return rng.choice(HOSTILE_WORDS) if draw < 0.2 else hostile(rng, rng.choice(_METHODS), 0.2)


def draft(
    payload: Payload,
    timestamp_ms: int,
    *,
    version: int = 1,
    partition: int | None = None,
    arrival_ms: int | None = None,
) -> Draft:
    """Return a payment as a record; its partition follows from the order id unless given."""
    order_id = payload["order_id"]
    return Draft(
        topic=PAYMENTS,
        partition=partition_of(order_id) if partition is None else partition,
        timestamp_ms=timestamp_ms,
        arrival_ms=timestamp_ms if arrival_ms is None else arrival_ms,
        key=text(str(order_id)),
        value=encode(f"payments-v{version}", payload),
        payload=payload,
        headers=(("trace-id", f"{order_id:08x}".encode()),) if order_id % 10 == 0 else (),
    )


def _delay(rng: Random) -> int:
    draw = rng.random()
    if draw < 0.02:
        return -rng.randint(1, HOUR)
    if draw < 0.06:
        return rng.randint(96 * HOUR + 1, 120 * HOUR)
    return rng.randint(MINUTE, 96 * HOUR if draw < 0.2 else DAY)


def _version(ts: int, versions: Sequence[int], since_ms: int, rng: Random) -> int:
    if ts < since_ms:
        return versions[0]
    return rng.choice(versions)


def for_orders(orders: list[ShopOrder], versions: Sequence[int], since_ms: int, span: Span, rng: Random) -> list[Draft]:
    """Return payments of most orders, payments of no order, and the copies of both.

    Before `since_ms` all are of the first of `versions`, from then on versions are mixed. Every fifth confirmation
    code is "0". A payment that would fall after the span has not been made yet.
    """
    due = [(order.orderid, order.orderdate + _delay(rng)) for order in orders if rng.random() < 0.95]
    strangers = [(UNMATCHED_ORDER + order.orderid, span.moment(rng)) for order in orders if rng.random() < 0.03]
    made = [(order_id, ts) for order_id, ts in due + strangers if ts < span.end_ms]
    drafts = []
    for index, (order_id, ts) in enumerate(made):
        version = _version(ts, versions, since_ms, rng)
        code = "0" if index % 5 == 4 else rng.choice(_BAD_CODES) if index % 97 == 0 else None
        timestamp_ms = ts + rng.randint(0, 2 * SECOND)
        late_ms = rng.randint(MINUTE, 2 * HOUR) if rng.random() < 0.03 else 0
        record = draft(
            sale(order_id, ts, rng, version, code),
            timestamp_ms,
            version=version,
            arrival_ms=timestamp_ms + late_ms,
        )
        drafts.append(record)
        if rng.random() < 0.1:
            drafts.append(_second_copy(record, span, rng))
    return drafts


def _second_copy(original: Draft, span: Span, rng: Random) -> Draft:
    later = rng.randint(0, MINUTE) if rng.random() < 0.6 else rng.randint(HOUR, 30 * HOUR)
    elsewhere = (original.partition + 1) % PARTITIONS if rng.random() < 0.25 else None
    return copy(original, span.capped(original.arrival_ms + later, rng), elsewhere)
