"""How a registry's serializers frame keys and values: a zero byte, the schema's id in four, then the Avro bytes."""

from collections import Counter
from collections.abc import Iterable

Ids = Counter[int | None]

HEADER_BYTES = 5


def schema_id(part: bytes | None) -> int | None:
    """Return the schema id in the header of a key or value, None if it has none.

    An id is a Java int: one with its highest bit set is negative, and no registry gives it.
    """
    if part is None or len(part) < HEADER_BYTES or part[0] != 0 or part[1] >= 0x80:
        return None
    return int.from_bytes(part[1:HEADER_BYTES], "big")


def count_ids(records: Iterable[tuple[bytes | None, bytes | None]]) -> tuple[Ids, Ids]:
    """Return how often each id, or None, is in the headers of records' values, and of their keys."""
    values, keys = Ids(), Ids()
    for value, key in records:
        values[schema_id(value)] += 1
        keys[schema_id(key)] += 1
    return values, keys
