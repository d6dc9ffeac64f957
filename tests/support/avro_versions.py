"""Versions of a record at random, merged into columns, and values with what must be read of them."""

import datetime as dt
import json
import random
from decimal import Decimal
from typing import Any

from pyiceberg.types import StructType

from python_ingest.avro.expanded_schema import expand_schema
from python_ingest.avro.versions import Versions, with_column_names
from python_ingest.bronze.schema_state import SchemaState
from tests.support.topic_fixture import record


def merged(*versions: Any) -> tuple[StructType, list[Any]]:
    """Return the columns of versions merged one after the other, and their expanded schemas."""
    known, state = Versions(), SchemaState()
    for number, version in enumerate(versions):
        writer = with_column_names(known, expand_schema(json.dumps(version)))
        known, state = known.with_version(writer), state.with_writer("value", number, writer)
    return state.columns, list(state.writers["value"].values())


def aliased(schema: Any, **aliases: list[str]) -> Any:
    """Return a record schema with aliases of some of its fields."""
    fields = [
        field | ({"aliases": aliases[field["name"]]} if field["name"] in aliases else {}) for field in schema["fields"]
    ]
    return schema | {"fields": fields}


def avro_long(number: int) -> bytes:
    """Return an Avro long, also one of more than 64 bits."""
    encoded, groups = number * 2 if number >= 0 else -number * 2 - 1, bytearray()
    while encoded > 0x7F:
        groups.append(encoded & 0x7F | 0x80)
        encoded >>= 7
    return bytes([*groups, encoded])


VARIANTS: dict[str, list[Any]] = {
    "number": ["int", "long", ["null", "int"], ["int", "long"]],
    "ratio": ["float", ["double", "null"]],
    "text": ["string", *({"type": "enum", "name": "e", "symbols": symbols} for symbols in (["A", "B"], ["B", "C"]))],
    "blob": ["bytes", *({"type": "fixed", "name": "f", "size": size} for size in (3, 5))],
    "at": [{"type": "long", "logicalType": f"timestamp-{unit}"} for unit in ("millis", "micros")],
    "price": [
        {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2},
        {"type": "fixed", "name": "d", "size": 8, "logicalType": "decimal", "precision": 18, "scale": 2},
    ],
    "union": [["int", "string"], ["string", "null", "long"], ["null", "boolean", "int"]],
    "late": ["null", ["null", "string"]],
}


def a_version(rng: random.Random, depth: int = 2) -> Any:
    """Return a record schema whose fields are some of VARIANTS, in any order and one name with an alias."""
    fields = {name: rng.choice(VARIANTS[name]) for name in rng.sample(sorted(VARIANTS), 3)}
    if depth:
        below = a_version(rng, depth - 1)
        fields |= rng.choice(
            [
                {"place": below},
                {"places": {"type": "array", "items": below}},
                {"by_name": {"type": "map", "values": ["null", below]}},
                {"either": ["int", below]},
            ]
        )
    renamed = rng.choice(["before", "after"])
    version = record("r", **fields, **{renamed: rng.choice(["int", "long"])}) | {"namespace": f"depth{depth}"}
    return aliased(version, after=["before"])


MOMENT = dt.datetime(2026, 11, 16, 12, tzinfo=dt.UTC)


def a_value(rng: random.Random, schema: Any) -> tuple[Any, Any]:
    """Return a value to be written with a schema, and what must be read of it, without NULLs."""
    if isinstance(schema, list):
        branch = rng.choice(schema)
        written, read = a_value(rng, branch)
        types = {json.dumps(member) for member in schema} - {'"null"'}
        if branch != "null" and len(types) > 1 and types != {'"int"', '"long"'}:
            name = branch if isinstance(branch, str) else branch.get("name", branch["type"])
            read = {f"member_{name}": read}
        return written, read
    match schema if isinstance(schema, str) else schema["type"]:
        case "record":
            pairs = {field["name"]: a_value(rng, field["type"]) for field in schema["fields"]}
            return {name: written for name, (written, _) in pairs.items()}, without_nulls(
                {name: read for name, (_, read) in pairs.items()}
            )
        case "array":
            elements = [a_value(rng, schema["items"]) for _ in range(2)]
            return [written for written, _ in elements], [read for _, read in elements]
        case "map":
            written, read = a_value(rng, schema["values"])
            return {"k": written}, without_nulls({"k": read})
    plain = a_plain_value(rng, schema)
    return plain, plain


def a_plain_value(rng: random.Random, schema: Any) -> Any:
    if isinstance(schema, str):
        return {
            "null": None,
            "boolean": rng.random() < 0.5,
            "int": rng.randrange(-(2**31), 2**31),
            "long": rng.randrange(-(2**63), 2**63),
            "float": rng.randrange(1000) / 2,
            "double": rng.random(),
            "bytes": rng.randbytes(4),
            "string": f"text {rng.random()}",
        }[schema]
    match schema.get("logicalType", schema["type"]):
        case "enum":
            return rng.choice(schema["symbols"])
        case "fixed":
            return rng.randbytes(schema["size"])
        case "decimal":
            return Decimal(rng.randrange(-(10**10) + 1, 10**10)).scaleb(-2)
    step = dt.timedelta(milliseconds=1) if schema["logicalType"].endswith("millis") else dt.timedelta(microseconds=1)
    return MOMENT + rng.randrange(10**9) * step


def without_nulls(value: Any) -> Any:
    """Return a value without the fields that are NULL; PyIceberg reads a NULL array or map of records as empty."""
    if isinstance(value, list) and value and isinstance(value[0], tuple):
        value = dict(value)
    if isinstance(value, list):
        return [without_nulls(part) for part in value]
    if not isinstance(value, dict):
        return value
    parts_by_name = {name.replace("after", "before"): without_nulls(part) for name, part in value.items()}
    return {name: part for name, part in parts_by_name.items() if part not in (None, [])}
