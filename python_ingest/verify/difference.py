"""The path at which two values of one column differ."""

import math
from typing import Any

import pyarrow as pa


def difference(wanted: Any, stored: Any, arrow_type: pa.DataType) -> str | None:
    """Return the path inside a column at which two values differ, None if equal; the type is of the stored value."""
    if wanted is None or stored is None:
        return None if wanted is stored else ""
    parts: list[tuple[str, Any, Any, pa.DataType]] = []
    if pa.types.is_struct(arrow_type):
        types = {field.name: field.type for field in arrow_type}
        # A field that its file lacks is NULL.
        lacking = [name for name in wanted if name not in types and not holds_nothing(wanted[name])]
        parts = [
            (f".{name}", wanted.get(name), stored.get(name), types.get(name, pa.null())) for name in (*types, *lacking)
        ]
    elif pa.types.is_map(arrow_type):
        values = dict(stored)
        if len(stored) != len(wanted) or values.keys() != wanted.keys():
            return ""
        parts = [(".value", wanted[name], values[name], arrow_type.item_type) for name in values]
    elif pa.types.is_large_list(arrow_type):
        if len(stored) != len(wanted):
            return ""
        parts = [(".element", *pair, arrow_type.value_type) for pair in zip(wanted, stored, strict=True)]
    elif wanted != stored and not (pa.types.is_floating(arrow_type) and math.isnan(wanted) and math.isnan(stored)):
        return ""
    for step, wanted_part, stored_part, below in parts:
        path = difference(wanted_part, stored_part, below)
        if path is not None:
            return step + path
    return None


def holds_nothing(value: Any) -> bool:
    """Return whether a value needs no column: NULL, or a record of such values."""
    return value is None or (isinstance(value, dict) and all(map(holds_nothing, value.values())))
