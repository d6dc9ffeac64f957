"""The web shop's products, customers and addresses."""

from decimal import Decimal
from math import isqrt
from random import Random

from python_dev.stack.sample_data.log import Draft, Payload
from python_dev.stack.sample_data.plan import HOUR, SECOND, Plan, Span
from python_dev.stack.sample_data.sources.shop_changes import closing, life
from python_dev.stack.sample_data.text import HOSTILE_WORDS, hostile, hostile_form, token, word

CITIES = (
    ("Northaven", "NH", "US"),
    ("Port Elden", "CA", "US"),
    ("Sankt Orla", "", "DE"),
    ("Vill\u00e9rac, Basse", None, "FR"),
    ("Kesterby", "KB", "GB"),
    ("Minato-sur", "TK", "JP"),
)
SEGMENTS = ("Premium", "Regular", "New")


def product_count(plan: Plan) -> int:
    """Return how many products there are: the catalogue grows with the root of the orders."""
    return 20 + 2 * isqrt(plan.orders)


def customer_count(plan: Plan) -> int:
    """Return how many customers there are; a regular one orders more than once."""
    return 10 + int(plan.orders**0.75)


def birthday(rng: Random, span: Span, early_share: float) -> int:
    """Return when a row is inserted: in the hour before the first week, or some time later."""
    if rng.random() < early_share:
        return span.start_ms - rng.randint(SECOND, HOUR)
    return span.moment(rng)


def product(productid: int, rng: Random) -> Payload:
    """Return a product; a few have no name or no price, as products that are not on sale yet."""
    name = f"{word(rng, 2)} {word(rng, 3)}"
    # By number, so that a small catalogue has every form too.
    name = hostile_form(productid // 2, name) if productid % 2 else name
    return {
        "productid": productid,
        "brand": rng.choice(HOSTILE_WORDS) if productid % 9 == 0 else hostile(rng, word(rng, 3), 0.2),
        "productname": "" if productid % 17 == 0 else name,
        "category": rng.choice(("Shoes", "Shirts", "Bags", "Hats", None)),
        "description": hostile(rng, f"{word(rng)} {word(rng)} {word(rng)}", 0.5),
        "color": rng.choice(("red", "blue", "black", "green", None)),
        "size": rng.choice(("S", "M", "L", "042", None)),
        "price": Decimal(0) if productid % 19 == 0 else Decimal(rng.randint(99, 49_999)).scaleb(-2),
        "stock": rng.randint(0, 500),
    }


def customer(customerid: int, addresses: list[str], rng: Random) -> Payload:
    """Return a customer; some addresses are missing, and some name an address that does not exist."""
    first, last = word(rng), word(rng)
    name = f"{first} {last}"
    shipping = rng.choice([*addresses[:1] * 8, None, "", f"ADDR-LOST-{customerid}"])
    return {
        "customerid": customerid,
        "customername": name if customerid % 3 else hostile_form(customerid // 3, name),
        "email": f"{hostile(rng, f'{first}.{last}'.lower(), 0.05)}.{customerid}@example.com",
        "segment": rng.choice(SEGMENTS),
        "shipping_address_id": shipping,
        "billing_address_id": addresses[-1] if rng.random() < 0.9 else None,
    }


def address(addressid: str, rng: Random) -> Payload:
    """Return an address; postal codes have leading zeros and blanks inside."""
    city, state, country = rng.choice(CITIES)
    return {
        "addressid": addressid,
        "street": hostile(rng, f"{rng.randint(1, 999)} {word(rng)} {word(rng, 3)} Street", 0.3),
        "city": city,
        "state": state,
        "postalcode": f"00{rng.randint(10, 99)} {token(rng, 6)}",
        "country": country,
    }


def products(plan: Plan, rng: Random) -> list[Draft]:
    """Return the product log: prices and stock move, and some products are newer than their first order."""
    span, drafts, rows = plan.first_wave, [], []

    def update(row: Payload) -> Payload:
        price = row["price"] * Decimal(rng.randint(80, 125)) / 100
        return {**row, "price": price.quantize(Decimal("0.01")), "stock": rng.randint(0, 500)}

    for productid in range(1, product_count(plan) + 1):
        row = product(productid, rng)
        born_ms = birthday(rng, span, 0.85)
        updates = rng.randint(0, 2 * plan.weeks)
        drafts += life("products", row, born_ms, update, span=span, rng=rng, updates=updates, delete_share=0.08)
        rows.append(row)
    return drafts + closing("products", rows[:3], plan.end_ms)


def customers_and_addresses(plan: Plan, rng: Random) -> list[Draft]:
    """Return the logs of customers and of their addresses, one or two each."""
    span, drafts, customer_rows, address_rows = plan.first_wave, [], [], []

    def promote(row: Payload) -> Payload:
        return {**row, "segment": rng.choice(SEGMENTS)}

    def move(row: Payload) -> Payload:
        return {**address(row["addressid"], rng)}

    for customerid in range(1, customer_count(plan) + 1):
        born_ms = birthday(rng, span, 0.8)
        ids = [f"ADDR-{customerid:06}-{side}" for side in ("A", "B")[: rng.randint(1, 2)]]
        for addressid in ids:
            row = address(addressid, rng)
            updates = int(rng.random() < 0.1)
            drafts += life("addresses", row, born_ms, move, span=span, rng=rng, updates=updates, delete_share=0.02)
            address_rows.append(row)
        row = customer(customerid, ids, rng)
        updates = rng.choice((0, 0, 0, 1, 2))
        drafts += life("customers", row, born_ms, promote, span=span, rng=rng, updates=updates, delete_share=0.04)
        customer_rows.append(row)
    drafts += closing("customers", customer_rows[:3], plan.end_ms)
    return drafts + closing("addresses", address_rows[:3], plan.end_ms)
