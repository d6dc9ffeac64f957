"""Position, headers and schema ids of a record, also headers that the Kafka client cannot read."""

import ctypes

from confluent_kafka import Message

# How a registry's serializers frame keys and values: a zero byte, the schema's id in four, then the Avro bytes.
HEADER_BYTES = 5
# Headers of a record whose serializer writes the id of a schema there, and no frame around the Avro bytes.
SCHEMA_HEADERS = {
    side: (f"__{side}_schema_id", f"apicurio.{side}.globalId", f"apicurio.{side}.contentId")
    for side in ("key", "value")
}
# Returns the address of an item of a list, None for an empty slot.
_ITEM = ctypes.pythonapi.PyList_GetItem
_ITEM.argtypes, _ITEM.restype = (ctypes.py_object, ctypes.c_ssize_t), ctypes.c_void_p


def headers_of(record: Message) -> list[dict[str, str | bytes | None]] | None:
    """Return a record's headers; None if a key of theirs is not UTF-8.

    The client then leaves a slot of its list empty, with or without an error: reading the slot crashes the process.
    """
    try:
        headers = record.headers() or []
        # The client's types also name a mapping, which is what a producer may give.
        if isinstance(headers, dict) or not all(_ITEM(headers, index) for index in range(len(headers))):
            return None
    except (UnicodeDecodeError, SystemError):
        return None
    return [{"key": key, "value": value} for key, value in headers]


def record_position(record: Message) -> tuple[int, int]:
    """Return partition and offset of a record, or of the end of a partition."""
    partition, offset = record.partition(), record.offset()
    if partition is None or offset is None:
        raise ValueError("what a consumer gives has partition and offset")
    return partition, offset


def schema_id(part: bytes | None) -> int | None:
    """Return the schema id in the header of a key or value, None if it has none.

    An id is a Java int: one with its highest bit set is negative, and no registry gives it.
    """
    if part is None or len(part) < HEADER_BYTES or part[0] != 0 or part[1] >= 0x80:
        return None
    return int.from_bytes(part[1:HEADER_BYTES], "big")
