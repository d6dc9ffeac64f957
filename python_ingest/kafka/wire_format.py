"""How a registry's serializers frame keys and values: a zero byte, the schema's id in four, then the Avro bytes."""

HEADER_BYTES = 5


def schema_id(part: bytes | None) -> int | None:
    """Return the schema id in the header of a key or value, None if it has none.

    An id is a Java int: one with its highest bit set is negative, and no registry gives it.
    """
    if part is None or len(part) < HEADER_BYTES or part[0] != 0 or part[1] >= 0x80:
        return None
    return int.from_bytes(part[1:HEADER_BYTES], "big")
