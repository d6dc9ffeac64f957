"""Rewrites an expanded schema so that no value costs more to decode than its bytes.

Avro's Java library skips an omitted field item by item, also where items take no bytes, and calls itself for every
array in an array. A schema of equal encoding bounds both; a value beyond the bounds is an error.
"""

from itertools import count, takewhile
from typing import Any

from python_ingest.avro.types import AvroSchema
from python_ingest.avro.walk import takes_no_bytes

MOST_EMPTY_ITEMS = 64
MOST_LEVELS = 32


def bounded(schema: AvroSchema) -> AvroSchema:
    """Return a schema of equal encoding; in omitted fields an array has up to MOST_EMPTY_ITEMS items without bytes.

    A type contains itself up to MOST_LEVELS deep.
    """
    numbers = count()
    copies: dict[tuple[str, int], str] = {}

    def only(union: list[Any]) -> Any:
        """Return a record, which unlike a union may be in a union. An empty union has no value."""
        return {"type": "record", "name": f"bounded.n{next(numbers)}", "fields": [{"name": "only", "type": union}]}

    def deeper(name: str, open_records: dict[str, Any], level: int) -> Any:
        """Return a record that comes again inside itself."""
        if level == MOST_LEVELS:
            return only([])
        suffix = f".n{next(numbers)}"
        copies[name, level] = f"{name}{suffix}"
        outer = dict(takewhile(lambda record: record[0] != name, open_records.items()))
        return rewritten(open_records[name], outer, True, level + 1, suffix)

    def rewritten(part: Any, open_records: dict[str, Any], omits: bool, level: int, suffix: str) -> Any:
        if isinstance(part, list):
            return [rewritten(branch, open_records, omits, level, suffix) for branch in part]
        if isinstance(part, str):
            again = part in open_records and (part, level) not in copies
            return deeper(part, open_records, level) if again else copies.get((part, level), part)
        if omits and part["type"] == "array" and takes_no_bytes(part["items"]):
            # The index of a branch is encoded as a number of items is, and the end of an array as the first index.
            if ("array", 0) in copies:
                return copies["array", 0]
            items = only(["null", *(only(["null"]) for _ in range(MOST_EMPTY_ITEMS))])
            copies["array", 0] = items["name"]
            return items
        if "name" in part:
            open_records = {**open_records, part["name"]: part}
            part = {**part, "name": f"{part['name']}{suffix}"}
        for below in part.keys() & {"items", "values"}:
            part = {**part, below: rewritten(part[below], open_records, omits, level, suffix)}
        if "fields" not in part:
            return part
        types = [rewritten(f["type"], open_records, omits or "omitted" in f, level, suffix) for f in part["fields"]]
        return {**part, "fields": [{**f, "type": kind} for f, kind in zip(part["fields"], types, strict=True)]}

    form: AvroSchema = rewritten(schema, {}, False, 0, "")
    return form
