"""The brokerage: stock trades without a key."""

from random import Random

from python_dev.stack.sample_data.codec import encode
from python_dev.stack.sample_data.log import PARTITIONS, TRADES, Draft
from python_dev.stack.sample_data.plan import MINUTE, Span
from python_dev.stack.sample_data.text import token

_SYMBOLS = ("ZVZZT", "ZWZZT", "ZXZZT", "ZJZZT", "ZTEST")


def traders(count: int, rng: Random) -> list[tuple[str, str]]:
    """Return (account, userid) pairs."""
    return [(f"ACC{token(rng, 9)}", f"Trader_{token(rng, 9)}") for _ in range(count)]


def draft(trader: tuple[str, str], timestamp_ms: int, rng: Random) -> Draft:
    """Return one trade; its price is in cents."""
    account, userid = trader
    payload = {
        "side": rng.choice(("BUY", "SELL")),
        "quantity": rng.randint(1, 5_000),
        "symbol": rng.choice(_SYMBOLS),
        "price": rng.randint(5, 99_999),
        "account": account,
        "userid": userid,
    }
    return Draft(
        topic=TRADES,
        partition=rng.randrange(PARTITIONS),
        timestamp_ms=timestamp_ms,
        arrival_ms=timestamp_ms,
        key=None,
        value=encode("stock_trades-v1", payload),
        payload=payload,
    )


def trades(count: int, people: list[tuple[str, str]], plan_end_ms: int, span: Span, rng: Random) -> list[Draft]:
    """Return `count` trades in the span and three at and just after the end of the last week."""
    moments = [span.moment(rng) for _ in range(count)]
    moments += [plan_end_ms, plan_end_ms + MINUTE, plan_end_ms + 2 * MINUTE]
    return [draft(rng.choice(people), moment, rng) for moment in moments]
