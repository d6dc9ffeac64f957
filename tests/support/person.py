"""A person whose records are in every topic that can hold one, next to those of the sample data."""

from random import Random

from python_common.weeks import IsoWeek
from python_dev.stack.sample_data.log import Log, ends, number
from python_dev.stack.sample_data.plan import DAY, HOUR
from python_dev.stack.sample_data.sources import payments
from python_dev.stack.sample_data.sources.shop_changes import change
from python_dev.stack.sample_data.sources.shop_orders import ShopOrder

CUSTOMER, ADDRESS, CARD = 1_918_273_645, "ADDR-1918273645", "4929-1746-3388-2051"
# One in each of the last two weeks.
ORDERS = (7_700_001, 7_700_002)


def of_person(week: IsoWeek, others: Log) -> Log:
    """Return the records of a person, and of the items that they ordered, after all others."""
    end_ms = int(week.end.timestamp()) * 1000
    address = {
        "addressid": ADDRESS,
        "street": "17 Quittenbaumweg",
        "city": "Kesterby",
        "state": "KB",
        "postalcode": "0049 QUITTEN",
        "country": "GB",
    }
    customer = {
        "customerid": CUSTOMER,
        "customername": "Wilhelmine Quittenbaum",
        "email": "wilhelmine.quittenbaum@example.org",
        "segment": "New",
        "shipping_address_id": ADDRESS,
        "billing_address_id": ADDRESS,
    }
    born_ms = end_ms - 14 * DAY
    moved = {**customer, "email": "w.quittenbaum.before@example.org"}
    drafts = [
        change("addresses", address, born_ms),
        change("customers", moved, born_ms),
        change("customers", customer, born_ms + DAY),
    ]
    for count, order_id in enumerate(ORDERS):
        ordered_ms = end_ms - (count + 1) * 7 * DAY + 3 * DAY
        order = ShopOrder(order_id, CUSTOMER, ordered_ms, "web")
        item = {"orderitemid": 10 * order_id, "orderid": order_id, "productid": 1, "quantity": 1}
        sale = payments.sale(order_id, ordered_ms + HOUR, Random(order_id), version=3)
        drafts += [
            change("orders", order.row("Completed"), ordered_ms),
            change("order_items", item, ordered_ms),
            payments.draft(
                {**sale, "customer_id": CUSTOMER, "cc_number": CARD, "payment_method": "card"},
                ordered_ms + HOUR,
                version=3,
            ),
        ]
    return number(drafts, ends(others))
