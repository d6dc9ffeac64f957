"""Every evolution that a topic's schema may go through, and records that need each: generated from the sample schemas.

A topic's versions build on one another, as a producer's do. Records are copies of one of the sample data, each with a
separate key, so that each can be followed.
"""

import json
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass
from decimal import Decimal
from io import BytesIO
from typing import Any

import fastavro

from python_dev.stack.sample_data.codec import schema_text
from python_dev.stack.sample_data.expected import rules, sales
from python_dev.stack.sample_data.log import PAYMENTS, PIZZA, TABLES, TRADES, Log, Record, shop_topic
from tests.support.bronze import VALUES

Schema = Any
Fields = list[dict[str, Any]]
Leaf = Callable[[Schema, Any], Any]
Path = tuple[str | int, ...]

KEYS = {PAYMENTS: "order_id", PIZZA: "store_order_id"} | {shop_topic(table): key for table, key in TABLES.items()}
"""The field that identifies a row; a trade has none."""
FIRST = 1_000_000_000
"""The keys of the records are greater than those of the sample data."""
# More than an int holds, and fewer digits than a card number has: what looks like one is withheld from files.
BEYOND_INT = 2**33
PRICE = Decimal("12345678901.23")
ADDED = {"added_middle": "m", "added_last": "z", "added_float": 0.1, "added_enum": "B"}


@dataclass(frozen=True)
class Version:
    """One version of a topic's schemas; `key` is None where keys are not registry Avro."""

    name: str
    value: Schema
    key: Schema | None


@dataclass(frozen=True)
class Case:
    """A record that needs a version. `what` is how it differs from its original; `number` counts a topic's cases."""

    topic: str
    version: Version
    what: str
    key: Any
    value: dict[str, Any]
    number: int


def _changed(schema: Schema, change: Callable[[Schema], Schema]) -> Schema:
    """Return a schema with each of its types changed, unions not, the inner ones first."""
    match schema:
        case list():
            return [_changed(branch, change) for branch in schema]
        case {"type": "record"}:
            fields = [field | {"type": _changed(field["type"], change)} for field in schema["fields"]]
            schema = schema | {"fields": fields}
        case {"type": "array"}:
            schema = schema | {"items": _changed(schema["items"], change)}
    return change(schema)


def _with_fields(choose: Callable[[Fields], Fields]) -> Callable[[Schema], Schema]:
    """Return a change of the fields of records."""
    return lambda schema: (schema | {"fields": choose(schema["fields"])}) if "fields" in schema else schema


def _nullable(schema: Schema) -> Schema:
    return schema if isinstance(schema, list) else ["null", schema]


def _optional_field(name: str, schema: Schema) -> dict[str, Any]:
    return {"name": name, "type": _nullable(schema), "default": None}


def _with_more(fields: Fields) -> Fields:
    middle = len(fields) // 2
    first, last = _optional_field("added_middle", "string"), _optional_field("added_last", "string")
    return [*fields[:middle], first, *fields[middle:], last]


def _widened(schema: Schema) -> Schema:
    match schema:
        case "int" | "float":
            return {"int": "long", "float": "double"}[schema]
        case {"logicalType": "decimal"}:
            return schema | {"precision": schema["precision"] + 10}
        case {"type": "enum"}:
            return schema | {"symbols": [*schema["symbols"], "C"]}
    return schema


def _optional(schema: Schema) -> Schema:
    match schema:
        case {"type": "record"}:
            return schema | {"fields": [_optional_field(field["name"], field["type"]) for field in schema["fields"]]}
        case {"type": "array"}:
            return schema | {"items": _nullable(schema["items"])}
    return schema


def versions(topic: str, table: str) -> list[Version]:
    """Return the versions after the newest of the sample data, each with what the ones before it have."""
    name = VALUES[table]
    newest = json.loads(schema_text(name))
    key = json.loads(schema_text(name.replace("-v", "-key-v"))) if topic.startswith("shiftleft") else None
    enum = {"type": "enum", "name": "Added", "symbols": ["A", "B"]}
    added = _changed(newest, _with_fields(_with_more))
    added["fields"] += [_optional_field("added_float", "float"), _optional_field("added_enum", enum)]
    widened = _changed(added, _widened)
    wide_key = key and _changed(key, _widened)
    optional = _changed(widened, _optional)
    half = _changed(optional, _with_fields(lambda fields: fields[1::2]))
    none = _changed(optional, _with_fields(lambda fields: [field for field in fields if field["name"] == "added_last"]))
    return [
        Version("fields added", added, key),
        Version("types widened", widened, wide_key),
        Version("required is optional", optional, wide_key),
        Version("half of the fields dropped", half, wide_key),
        Version("all old fields dropped", none, wide_key),
    ]


def _shaped(schema: Schema, value: Any, leaf: Leaf) -> Any:
    """Return a value in the shape of a schema: without the fields that it does not have, with those it has more."""
    match schema:
        case list():
            return None if value is None else _shaped(next(one for one in schema if one != "null"), value, leaf)
        case {"type": "record"}:
            types = {field["name"]: field["type"] for field in schema["fields"]}
            return {name: _shaped(kind, value.get(name, ADDED.get(name)), leaf) for name, kind in types.items()}
        case {"type": "array"}:
            return [_shaped(schema["items"], element, leaf) for element in value]
    return leaf(schema, value)


def _enlarged(schema: Schema, value: Any) -> Any:
    match schema:
        case "long":
            return value + BEYOND_INT
        case {"logicalType": "decimal"}:
            return PRICE
        case {"type": "enum"}:
            return "C"
    return value


def _paths(schema: Schema, path: Path = ()) -> Iterator[Path]:
    """Yield where a value of an all optional schema may be NULL: fields, fields of records, elements, their fields."""
    if isinstance(schema, list):
        if path:
            yield path
        schema = schema[-1]
    if isinstance(schema, dict) and schema["type"] == "record":
        for field in schema["fields"]:
            yield from _paths(field["type"], (*path, field["name"]))
    elif isinstance(schema, dict) and schema["type"] == "array":
        yield from _paths(schema["items"], (*path, 0))


def _with_null(value: Any, path: Path) -> Any:
    changed = inner = deepcopy(value)
    for step in path[:-1]:
        inner = inner[step]
    inner[path[-1]] = None
    return changed


def originals(log: Log, week: str) -> dict[str, Record]:
    """Return a record of each topic; those of the shop belong to one sale of the week."""
    sale = next(
        sale for sale in sales.product_sales(log) if sale.week == week and sale.shipping_city and not sale.is_backdated
    )
    wanted = {"orders": sale.order_id, "order_items": sale.order_item_id, "customers": sale.customer_id}
    rows = {
        topic: next(record for record in log if record.topic == topic and record.payload and _is_in(record, week))
        for topic in (PAYMENTS, PIZZA, TRADES)
    }
    of_sale = {table: rules.surviving_rows(log, table)[number] for table, number in wanted.items()}
    item, customer = of_sale["order_items"].payload, of_sale["customers"].payload
    of_sale["products"] = rules.surviving_rows(log, "products")[item["productid"]]
    of_sale["addresses"] = rules.surviving_rows(log, "addresses")[customer["shipping_address_id"]]
    return rows | {shop_topic(table): row for table, row in of_sale.items()}


def _is_in(record: Record, week: str) -> bool:
    event_ms = record.payload.get("ts", record.timestamp_ms)
    return rules.event_week(event_ms, record) == week


def cases(topic: str, table: str, original: Record) -> list[Case]:
    """Return the records of a topic, in the order of its versions."""
    added, widened, optional, *dropped = versions(topic, table)

    def case(number: int, version: Version, what: str, shape: Leaf = lambda _, value: value, null: Path = ()) -> Case:
        payload = dict(original.payload)
        key = KEYS.get(topic)
        if key and isinstance(payload[key], str):
            payload[key] += f"-{number}"
        elif key and version is not widened:
            # That of the large record is separate already, and is what the other topics' large records refer to.
            payload[key] += FIRST + number
        value = _shaped(version.value, payload, shape)
        row_key = _shaped(version.key, payload, shape) if version.key else None
        return Case(topic, version, what, row_key, _with_null(value, null) if null else value, number)

    paths = list(_paths(optional.value))
    return [
        case(0, added, "all new fields"),
        case(1, widened, "values too large for the old types", shape=_enlarged),
        *(
            case(number, optional, f"{'.'.join(map(str, path))} is NULL", null=path)
            for number, path in enumerate(paths, 2)
        ),
        *(case(number, version, version.name) for number, version in enumerate(dropped, 2 + len(paths))),
    ]


def encode(schema: Any, schema_id: int, value: Any) -> bytes:
    """Return a value as registry Avro."""
    body = BytesIO()
    # A copy: fastavro adds to what it parses.
    fastavro.schemaless_writer(body, fastavro.parse_schema(json.loads(json.dumps(schema))), value)
    return b"\x00" + schema_id.to_bytes(4, "big") + body.getvalue()
