"""The web shop's change log: rows as Debezium sends them, and what happens to a row in its life."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from random import Random

from python_dev.stack.sample_data.codec import encode
from python_dev.stack.sample_data.log import TABLES, Draft, Payload, partition_of, shop_topic
from python_dev.stack.sample_data.plan import DAY, HOUR, MINUTE, SECOND, Span


def change(
    table: str, row: Payload, timestamp_ms: int, *, deleted: bool = False, arrival_ms: int | None = None
) -> Draft:
    """Return an insert or update, or with `deleted` the row that announces a delete."""
    payload = {**row, "__deleted": "true" if deleted else "false"}
    key = row[TABLES[table]]
    return Draft(
        topic=shop_topic(table),
        partition=partition_of(key),
        timestamp_ms=timestamp_ms,
        arrival_ms=timestamp_ms if arrival_ms is None else arrival_ms,
        key=encode(f"{table}-key-v1", {TABLES[table]: key}),
        value=encode(f"{table}-v1", payload),
        payload=payload,
    )


def tombstone(table: str, row: Payload, timestamp_ms: int) -> Draft:
    """Return the record without a value that lets Kafka forget a key."""
    return replace(change(table, row, timestamp_ms), value=None, payload=None)


def delete(table: str, row: Payload, timestamp_ms: int) -> list[Draft]:
    """Return a delete: the row marked as deleted, then the tombstone of its key.

    Some keys send their last image, the others nothing but the key, as a table without full replica identity does.
    """
    key = row[TABLES[table]]
    image = row if partition_of(f"image of {key}") else {name: None for name in row} | {TABLES[table]: key}
    return [change(table, image, timestamp_ms, deleted=True), tombstone(table, row, timestamp_ms)]


def life(
    table: str,
    row: Payload,
    born_ms: int,
    update: Callable[[Payload], Payload],
    *,
    span: Span,
    rng: Random,
    updates: int,
    delete_share: float,
) -> list[Draft]:
    """Return what happens to one row: its insert, its updates, perhaps a delete, perhaps a return after that."""
    drafts = [change(table, row, born_ms)]
    moments = sorted(rng.randrange(span.start_ms, span.end_ms) for _ in range(updates))
    for moment in moments:
        if moment > born_ms:
            row = update(row)
            drafts.append(change(table, row, moment))
    if rng.random() < delete_share:
        gone_ms = drafts[-1].timestamp_ms + rng.randint(SECOND, 3 * DAY)
        back_ms = gone_ms + rng.randint(0, 8 * HOUR)
        returns = rng.random() < 0.5
        if gone_ms < span.end_ms:
            drafts += delete(table, row, gone_ms)
        if returns and back_ms < span.end_ms:
            drafts.append(change(table, update(row), back_ms))
    return drafts


def closing(table: str, rows: Iterable[Payload], end_ms: int) -> list[Draft]:
    """Return updates at and just after the end of the last week, so that the topic's watermark passes it."""
    return [change(table, row, end_ms + step * MINUTE) for step, row in enumerate(rows)]
