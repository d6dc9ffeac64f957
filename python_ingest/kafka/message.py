"""What the Kafka client gives of a record: where it stands, and its headers, also those that it could not read."""

import ctypes

from confluent_kafka import Message

# The address of an item of a list, None if there is none.
_ITEM = ctypes.pythonapi.PyList_GetItem
_ITEM.argtypes, _ITEM.restype = (ctypes.py_object, ctypes.c_ssize_t), ctypes.c_void_p


def headers_of(record: Message) -> list[dict[str, str | bytes | None]] | None:
    """Return a record's headers; None if a key of theirs is not UTF-8.

    The client then leaves a place of its list empty, with or without an error: whoever takes what is there crashes.
    """
    try:
        headers = record.headers() or []
        # The client's types also name a mapping, which is what a producer may give.
        if isinstance(headers, dict) or not all(_ITEM(headers, place) for place in range(len(headers))):
            return None
    except (UnicodeDecodeError, SystemError):
        return None
    return [{"key": key, "value": value} for key, value in headers]


def place_of(record: Message) -> tuple[int, int]:
    """Return the partition and the offset of a record, or of the end of a partition."""
    partition, offset = record.partition(), record.offset()
    if partition is None or offset is None:
        raise ValueError("what a consumer gives has partition and offset")
    return partition, offset
