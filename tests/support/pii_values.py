"""The personal values that were planted, for tests that search artefacts for leaks."""

from collections import defaultdict
from collections.abc import Iterable

from python_dev.stack.sample_data.log import PAYMENTS, PIZZA, TRADES, Record, shop_topic

_FIELDS = {
    PIZZA: ("registertime", "userid"),
    PAYMENTS: ("cc_number",),
    TRADES: ("account", "userid"),
    shop_topic("customers"): ("customername", "email"),
    shop_topic("addresses"): ("street", "postalcode"),
}


def pii_values(log: Iterable[Record]) -> dict[str, set[str]]:
    """Return the planted values per field, as text.

    Gender and card expiration are omitted: too short to search for without false alarms.
    """
    by_field = defaultdict(set)
    for record in log:
        if record.payload is None:
            continue
        values = record.payload["customer"] if record.topic == PIZZA else record.payload
        for field in _FIELDS.get(record.topic, ()):
            if values[field] is not None:
                by_field[field].add(str(values[field]))
    return dict(by_field)
