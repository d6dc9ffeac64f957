"""The headers of a record as the Kafka client gives them, also of one that it could not read."""

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
        if not all(_ITEM(headers, place) for place in range(len(headers))):
            return None
    except (UnicodeDecodeError, SystemError):
        return None
    return [{"key": key, "value": value} for key, value in headers]
