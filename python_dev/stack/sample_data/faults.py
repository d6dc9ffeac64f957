"""Records that no reader can decode, and records without a value."""

from collections.abc import Iterable
from dataclasses import replace

from python_dev.stack.sample_data.log import (
    DECODE_FAILED,
    NOT_REGISTRY_AVRO,
    PAYMENTS,
    PIZZA,
    TRADES,
    UNKNOWN_SCHEMA,
    UNKNOWN_SCHEMA_ID,
    Draft,
    Wire,
    shop_topic,
)
from python_dev.stack.sample_data.plan import MINUTE, SECOND

_CORRUPTED_TOPICS = (PIZZA, PAYMENTS, TRADES, shop_topic("customers"))


def _damaged(value: Wire) -> Iterable[tuple[Wire, str]]:
    yield Wire(b""), NOT_REGISTRY_AVRO
    for size in range(1, 5):
        yield Wire(b"\x00\x00\x00\x01"[:size]), NOT_REGISTRY_AVRO
    yield Wire(b"\x01\x00\x00\x00\x01" + value.body), NOT_REGISTRY_AVRO
    yield Wire(value.body, UNKNOWN_SCHEMA), UNKNOWN_SCHEMA_ID
    yield Wire(b"", value.schema), DECODE_FAILED
    yield Wire(value.body[:1], value.schema), DECODE_FAILED
    yield Wire(value.body[:-1], value.schema), DECODE_FAILED


def _corrupt(good: Draft, intact: Wire, timestamp_ms: int) -> list[Draft]:
    """Return one record of every kind of damage, made from a good record and its value, a second apart."""
    return [
        replace(
            good,
            timestamp_ms=timestamp_ms + step * SECOND,
            arrival_ms=timestamp_ms + step * SECOND,
            value=value,
            payload=None,
            error=error,
        )
        for step, (value, error) in enumerate(_damaged(intact))
    ]


def _without_value(good: Draft, timestamp_ms: int) -> list[Draft]:
    """Return a record with a null value, and one with null key and value."""
    empty = replace(good, timestamp_ms=timestamp_ms, arrival_ms=timestamp_ms, value=None, payload=None)
    return [empty, replace(empty, key=None)]


def damage(drafts: Iterable[Draft], timestamp_ms: int) -> list[Draft]:
    """Return the broken records of a wave, made from its good ones, in the two minutes from a timestamp on."""
    drafts, broken = list(drafts), []
    for topic in _CORRUPTED_TOPICS:
        good, intact = next((draft, draft.value) for draft in drafts if draft.topic == topic and draft.value)
        broken += _corrupt(good, intact, timestamp_ms)
        # In a change topic a tombstone would delete a row, so the facts alone get one out of nothing.
        if topic in (PIZZA, PAYMENTS, TRADES):
            broken += _without_value(good, timestamp_ms + MINUTE)
    return broken
