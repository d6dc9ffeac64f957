"""Puts a history and increments into bronze by Spark SQL: payments, web shop orders and their items."""

from collections.abc import Mapping

from pyhive import hive

from python_common.spark.thrift import rows

DAYS = 3 * 365
PRODUCTS = 1_000
CUSTOMERS = 10_000
# Of an increment: new keys, exact copies of random old rows, and old keys with another event time.
NEW, COPIES = 0.88, 0.10
_POSITION = {
    "kafka_partition": "cast(id % 3 as int)",
    "kafka_timestamp": "{moment}",
    "kafka_raw_value": "cast('x' as binary)",
    "ingest_batch": "cast({batch} as bigint)",
    "ingested_at": "timestamp '2026-11-09 00:00:00' + make_interval(0, 0, 0, {batch})",
}
_COLUMNS: Mapping[str, Mapping[str, str]] = {
    "payments": {
        "order_id": "cast(key as int)",
        "product_id": "0",
        "customer_id": f"cast(key % {CUSTOMERS} as int)",
        "confirmation_code": "if(key % 5 = 0, '0', 'AB12CD34')",
        "payment_method": "'card'",
        "cc_number": "'0000-0000-0000-0000'",
        "expiration": "'01/30'",
        "amount": "cast(key % 10000 as double) / 100",
        "ts": "{moment}",
    },
    "shiftleft_public_orders": {
        "orderid": "cast(key as int)",
        "customerid": f"cast(key % {CUSTOMERS} as int)",
        "orderdate": "cast({moment} - make_interval(0, 0, 0, 0, cast(key % 120 as int)) as timestamp_ntz)",
        "status": "'Completed'",
        "channel": "'web'",
        "__deleted": "'false'",
    },
    "shiftleft_public_order_items": {
        "orderitemid": "cast(key as int)",
        "orderid": "cast(key as int)",
        "productid": f"cast(key % {PRODUCTS} as int)",
        "quantity": "cast(1 + key % 5 as int)",
        "__deleted": "'false'",
    },
}
_PRODUCTS = {
    "productid": "cast(key as int)",
    "productname": "'Boots'",
    "price": "cast(9.99 as decimal(10, 2))",
    "__deleted": "'false'",
}


def add_history(cursor: hive.Cursor, size: int) -> None:
    """Put `size` rows into each table, as batch 1."""
    _insert(
        cursor,
        "shiftleft_public_products",
        _PRODUCTS,
        f"select id, id as key, 0 as shift from range({PRODUCTS})",
        1,
        size,
    )
    for table, columns in _COLUMNS.items():
        _insert(cursor, table, columns, f"select id, id as key, 0 as shift from range({size})", 1, size)


def add_increment(cursor: hive.Cursor, size: int, increment: int, batch: int) -> None:
    """Put `increment` rows into each table that follow `size` rows of history, as one batch."""
    first = size + (batch - 2) * increment
    new, copies = int(increment * NEW), int(increment * COPIES)
    keys = f"""
        select
            id,
            case when number < {new} then id else pmod(xxhash64(id, {batch}), {size}) end as key,
            if(number < {new + copies}, 0, 3600) as shift
        from (select id, id - {first} as number from range({first}, {first + increment}))
    """
    for table, columns in _COLUMNS.items():
        _insert(cursor, table, columns, keys, batch, size)


def _insert(cursor: hive.Cursor, table: str, columns: Mapping[str, str], keys: str, batch: int, size: int) -> None:
    moment = (
        f"(timestamp '2023-10-01 00:00:00'"
        f" + make_dt_interval(0, 0, 0, cast(key as double) / {size} * {DAYS * 86_400} - shift))"
    )
    selected = {**columns, **_POSITION, "kafka_offset": "id"}
    values = ", ".join(sql.format(moment=moment, batch=batch) for sql in selected.values())
    rows(cursor, f"insert into bronze.{table} ({', '.join(selected)}) select {values} from ({keys})")
