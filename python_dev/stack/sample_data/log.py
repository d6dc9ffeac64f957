"""The records of the sample data, before a registry has numbered their schemas."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any
from zlib import crc32

PARTITIONS = 3
TABLES = {
    "products": "productid",
    "customers": "customerid",
    "addresses": "addressid",
    "orders": "orderid",
    "order_items": "orderitemid",
}
"""The web shop's tables and their primary keys."""

PIZZA, PAYMENTS, TRADES = "pizza-orders", "payments", "stock_trades"


def shop_topic(table: str) -> str:
    """Return the change topic of a web shop table."""
    return f"shiftleft.public.{table}"


TOPICS = (PIZZA, PAYMENTS, *(shop_topic(table) for table in TABLES), TRADES)

NOT_REGISTRY_AVRO = "not_registry_avro"
UNKNOWN_SCHEMA_ID = "unknown_schema_id"
DECODE_FAILED = "decode_failed"

UNKNOWN_ID = 2_000_000_000
"""A schema id that no registry here has handed out."""
UNKNOWN_SCHEMA = "unknown"

Headers = tuple[tuple[str, bytes | None], ...]
# The fields by name; the Avro schema of the record has their names and types.
Payload = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Wire:
    """Bytes of a key or value: plain ones, or an Avro body that still needs its registry header."""

    body: bytes
    schema: str | None = None

    def to_bytes(self, ids: Mapping[str, int]) -> bytes:
        """Return what goes to Kafka; `ids` holds the registry's id of each schema name."""
        if self.schema is None:
            return self.body
        number = UNKNOWN_ID if self.schema == UNKNOWN_SCHEMA else ids[self.schema]
        return b"\x00" + number.to_bytes(4, "big") + self.body


@dataclass(frozen=True, slots=True)
class Draft:
    """A record without its offset.

    Times are epoch milliseconds. `arrival_ms` is when the broker gets it: it orders the log, and differs from the
    Kafka timestamp for records that arrive out of order. `payload` is what the value decodes to (timestamps in
    milliseconds, dates in days), None for tombstones and for values that cannot be decoded; the latter have `error`.
    """

    topic: str
    partition: int
    timestamp_ms: int
    arrival_ms: int
    key: Wire | None
    value: Wire | None
    payload: Payload | None = None
    error: str | None = None
    headers: Headers = ()

    @property
    def content(self) -> Payload:
        """The payload of a record that is known to have one."""
        if self.payload is None:
            raise ValueError(f"A record of {self.topic} has no payload")
        return self.payload


@dataclass(frozen=True, slots=True)
class Record(Draft):
    """A record with its offset: what the topic holds."""

    offset: int = -1


Log = list[Record]
Ends = Mapping[tuple[str, int], int]

_DRAFT_FIELDS = [field.name for field in fields(Draft)]


def partition_of(key: object) -> int:
    """Return the partition of a business key: the same one for ever, on every machine."""
    return crc32(str(key).encode()) % PARTITIONS


def ends(log: Iterable[Record]) -> Counter[tuple[str, int]]:
    """Return the end offset of each (topic, partition) after a log that starts at offset 0."""
    return Counter((record.topic, record.partition) for record in log)


def copy(original: Draft, timestamp_ms: int, partition: int | None = None) -> Draft:
    """Return a second record with the same bytes and another Kafka timestamp, if need be in another partition."""
    return replace(
        original,
        timestamp_ms=timestamp_ms,
        arrival_ms=timestamp_ms,
        partition=original.partition if partition is None else partition,
    )


def number(drafts: Iterable[Draft], start: Ends) -> Log:
    """Return the drafts in order of arrival with their offsets, which follow `start` per partition."""
    upcoming = Counter(start)
    log = []
    for draft in sorted(drafts, key=lambda draft: draft.arrival_ms):
        where = (draft.topic, draft.partition)
        values = {name: getattr(draft, name) for name in _DRAFT_FIELDS}
        log.append(Record(**values, offset=upcoming[where]))
        upcoming[where] += 1
    return log
