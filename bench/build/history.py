"""Puts a history and increments into bronze by Spark SQL: payments, web shop orders and their items, or all topics."""

from collections.abc import Iterable, Mapping

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
# What whole builds have besides.
_OTHER_COLUMNS: Mapping[str, Mapping[str, str]] = {
    "pizza_orders": {
        "store_id": "cast(1 + key % 10 as int)",
        "store_order_id": "cast(key div 10 as int)",
        "coupon_code": "cast(1000 + key % 1000 as int)",
        "date": "date '2022-01-01'",
        "status": "'accepted'",
        "customer": f"named_struct('registertime', 1500000000000 + key % {CUSTOMERS}, 'userid',"
        f" concat('User_', key % {CUSTOMERS}), 'regionid', concat('Region_', key % 9), 'gender', 'OTHER')",
        "order_lines": f"transform(sequence(1, 2), line -> named_struct('product_id', cast(key % {PRODUCTS} as int),"
        " 'category', concat('category ', line), 'quantity', line, 'unit_price', cast(2.5 as double),"
        " 'net_price', cast(2.5 * line as double)))",
    },
    "stock_trades": {
        "side": "if(key % 2 = 0, 'BUY', 'SELL')",
        "quantity": "cast(1 + key % 5000 as int)",
        "symbol": "concat('ZZ', key % 9)",
        "price": "cast(1 + key % 1000 as int)",
        "account": "'ABC123'",
        "userid": f"concat('User_', key % {CUSTOMERS})",
    },
}
_PRODUCTS = {
    "productid": "cast(key as int)",
    "productname": "'Boots'",
    "price": "cast(9.99 as decimal(10, 2))",
    "__deleted": "'false'",
}
_PERSONS: Mapping[str, Mapping[str, str]] = {
    "shiftleft_public_customers": {
        "customerid": "cast(key as int)",
        "customername": "concat('Name ', key)",
        "email": "concat(key, '@example.com')",
        "segment": "'Premium'",
        "shipping_address_id": "cast(key as string)",
        "billing_address_id": "cast(key as string)",
        "__deleted": "'false'",
    },
    "shiftleft_public_addresses": {
        "addressid": "cast(key as string)",
        "street": "'Main Street 1'",
        "city": "'Springfield'",
        "state": "concat('State ', key % 50)",
        "postalcode": "'12345'",
        "country": "'US'",
        "__deleted": "'false'",
    },
}
_EVERY = {**_COLUMNS, **_OTHER_COLUMNS, **_PERSONS, "shiftleft_public_products": _PRODUCTS}
GROWING = tuple(_COLUMNS)
"""Tables that have a history and increments; those of whole builds are `ALL_GROWING`."""
ALL_GROWING = (*_COLUMNS, *_OTHER_COLUMNS)


def add_history(cursor: hive.Cursor, size: int, whole: bool = False) -> None:
    """Put `size` rows into each table, as batch 1; `whole` fills the tables of all topics."""
    rows_of = dict.fromkeys(ALL_GROWING if whole else GROWING, size)
    rows_of |= {"shiftleft_public_products": PRODUCTS}
    rows_of |= dict.fromkeys(_PERSONS if whole else (), CUSTOMERS)
    for table, count in rows_of.items():
        _insert(cursor, table, _EVERY[table], f"select id, id as key, 0 as shift from range({count})", 1, size)


def add_increment(
    cursor: hive.Cursor,
    size: int,
    first: int,
    increment: int,
    batch: int,
    tables: Iterable[str] = GROWING,
    oldest: int = 0,
) -> None:
    """Put `increment` rows into each table, as one batch: the numbers from `first` on, after `size` rows of history.

    Old keys are those of history from `oldest` on.
    """
    new, copies = int(increment * NEW), int(increment * COPIES)
    keys = f"""
        select
            id,
            case when number < {new} then id else {oldest} + pmod(xxhash64(id, {batch}), {size - oldest}) end as key,
            if(number < {new + copies}, 0, 3600) as shift
        from (select id, id - {first} as number from range({first}, {first + increment}))
    """
    for table in tables:
        _insert(cursor, table, _EVERY[table], keys, batch, size)


def _insert(cursor: hive.Cursor, table: str, columns: Mapping[str, str], keys: str, batch: int, size: int) -> None:
    moment = (
        f"(timestamp '2023-10-01 00:00:00'"
        f" + make_dt_interval(0, 0, 0, cast(key as double) / {size} * {DAYS * 86_400} - shift))"
    )
    selected = {**columns, **_POSITION, "kafka_offset": "id"}
    values = ", ".join(sql.format(moment=moment, batch=batch) for sql in selected.values())
    rows(cursor, f"insert into bronze.{table} ({', '.join(selected)}) select {values} from ({keys})")
