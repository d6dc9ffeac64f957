"""The sample data: the same for ever, and with every awkward record in it that the rules speak of."""

import hashlib
import json
import os
import re
import struct
import subprocess
import sys
from collections import defaultdict
from decimal import Decimal
from itertools import pairwise

import pytest

from local_stack.sample_data import produced_log
from local_stack.sample_data.codec import decode
from local_stack.sample_data.edges import AWAITED_ORDER, EDGE_ORDER, SALE_ORDER
from local_stack.sample_data.expected import rules
from local_stack.sample_data.expected import sales as expected_sales
from local_stack.sample_data.expected.summary import summarise
from local_stack.sample_data.log import PAYMENTS, PIZZA, TABLES, TOPICS, TRADES, shop_topic
from local_stack.sample_data.plan import HOUR, MINUTE, WEEK, Plan
from python_common.errors import UserError
from python_common.weeks import IsoWeek
from tests.support.pii_values import pii_values

LAST_WEEK = IsoWeek.parse("2026-W30")
END_MS = int(LAST_WEEK.end.timestamp()) * 1000
ARGUMENTS = {"orders": 300, "seed": 7, "weeks": 3, "last_week": LAST_WEEK}


@pytest.fixture(scope="module")
def first():
    return produced_log(**ARGUMENTS)


@pytest.fixture(scope="module")
def both():
    return produced_log(**ARGUMENTS, wave=2)


@pytest.fixture(scope="module")
def second(first, both):
    return both[len(first) :]


def digest(log) -> str:
    return hashlib.sha256(repr(log).encode()).hexdigest()


def test_the_log_is_the_same_in_every_process(first):
    program = (
        "from python_common.weeks import IsoWeek;from local_stack.sample_data import produced_log;import hashlib;"
        "log = produced_log(orders=300, seed=7, weeks=3, last_week=IsoWeek.parse('2026-W30'));"
        "print(hashlib.sha256(repr(log).encode()).hexdigest())"
    )
    environment = {**os.environ, "PYTHONHASHSEED": "12345"}
    printed = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
    )
    assert printed.stdout.strip() == digest(first)


@pytest.mark.parametrize(
    "other", [{"seed": 8}, {"orders": 301}, {"weeks": 2}, {"last_week": LAST_WEEK.minus(1)}], ids=str
)
def test_every_argument_matters(first, other):
    assert digest(produced_log(**{**ARGUMENTS, **other})) != digest(first)


def test_the_second_wave_follows_the_first(first, both):
    assert both[: len(first)] == first
    offsets = defaultdict(list)
    for record in both:
        offsets[record.topic, record.partition].append(record.offset)
    assert {topic for topic, _ in offsets} == set(TOPICS)
    assert {partition for _, partition in offsets} == {0, 1, 2}
    for of_partition in offsets.values():
        assert of_partition == list(range(len(of_partition)))


@pytest.mark.parametrize("wave", ["first", "second"])
@pytest.mark.parametrize("topic", TOPICS)
def test_every_watermark_passes_the_week_and_no_clock_runs_an_hour_ahead(topic, wave, request):
    newest = max(record.timestamp_ms for record in request.getfixturevalue(wave) if record.topic == topic)
    assert END_MS <= newest < END_MS + 30 * MINUTE


@pytest.mark.parametrize("topic", [PIZZA, PAYMENTS])
def test_records_are_on_every_week_boundary(first, topic):
    moments = {record.timestamp_ms for record in first if record.topic == topic and record.payload}
    for monday in (END_MS - weeks * WEEK for weeks in range(4)):
        assert {monday - 1, monday} <= moments


def test_every_value_is_that_of_the_log(both):
    for record in both:
        if record.value is None:
            assert (record.payload, record.error) == (None, None)
            continue
        value = record.value.to_bytes(defaultdict(lambda: 1))
        if record.error == "not_registry_avro":
            assert len(value) < 5 or value[0] != 0
        elif record.error == "unknown_schema_id":
            assert struct.unpack(">bI", value[:5]) == (0, 2_000_000_000)
        elif record.error == "decode_failed":
            with pytest.raises((EOFError, IndexError, struct.error)):
                decode(record.value)
        else:
            assert value[:5] == b"\x00\x00\x00\x00\x01"
            decoded_value = decode(record.value)
            assert {key: value for key, value in decoded_value.items() if key not in ("date", "ts", "orderdate")} == {
                key: value for key, value in record.payload.items() if key not in ("date", "ts", "orderdate")
            }


def test_every_kind_of_damage_is_planted(first, second):
    for log in (first, second):
        kinds = {topic: {record.error for record in log if record.topic == topic and record.error} for topic in TOPICS}
        every_kind = {"not_registry_avro", "unknown_schema_id", "decode_failed"}
        for topic in (PIZZA, PAYMENTS, TRADES, shop_topic("customers")):
            assert kinds[topic] == every_kind
    sizes = {len(record.value.body) for record in first if record.error == "not_registry_avro"}
    assert {0, 1, 2, 3, 4} <= sizes


def test_keys_of_store_orders_are_of_every_kind(first):
    keys = [record.key and record.key.body for record in first if record.topic == PIZZA]
    assert None in keys
    assert any(key and len(key) == 4 and key[0] == 0 for key in keys)
    assert any(key and key.isdigit() for key in keys)

    def is_utf8(key: bytes) -> bool:
        try:
            key.decode()
        except UnicodeDecodeError:
            return False
        return True

    assert any(key and not is_utf8(key) for key in keys)
    assert any(record.key is None and record.value is None for record in first)


def test_a_tenth_of_the_payments_is_sent_twice(first):
    originals, copies = {}, []
    for record in rules.decoded(first, PAYMENTS):
        original = originals.setdefault(record.value, record)
        if original is not record:
            copies.append((original, record))
    assert 0.06 < len(copies) / len(originals) < 0.13
    assert any(late.timestamp_ms - early.timestamp_ms > HOUR for early, late in copies)
    assert any(late.partition != early.partition for early, late in copies)


def test_a_fifth_of_the_payments_has_no_confirmation_code(first):
    codes = [record.payload["confirmation_code"] for record in rules.surviving_payments(first).values()]
    assert 0.17 < codes.count("0") / len(codes) < 0.2
    assert {code for code in codes if code != "0" and not re.fullmatch("[A-Z0-9]{8}", code)}


def test_payment_versions_are_interleaved(both):
    versions = [
        record.value.schema
        for record in sorted(rules.decoded(both, PAYMENTS), key=lambda record: (record.partition, record.offset))
        if record.partition == 0
    ]
    changes = set(pairwise(versions))
    assert {("payments-v1", "payments-v2"), ("payments-v2", "payments-v1"), ("payments-v3", "payments-v2")} <= changes


def test_records_arrive_out_of_order(first):
    for topic in (PIZZA, PAYMENTS, shop_topic("products"), shop_topic("orders")):
        partitions = defaultdict(list)
        for record in first:
            if record.topic == topic:
                partitions[record.partition].append(record.timestamp_ms)
        assert any(moments != sorted(moments) for moments in partitions.values())


@pytest.mark.parametrize("table", TABLES)
def test_shop_rows_go_return_and_get_lost(first, table):
    histories = defaultdict(str)
    for record in first:
        if record.topic == shop_topic(table) and record.error is None:
            deleted = record.payload and record.payload["__deleted"] == "true"
            histories[record.key] += "T" if record.payload is None else "D" if deleted else "U"
    assert {"UDT", "UDTU", "UT"} <= set(histories.values())
    assert not any(re.search("D[^T]|D$", history) for history in histories.values())


def test_a_shop_key_stays_in_its_partition_but_for_late_changes(first, both):
    partitions = {"first": defaultdict(set), "both": defaultdict(set)}
    for wave, log in (("first", first), ("both", both)):
        for record in log:
            if record.topic.startswith("shiftleft"):
                partitions[wave][record.topic, record.key].add(record.partition)
    assert {len(used) for used in partitions["first"].values()} == {1}
    moved = {topic for (topic, _), used in partitions["both"].items() if len(used) > 1}
    assert moved == {shop_topic("products"), shop_topic("customers")}


def test_hostile_text_reaches_every_exported_text(first):
    texts = {
        "category": [
            line["category"] for record in rules.decoded(first, PIZZA) for line in record.payload["order_lines"]
        ],
        "payment_method": [record.payload.get("payment_method") for record in rules.decoded(first, PAYMENTS)],
        "productname": [record.payload["productname"] for record in rules.decoded(first, shop_topic("products"))],
        "customername": [record.payload["customername"] for record in rules.decoded(first, shop_topic("customers"))],
    }
    for of_field in texts.values():
        joined = "\0".join(text for text in of_field if text is not None)
        for needle in ('"', ",", "\n", "\0=", "\t", "\0 "):
            assert needle in joined
    everything = "\0".join(text for of_field in texts.values() for text in of_field if text is not None)
    for needle in ("\r\n", "\0+", "\0-", "\0@", "\0\uff1d", "\0" + "007", "\N{SLICE OF PIZZA}", "\\N", "\0\0"):
        assert needle in everything


def test_headers_are_on_some_records_only(first):
    with_headers = [record.headers for record in first if record.headers]
    assert 0 < len(with_headers) < len(first)
    assert any(value is None for headers in with_headers for _, value in headers)


def test_planted_values_are_long_enough_to_search_for_and_not_in_the_expected_rows(both):
    values = pii_values(both)
    assert set(values) == {
        "registertime",
        "userid",
        "cc_number",
        "account",
        "customername",
        "email",
        "street",
        "postalcode",
    }
    assert min(len(value) for of_field in values.values() for value in of_field) >= 10
    text = json.dumps(summarise(both, Plan(**ARGUMENTS), 2), ensure_ascii=False)
    assert not [field for field, of_field in values.items() if any(value in text for value in of_field)]


def test_the_96_hour_window_has_payments_on_both_edges(first):
    orders, completed = rules.surviving_rows(first, "orders"), rules.completed_orders(first)
    by_delay = {
        payment.payload["ts"] - orders[order_id].payload["orderdate"]: order_id in completed
        for order_id, payment in rules.clean_payments(first).items()
        if EDGE_ORDER < order_id <= EDGE_ORDER + 6
    }
    assert by_delay == {
        -1: False,
        0: True,
        1: True,
        96 * HOUR - 1: True,
        96 * HOUR: True,
        96 * HOUR + 1: False,
    }


def test_sales_have_every_edge(first):
    sales = expected_sales.product_sales(first)
    assert set(expected_sales.excluded(first)) == {
        "no order",
        "order deleted",
        "no product",
        "no product name",
        "no price",
    }
    assert {sale.is_backdated for sale in sales} == {True, False}
    assert {sale.shipping_city is None for sale in sales} == {True, False}
    edges = {sale.order_id - SALE_ORDER: sale.price for sale in sales if sale.customer_id == 999_011}
    born, changed, back = Decimal("10.00"), Decimal("12.34"), Decimal("9.99")
    assert [edges.get(step) for step in range(1, 9)] == [born, born, born, changed, changed, None, None, back]
    lines = expected_sales.lines(first)
    assert {line.channel_group for line in lines} == {"Physical", "Digital", "Other"}
    assert sum(line.week is None for line in lines) > 2
    assert {trade.week is None for trade in expected_sales.trades(first)} == {True, False}
    # One of the two orders at the start of the 30 days is in them, one of the two at their end.
    _, orders = expected_sales.customers_30d(sales, END_MS)[999_011]
    assert orders == len(edges) - 4


def test_the_second_wave_changes_prices_and_addresses_of_the_past(first, both):
    def by_item(log):
        return {sale.order_item_id: (sale.price, sale.shipping_city) for sale in expected_sales.product_sales(log)}

    before, after = by_item(first), by_item(both)
    changed = [(before[item], after[item]) for item in before.keys() & after.keys() if before[item] != after[item]]
    assert any(old[0] != new[0] for old, new in changed)
    assert any(old[1] != new[1] for old, new in changed)


def test_the_second_wave_completes_replaces_and_undoes(first, both):
    before, after = rules.completed_orders(first), rules.completed_orders(both)
    assert AWAITED_ORDER in after.keys() - before.keys()
    assert before.keys() - after.keys()
    replaced = [
        order_id
        for order_id, payment in rules.surviving_payments(first).items()
        if rules.surviving_payments(both)[order_id].payload["ts"] < payment.payload["ts"]
    ]
    assert len(replaced) == 5


def test_the_second_wave_repeats_facts_of_the_first(first, second):
    for topic in (PAYMENTS, PIZZA):
        known = {record.value for record in rules.decoded(first, topic)}
        assert [record for record in rules.decoded(second, topic) if record.value in known]


def test_the_second_wave_brings_new_schemas(first, second):
    def schemas(log):
        return {record.value.schema for record in log if record.payload}

    assert schemas(second) - schemas(first) == {"payments-v3", "pizza-orders-v2"}


def test_a_single_order_still_has_every_edge():
    log = produced_log(**{**ARGUMENTS, "orders": 1}, wave=2)
    assert AWAITED_ORDER in rules.completed_orders(log)
    assert rules.conflicting_payments(log) and rules.conflicting_store_orders(log)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"orders": 0}, "number of orders"),
        ({"weeks": 0}, "number of weeks"),
        ({"wave": 3}, "no wave 3"),
        ({"last_week": IsoWeek(9000, 1)}, "has not ended"),
    ],
    ids=str,
)
def test_arguments_out_of_range_are_refused(wrong, message):
    with pytest.raises(UserError, match=message):
        produced_log(**{**ARGUMENTS, **wrong})


def test_no_record_is_from_further_ahead_than_kafka_takes() -> None:
    """Whatever the seed draws, changes of the time of a sale at an invalid time included: seed 11 did."""
    for orders, seed in ((120, 11), (20, 2), (5, 5), (60, 12)):
        log = produced_log(orders=orders, seed=seed, weeks=3, last_week=IsoWeek(2026, 46), wave=2)
        end = IsoWeek(2026, 46).end.timestamp() * 1000
        assert max(record.timestamp_ms for record in log) < end + 60 * 60_000, (orders, seed)
