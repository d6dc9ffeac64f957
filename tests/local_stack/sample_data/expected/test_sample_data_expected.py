"""The results expected by plain Python, on logs that are small enough to see the answer."""

from dataclasses import replace
from decimal import Decimal
from random import Random

import pytest

from local_stack.sample_data.expected import rules
from local_stack.sample_data.expected import sales as expected_sales
from local_stack.sample_data.log import PARTITIONS, number, partition_of
from local_stack.sample_data.plan import DAY, HOUR
from local_stack.sample_data.sources import payments, shop, storefront
from local_stack.sample_data.sources.brokerage import draft as trade
from local_stack.sample_data.sources.shop_changes import change, delete, tombstone

NOON = 1_782_129_600_000  # 2026-06-22 12:00 UTC
CUSTOMER = {"registertime": 1, "userid": "u", "regionid": "r", "gender": "OTHER"}


def paid(ts, timestamp_ms, partition, *, amount=1.0, code="ABCD1234", arrival_ms=None, order_id=1):
    sale = {**payments.sale(order_id, ts, Random(1), code=code), "amount": amount}
    return payments.draft(sale, timestamp_ms, partition=partition, arrival_ms=arrival_ms)


def ordered(orderdate, timestamp_ms=NOON, orderid=1):
    row = {"orderid": orderid, "customerid": 1, "orderdate": orderdate, "status": "Pending", "channel": None}
    return change("orders", row, timestamp_ms)


@pytest.mark.parametrize(
    ("loser", "winner"),
    [
        pytest.param((NOON, NOON, 0, 0), (NOON - 1, NOON + HOUR, 2, 1), id="event_time"),
        pytest.param((1, NOON, 0, NOON), (NOON, NOON + HOUR, 2, NOON), id="valid_time"),
        pytest.param((NOON, NOON, 0, 0), (NOON, NOON - 1, 2, 1), id="kafka_timestamp"),
        pytest.param((NOON, NOON, 1, 0), (NOON, NOON, 0, 1), id="partition"),
        pytest.param((NOON, NOON, 1, 1), (NOON, NOON, 1, 0), id="offset"),
    ],
)
def test_the_earliest_payment_survives_by(loser, winner):
    drafts = [
        paid(ts, timestamp_ms, partition, amount=amount, arrival_ms=arrival_ms)
        for amount, (ts, timestamp_ms, partition, arrival_ms) in ((1.0, loser), (2.0, winner))
    ]
    log = number(drafts, {})
    assert rules.surviving_payments(log)[1].payload["amount"] == 2.0
    assert rules.conflicting_payments(log) == {1}


def test_an_exact_copy_is_no_conflict():
    log = number([paid(NOON, NOON, 0), paid(NOON, NOON + HOUR, 1)], {})
    assert rules.surviving_payments(log)[1].timestamp_ms == NOON
    assert rules.conflicting_payments(log) == set()


@pytest.mark.parametrize(
    ("delay", "completes"),
    [(-1, False), (0, True), (96 * HOUR, True), (96 * HOUR + 1, False)],
)
def test_a_payment_completes_an_order_within_96_hours(delay, completes):
    log = number([ordered(NOON), paid(NOON + delay, NOON, 0)], {})
    assert (1 in rules.completed_orders(log)) is completes


def test_a_payment_completes_nothing_when_the_order_is_deleted_or_missing_or_the_code_is_bad():
    order = ordered(NOON)
    gone = delete("orders", {name: value for name, value in order.payload.items() if name != "__deleted"}, NOON)
    assert not rules.completed_orders(number([order, *gone, paid(NOON, NOON, 0)], {}))
    assert not rules.completed_orders(number([order, paid(NOON, NOON, 0, order_id=2)], {}))
    assert not rules.completed_orders(number([order, paid(NOON, NOON, 0, code="0")], {}))


def at(partition, timestamp_ms, arrival_ms):
    return replace(ordered(NOON, timestamp_ms), partition=partition, arrival_ms=arrival_ms)


@pytest.mark.parametrize(
    ("drafts", "order"),
    [
        pytest.param([at(0, NOON, 1), at(0, NOON - 60_000, 2)], [(0, 0, NOON), (0, 1, NOON)], id="clock_set_back"),
        pytest.param(
            [at(0, NOON + DAY, 1), at(0, NOON, 2), at(1, NOON + 1, 3)],
            [(1, 0, NOON + 1), (0, 0, NOON + DAY), (0, 1, NOON + DAY)],
            id="clock_ahead",
        ),
        pytest.param(
            [at(2, NOON, 1), at(1, NOON + 1, 2), at(1, NOON - 1, 3)],
            [(2, 0, NOON), (1, 0, NOON + 1), (1, 1, NOON + 1)],
            id="partition_added",
        ),
        pytest.param([at(1, NOON, 1), at(0, NOON, 2)], [(0, 0, NOON), (1, 0, NOON)], id="tie"),
    ],
)
def test_changes_are_in_kafkas_order(drafts, order):
    [changes] = rules.changes(number(drafts, {}), "orders").values()
    assert [(record.partition, record.offset, time_ms) for time_ms, record in changes] == order


def test_a_tombstone_alone_deletes_and_a_later_row_revives():
    row = {"productid": 5, "brand": "b", "productname": "n", "category": None, "description": None}
    row |= {"color": None, "size": None, "price": Decimal("1.00"), "stock": 1}
    lost = number([change("products", row, NOON), tombstone("products", row, NOON)], {})
    assert rules.is_deleted(rules.surviving_rows(lost, "products")[5])
    back = number([change("products", row, NOON), *delete("products", row, NOON), change("products", row, NOON)], {})
    assert not rules.is_deleted(rules.surviving_rows(back, "products")[5])


def test_store_orders_are_numbered_per_store_and_their_lines_add_up():
    line = {"product_id": 1, "category": "c", "quantity": 3, "unit_price": 0.335, "net_price": 1.005}
    drafts = [
        storefront.draft({**storefront.order(store, 9, CUSTOMER, Random(1)), "order_lines": [line, line]}, moment, None)
        for store, moment in ((1, NOON), (2, NOON), (1, NOON + 1))
    ]
    log = number(drafts, {})
    lines = expected_sales.lines(log)
    assert [(line.order, line.line_number) for line in lines] == [
        (("store", store, 9), line_number) for store in (1, 2) for line_number in (1, 2)
    ]
    assert sum(line.line_amount for line in lines) == Decimal("4.04")
    assert rules.conflicting_store_orders(log) == set()


def sold(*moments, product_changes, customer_changes=(), channel=None):
    """Return the log of one order per moment, each of one unit of product 5 for customer 5."""
    drafts = [*product_changes, *customer_changes]
    for orderid, moment in enumerate(moments, 1):
        row = {"orderid": orderid, "customerid": 5, "orderdate": moment, "status": "Completed", "channel": channel}
        item = {"orderitemid": orderid, "orderid": orderid, "productid": 5, "quantity": 2}
        drafts += [change("orders", row, NOON), change("order_items", item, NOON)]
    return number(drafts, {})


def test_a_sale_has_the_price_and_address_as_of_its_order():
    product = {**shop.product(5, Random(1)), "productname": "n"}
    customer = shop.customer(5, ["home"], Random(1))
    home = shop.address("home", Random(1))
    elsewhere = (partition_of(5) + 1) % PARTITIONS
    log = sold(
        *(NOON + hours * HOUR - early for hours in range(4) for early in (1, 0)),
        product_changes=[
            change("products", {**product, "price": Decimal("1.00")}, NOON),
            # arrives last, in another partition, and comes before the delete
            replace(change("products", {**product, "price": Decimal("2.00")}, NOON + HOUR), partition=elsewhere),
            *delete("products", product, NOON + 2 * HOUR),
            change("products", {**product, "price": Decimal("4.00")}, NOON + 3 * HOUR),
        ],
        customer_changes=[
            change("customers", {**customer, "shipping_address_id": None}, NOON - HOUR),
            change("customers", {**customer, "shipping_address_id": "home"}, NOON + HOUR),
            change("addresses", home, NOON - HOUR),
        ],
    )
    sales = sorted(expected_sales.product_sales(log), key=lambda sale: sale.order_id)
    assert [(sale.order_id, sale.total_amount, sale.is_backdated, sale.shipping_city) for sale in sales] == [
        (1, Decimal("2.00"), True, None),
        (2, Decimal("2.00"), False, None),
        (3, Decimal("2.00"), False, None),
        (4, Decimal("4.00"), False, home["city"]),
        (5, Decimal("4.00"), False, home["city"]),
        (8, Decimal("8.00"), False, home["city"]),
    ]
    assert expected_sales.excluded(log) == {"no product": 2}
    assert expected_sales.customers_30d(sales, NOON + HOUR) == {5: (Decimal("10.00"), 4)}
    assert expected_sales.customers_30d(sales, NOON - 1 + 30 * DAY) == {5: (Decimal("20.00"), 5)}


def test_a_line_is_a_line_without_a_price_too_and_an_invalid_time_has_no_week():
    nameless = {**shop.product(5, Random(1)), "productname": " ", "price": Decimal("3.00")}
    log = sold(1, NOON, 10 * NOON, product_changes=[change("products", nameless, NOON)], channel=" Kiosk")
    lines = sorted(expected_sales.lines(log), key=lambda line: line.order)
    values = [(line.week is None, line.channel, line.channel_group, line.line_amount) for line in lines]
    assert values == [(week_is_none, "kiosk", "Other", Decimal("6.00")) for week_is_none in (True, False, True)]
    assert expected_sales.product_sales(log) == []
    unknown = sold(NOON, product_changes=[], channel=None)
    [line] = expected_sales.lines(unknown)
    assert (line.channel, line.line_amount) == ("online", None)


def test_a_sum_over_no_known_price_is_null_and_one_over_some_leaves_the_others_out():
    [unpriced] = expected_sales.lines(sold(NOON, product_changes=[], channel=None))
    priced = replace(unpriced, line_amount=Decimal("6.00"), category="Hats")
    free = replace(unpriced, line_amount=Decimal("0.00"), category="Bags")
    lines = [unpriced, priced, replace(priced, line_amount=None), free]
    figures = {
        key[2]: (cell.unpriced_line_count, cell.order_value) for key, cell in expected_sales.demand(lines).items()
    }
    assert figures == {None: (1, None), "Hats": (1, Decimal("6.00")), "Bags": (0, Decimal("0.00"))}
    [total] = expected_sales.activity(lines).values()
    assert (total.line_count, total.unpriced_line_count, total.order_value) == (4, 2, Decimal("6.00"))


def test_trades_are_cents_and_none_is_dropped():
    drafts = [trade(("a", "u"), NOON, Random(3)) for _ in range(2)]
    log = number(drafts, {})
    payload = log[0].payload
    total = Decimal(payload["quantity"] * payload["price"]) / 100
    assert [trade.total_price for trade in expected_sales.trades(log)] == [total] * 2


@pytest.mark.parametrize(
    ("moment", "week"),
    [
        (1_798_416_000_000 - 1, "2026-W52"),
        (1_798_416_000_000, "2026-W53"),
        (1_799_020_800_000 - 1, "2026-W53"),
        (1_799_020_800_000, "2027-W01"),
    ],
)
def test_weeks_start_on_monday_and_2026_has_53(moment, week):
    assert rules.week_of(moment) == week


@pytest.mark.parametrize(
    ("double", "expected"), [(0.125, "0.13"), (-0.125, "-0.13"), (1.005, "1.01"), (2.675, "2.68"), (7.0, "7.00")]
)
def test_money_rounds_the_written_number_half_away_from_zero(double, expected):
    assert str(rules.money(double)) == expected
