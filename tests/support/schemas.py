"""Avro schemas of records at random: every type at any depth, and names that are words, twins, long or not ASCII."""

import random
from typing import Any

from tests.support.topic_fixture import record

Schema = Any

LONGS = ("time-micros", "timestamp-millis", "timestamp-micros", "timestamp-nanos", "local-timestamp-micros")
LEAVES: list[Schema] = [
    *("boolean", "int", "long", "float", "double", "bytes", "string"),
    *({"type": "int", "logicalType": name} for name in ("date", "time-millis")),
    *({"type": "long", "logicalType": name} for name in LONGS),
    {"type": "string", "logicalType": "uuid"},
    {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2},
    {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 38},
]
# Words of SQL and of YAML, names of persons' data, of the models' columns and of SQL's relations, and other alphabets.
NAMES = [
    *("order", "date", "user", "group", "select", "timestamp", "size", "type", "value", "array"),
    *("no", "y", "null", "on", "yes", "off"),
    *("email", "customerId", "birth_year", "cardNumber", "phone", "ssn", "name", "gender", "zip", "userId", "iban"),
    *("kafka_offset", "ingest_batch", "key_version", "rank_in_key", "is_event_time_valid", "recorded_at", "landed"),
    *("recorded_week", "email_pseudonym", "birth_year_year", "bounds", "final", "affected", "ranked", "customer_id"),
    *("_id", "_1", "größe", "Имя", "x9", "HTTPStatus", "orderID", "order_id", "amount", "Amount", "status"),
    *("a" * 120, "very_long_name_of_a_field_" * 10, "b" * 240, "landed_value", "x", "X_"),
]
DOCS = [
    "Money, {{ rendered }} by {% dbt %} and {# not #} read.",
    'It\'s "quoted": yes\n  # no',
    "Größe: m²",
    "x " * 150,
]


def random_record(rng: random.Random, fields: int = 12, depth: int = 3, name: str = "Type") -> Schema:
    """Return a schema of a record with at most so many fields, some of them records of records."""
    names = rng.sample(NAMES, rng.randint(1, fields))
    schema = record(name, **{field: _optional(rng, depth, f"{name}_{names.index(field)}") for field in names})
    for field in schema["fields"]:
        if rng.random() < 0.3:
            field["doc"] = rng.choice(DOCS)
    return schema


def _optional(rng: random.Random, depth: int, name: str) -> Schema:
    """Return a type, often with NULL; if it needs a name, that one."""
    branch = _branch(rng, depth, name)
    return rng.choice([branch, branch, branch, ["null", branch], [branch, "null"]])


def _branch(rng: random.Random, depth: int, name: str) -> Schema:
    if depth == 0 or rng.random() < 0.6:
        enum = {"type": "enum", "name": name, "symbols": ["NO", "on", "y", "A1", "SELECT"]}
        return rng.choice([*LEAVES, *[enum] * 4, {"type": "fixed", "name": name, "size": 16, "logicalType": "uuid"}])
    match rng.choice(["record", "record", "array", "map", "union"]):
        case "record":
            return random_record(rng, 5, depth - 1, name)
        case "array":
            return {"type": "array", "items": _optional(rng, depth - 1, name)}
        case "map":
            return {"type": "map", "values": _optional(rng, depth - 1, name)}
    return {"type": "array", "items": ["null", "int", "string", random_record(rng, 3, depth - 1, name)]}
