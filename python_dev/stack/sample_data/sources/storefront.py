"""The stores' tills: pizza orders, whose keys follow no registry."""

from random import Random

from python_dev.stack.sample_data.codec import encode, text
from python_dev.stack.sample_data.log import PIZZA, Draft, Payload, Wire, copy, partition_of
from python_dev.stack.sample_data.plan import DAY, HOUR, MINUTE, Span
from python_dev.stack.sample_data.text import HOSTILE_WORDS, hostile, token

STORES = 10
_CATEGORIES = ("pizza", "salad", "dessert", "drinks")
_FIRST_DAY, _LAST_DAY = 17_897, 19_357  # 2019-01-01 and 2022-12-31 in days since 1970


def regulars(count: int, rng: Random) -> list[Payload]:
    """Return customers of the stores; `registertime` in epoch milliseconds."""
    return [
        {
            "registertime": rng.randint(1_400_000_000_000, 1_500_000_000_000),
            "userid": f"User_{token(rng, 9)}",
            "regionid": f"Region_{rng.randint(1, 9)}",
            "gender": rng.choice(("MALE", "FEMALE", "OTHER")),
        }
        for _ in range(count)
    ]


def _line(rng: Random) -> Payload:
    quantity, unit_price = rng.randint(1, 9), rng.randint(50, 2_999) / 100
    category = rng.choice(HOSTILE_WORDS) if rng.random() < 0.05 else rng.choice(_CATEGORIES)
    return {
        "product_id": rng.randint(1, 60),
        "category": hostile(rng, category, 0.1),
        "quantity": quantity,
        "unit_price": unit_price,
        "net_price": round(quantity * unit_price, 2),
    }


def order(store_id: int, store_order_id: int, customer: Payload, rng: Random, version: int = 1) -> Payload:
    """Return a store order of a schema version with one to five lines."""
    payload = {
        "store_id": store_id,
        "store_order_id": store_order_id,
        "coupon_code": rng.randint(1_000, 2_000),
        "date": rng.randint(_FIRST_DAY, _LAST_DAY),
        "status": "accepted",
        "customer": customer,
        "order_lines": [_line(rng) for _ in range(rng.randint(1, 5))],
    }
    if version >= 2:
        payload["table_number"] = rng.choice((None, 1, 7, 42))
    return payload


def draft(
    payload: Payload,
    timestamp_ms: int,
    key: Wire | None,
    *,
    version: int = 1,
    arrival_ms: int | None = None,
) -> Draft:
    """Return a store order as a record."""
    business_key = f"{payload['store_id']}-{payload['store_order_id']}"
    headers = (("till", b"\xff\x00"), ("till", None)) if payload["store_order_id"] % 20 == 0 else ()
    return Draft(
        topic=PIZZA,
        partition=partition_of(business_key),
        timestamp_ms=timestamp_ms,
        arrival_ms=timestamp_ms if arrival_ms is None else arrival_ms,
        key=key,
        value=encode(f"pizza-orders-v{version}", payload),
        payload=payload,
        headers=headers,
    )


def _key(payload: Payload, rng: Random) -> Wire | None:
    """Return a key as the tills send them: mostly the order's number as text, sometimes nothing or foreign bytes."""
    number, draw = payload["store_order_id"], rng.random()
    if draw < 0.05:
        return None
    if draw < 0.08:
        return Wire(number.to_bytes(4, "big"))
    if draw < 0.10:
        return Wire(b"\xc3\x28\xff" + number.to_bytes(4, "big"))
    return text(str(number))


def orders(
    first_number: int,
    count: int,
    customers: list[Payload],
    span: Span,
    rng: Random,
    *,
    version: int = 1,
) -> list[Draft]:
    """Return `count` store orders numbered per store, some sent twice, some arriving late."""
    drafts = []
    for index in range(count):
        store_id, number = index % STORES + 1, first_number + index // STORES
        payload = order(store_id, number, rng.choice(customers), rng, version)
        timestamp_ms = span.moment(rng)
        late_ms = rng.randint(MINUTE, 12 * HOUR) if rng.random() < 0.03 else 0
        record = draft(payload, timestamp_ms, _key(payload, rng), version=version, arrival_ms=timestamp_ms + late_ms)
        drafts.append(record)
        if rng.random() < 0.04:
            drafts.append(copy(record, span.capped(record.arrival_ms + rng.randint(0, DAY), rng)))
    return drafts
