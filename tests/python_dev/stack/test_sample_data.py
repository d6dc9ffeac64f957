"""The sample data: the same for ever, and so are the results that plain Python expects of it."""

import hashlib
import json

import pytest

from python_common.errors import UserError
from python_common.weeks import IsoWeek
from python_dev.stack.sample_data import produced_log
from python_dev.stack.sample_data.edges import AWAITED_ORDER
from python_dev.stack.sample_data.expected import rules
from python_dev.stack.sample_data.expected.summary import summarise
from python_dev.stack.sample_data.plan import Plan
from tests.support.pii_values import pii_values

ARGUMENTS = {"orders": 300, "seed": 7, "weeks": 3, "last_week": IsoWeek(2026, 30)}


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def test_the_log_and_its_results_stay_the_same():
    """A deliberate change of the sample data, or of a rule, changes these. Each process hashes with another seed."""
    log = produced_log(**ARGUMENTS, wave=2)
    expected = summarise(log, Plan(**ARGUMENTS), 2)
    assert digest(repr(log)) == "f71c202218d44cd59b12cc1ec24cf1e123997a909e535c6a967a2835b14cf003"
    as_text = json.dumps(expected, sort_keys=True)
    assert digest(as_text) == "0430288a66dfbf7cae0aeb5de12e4cb244fb0bc1607642b9a78021648c40f17f"


def test_planted_values_are_long_enough_to_search_for_and_not_in_the_expected_rows():
    log = produced_log(**ARGUMENTS, wave=2)
    values = pii_values(log)
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
    text = json.dumps(summarise(log, Plan(**ARGUMENTS), 2), ensure_ascii=False)
    assert not [field for field, of_field in values.items() if any(value in text for value in of_field)]


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
