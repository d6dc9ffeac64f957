"""Avro schemas of records at random: every type at any depth, and names that are words, twins, long or not ASCII."""

import random
from typing import Any

from tests.support.topic_fixture import record

Schema = Any

LEAVES: list[Schema] = [
    *("boolean", "int", "long", "float", "double", "bytes", "string"),
    {"type": "int", "logicalType": "date"},
    {"type": "int", "logicalType": "time-millis"},
    {"type": "long", "logicalType": "time-micros"},
    {"type": "long", "logicalType": "timestamp-millis"},
    {"type": "long", "logicalType": "timestamp-micros"},
    {"type": "long", "logicalType": "timestamp-nanos"},
    {"type": "long", "logicalType": "local-timestamp-micros"},
    {"type": "string", "logicalType": "uuid"},
    {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2},
    {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 38},
]
# Words of SQL and of YAML, names of persons' data, of the models' columns and of SQL's relations, and other alphabets.
NAMES = [
    *(
        "order",
        "date",
        "user",
        "group",
        "select",
        "timestamp",
        "no",
        "y",
        "null",
        "on",
        "yes",
        "off",
        "size",
        "type",
        "value",
        "array",
    ),
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


def random_record(rng: random.Random, fields: int = 12, depth: int = 3) -> Schema:
    """Return a schema of a record with at most so many fields, some of them records of records."""
    return _Schemas(rng).record(fields, depth)


class _Schemas:
    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.named = 0

    def record(self, fields: int, depth: int) -> Schema:
        """Return a record of a new name."""
        names = self.rng.sample(NAMES, self.rng.randint(1, fields))
        schema = record(self._name(), **{name: self._type(depth) for name in names})
        for field in schema["fields"]:
            if self.rng.random() < 0.3:
                field["doc"] = self.rng.choice(DOCS)
        return schema

    def _name(self) -> str:
        self.named += 1
        return f"Type{self.named}"

    def _type(self, depth: int) -> Schema:
        if self.rng.random() < 0.4:
            return self.rng.choice([["null", self._one(depth)], [self._one(depth), "null"]])
        return self._one(depth)

    def _one(self, depth: int) -> Schema:
        if depth == 0 or self.rng.random() < 0.6:
            return self._leaf()
        match self.rng.choice(["record", "record", "array", "map", "union"]):
            case "record":
                return self.record(5, depth - 1)
            case "array":
                return {"type": "array", "items": self._type(depth - 1)}
            case "map":
                return {"type": "map", "values": self._type(depth - 1)}
        return {"type": "array", "items": ["null", "int", "string", self.record(3, depth - 1)]}

    def _leaf(self) -> Schema:
        if self.rng.random() < 0.2:
            return {"type": "enum", "name": self._name(), "symbols": ["NO", "on", "y", "A1", "SELECT"]}
        if self.rng.random() < 0.1:
            return {"type": "fixed", "name": self._name(), "size": 16, "logicalType": "uuid"}
        return self.rng.choice(LEAVES)
