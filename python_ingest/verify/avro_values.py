"""Decodes Avro bytes by fastavro and the registered schema, into the columns of docs/type-mapping.md.

It shares no decoding with the ingester. What fastavro refuses, or may read in another way than Avro's Java library, is
not compared. Times stay numbers.
"""

import io
import json
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from decimal import Context, Decimal
from itertools import count
from typing import Any

from fastavro import parse_schema, schemaless_reader, schemaless_writer
from pyiceberg.types import IcebergType

from python_ingest.avro.types import NAMED, RECORDS, simple_name
from python_ingest.declare.spark_types import children
from python_ingest.kafka.message import HEADER_BYTES

# A schema that writes out to more types is not read: their values may take no bytes.
MOST_TYPES = 500_000
NUMBERS = ({"int", "long"}, {"float", "double"})
MILLISECONDS = ("timestamp-millis", "local-timestamp-millis")
EXACT = Context(prec=80)
# For fastavro any byte but 0 is true, for Java 1 alone.
BOOLEAN = "java.boolean"
# How the types of a union are read that have no name; fastavro returns the others with theirs.
PYTHON_TYPES = {
    "int": int,
    "long": int,
    "float": float,
    "double": float,
    "string": str,
    "bytes": bytes,
    "array": list,
    "map": dict,
}
Convert = Callable[[Any], Any]


class Unreadable(Exception):
    """Bytes that are not of their schema; the message holds no byte of them."""


class NotCompared(Exception):
    """A schema or a value that this decoder cannot judge, with the reason."""


class Reader:
    """Reads the values of one registered schema.

    A record's fields belong in the columns `fields`, any other value in one of the type `plain`; None if there is no
    such column. `names` are as `renamed` gives them. A record is read as a dict by the names of its columns; a column
    that the schema lacks is omitted, and so is a field whose path is `omitted`.

    Raises:
        NotCompared: fastavro refuses the schema, a value of it may be larger than its bytes, or a type contains itself.
    """

    def __init__(
        self,
        text: str,
        references: Sequence[str],
        fields: IcebergType | None,
        plain: IcebergType | None,
        names: Mapping[str, Sequence[str]],
        omitted: Collection[str] = (),
    ) -> None:
        self._named: dict[str, Any] = {}
        self._names = names
        self._omitted = omitted
        self._schema: Any = None
        try:
            parse_schema({"type": "fixed", "name": BOOLEAN, "size": 1}, self._named)
            for document in [*references, text]:
                # A record of one field is encoded as that field, and fastavro keeps a record's parsed types.
                value = {"name": "value", "type": _type_for_fastavro(json.loads(document, object_hook=_for_fastavro))}
                self._schema = parse_schema({"type": "record", "name": "_value", "fields": [value]}, self._named)
            kind = self._schema["fields"][0]["type"]
            self._takes_no_bytes(kind, count(), ())
            branches = [branch for branch in (kind if isinstance(kind, list) else [kind]) if branch != "null"]
            self.is_record = len(branches) == 1 and self._definition(branches[0])["type"] in RECORDS
            self._convert = self._converter(kind, fields if self.is_record else plain, "")
        except NotCompared:
            raise
        except Exception as error:  # an invalid schema fails in any way
            raise NotCompared(f"fastavro refuses it ({type(error).__name__})") from None

    def read(self, part: bytes | None, is_refused: bool = False) -> Any:
        """Return the value in a key or value with its header; `is_refused` if Avro's Java library did not read it.

        Raises:
            Unreadable: the bytes are not of this schema.
            NotCompared: the value is one that Avro's Java library may read in another way, or refuse.
        """
        body = (part or b"")[HEADER_BYTES:]
        try:
            decoded: Any = schemaless_reader(io.BytesIO(body), self._schema, None, return_named_type=True)
        except Exception as error:  # damaged bytes make a reader fail in any way
            if isinstance(error, IndexError) and not is_refused:
                raise NotCompared("an index may have more than 32 bits") from None
            raise Unreadable(type(error).__name__) from None
        value = self._convert(decoded["value"])
        if is_refused and (self._omitted or not self._is_encoding(body, decoded)):
            raise NotCompared("Avro's Java library may refuse their encoding")
        return value

    def _is_encoding(self, body: bytes, decoded: Any) -> bool:
        """Return whether bytes begin as fastavro encodes their value; numbers and blocks have several encodings."""
        encoded = io.BytesIO()
        schemaless_writer(encoded, self._schema, decoded)
        return body.startswith(encoded.getvalue())

    def _takes_no_bytes(self, schema: Any, types: Iterator[int], within: tuple[str, ...]) -> bool:
        """Return whether a type's values take no bytes.

        Raises:
            NotCompared: an array may have any number of items in a few bytes, a type contains itself, or the schema is
                too large.
        """
        if next(types) > MOST_TYPES:
            raise NotCompared("it has more than 500,000 types")
        if isinstance(schema, list):
            for branch in schema:
                self._takes_no_bytes(branch, types, within)
            return False
        definition = self._definition(schema)
        match definition["type"]:
            case "record" | "error":
                if (name := definition["name"]) in within:
                    raise NotCompared("a type contains itself")
                return all(
                    [self._takes_no_bytes(field["type"], types, (*within, name)) for field in definition["fields"]]
                )
            case "array":
                if self._takes_no_bytes(definition["items"], types, within):
                    raise NotCompared("it has items without bytes")
            case "map":
                self._takes_no_bytes(definition["values"], types, within)
        return definition["type"] == "null" or definition.get("size") == 0

    def _definition(self, schema: Any) -> Any:
        return self._named.get(schema, {"type": schema}) if isinstance(schema, str) else schema

    def _converter(self, schema: Any, column: IcebergType | None, path: str) -> Convert:
        """Return what makes a column's values of decoded ones; `path` is that of the records around."""
        if isinstance(schema, list):
            return self._union(schema, column, path)
        definition = self._definition(schema)
        match definition["type"]:
            case "record" | "error":
                return self._record(definition, column, path)
            case "array":
                convert_item = self._converter(definition["items"], children(column).get("element"), path)
                return lambda items: [convert_item(item) for item in items]
            case "map":
                convert = self._converter(definition["values"], children(column).get("value"), path)
                return lambda values: {key: convert(value) for key, value in values.items()}
        return _leaf(definition)

    def _record(self, definition: Any, column: IcebergType | None, path: str) -> Convert:
        columns, fields = children(column), []
        for field in definition["fields"]:
            if path + field["name"] not in self._omitted:
                name = self._column_of(field["name"], columns)
                convert = self._converter(field["type"], columns.get(name), f"{path}{name}.")
                fields.append((field["name"], name, convert))
        return lambda record: {name: convert(record[field]) for field, name, convert in fields}

    def _union(self, union: list[Any], column: IcebergType | None, path: str) -> Convert:
        """Return the conversion to the one type of a union, or to a record with the member that was written."""
        branches = [branch for branch in union if branch != "null"]
        if {*map(simple_name, branches)} in NUMBERS:
            return _same
        if len(branches) == 1:
            convert_only = self._converter(branches[0], column, path)
            return lambda value: None if value is None else convert_only(_split(value)[1])
        members: dict[Any, list[tuple[str, Convert]]] = defaultdict(list)
        for branch in branches:
            definition, name = self._definition(branch), f"member_{simple_name(branch)}"
            written = definition["name"] if definition["type"] in NAMED else PYTHON_TYPES[definition["type"]]
            members[written].append((name, self._converter(branch, children(column).get(name), path)))

        def convert_member(value: Any) -> Any:
            if value is None:
                return None
            written, value = _split(value)
            if len(members[written]) > 1:
                raise NotCompared("a union has two types of number")
            ((name, convert),) = members[written]
            return {name: convert(value)}

        return convert_member

    def _column_of(self, field: str, columns: Mapping[str, IcebergType]) -> str:
        """Return the column of a field: by its name in any case, else by its nearest alias."""
        spellings = {column.lower(): column for column in columns}
        near, seen = [field], set[str]()
        while near:
            for name in near:
                if name.lower() in spellings:
                    return spellings[name.lower()]
            seen.update(near)
            near = [other for name in near for other in self._names.get(name, ()) if other not in seen]
        return field


def renamed(texts: Iterable[str]) -> dict[str, list[str]]:
    """Return the aliases of each field name in some schemas, in both directions."""
    others: dict[str, list[str]] = defaultdict(list)

    def add_aliases(schema: Any) -> None:  # whatever a registry holds under a schema's keys
        for below in schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else ():
            add_aliases(below)
        for field in schema.get("fields", ()) if isinstance(schema, dict) else ():
            for alias in field.get("aliases", ()):
                others[field["name"]].append(alias)
                others[alias].append(field["name"])

    for text in texts:
        with suppress(ValueError, TypeError, AttributeError, KeyError):  # an invalid schema has no aliases
            add_aliases(json.loads(text))
    return others


def _for_fastavro(schema: dict[str, Any]) -> Any:
    """Return an object of a schema without what fastavro converts with a loss, or refuses though Spark takes it."""
    if "name" not in schema and isinstance(schema.get("type"), dict):
        schema = schema | schema["type"]
    if "name" not in schema and schema.get("type") in ("boolean", BOOLEAN):
        return BOOLEAN
    types = {key: _type_for_fastavro(schema[key]) for key in ("type", "items", "values") if key in schema}
    renamed = {"logicalType": "logical"}
    return {renamed.get(key, key): value for key, value in (schema | types).items() if key != "default"}


def _type_for_fastavro(schema: Any) -> Any:
    if isinstance(schema, list):
        return [*map(_type_for_fastavro, schema)]
    return BOOLEAN if schema == "boolean" else schema


def _split(value: Any) -> tuple[Any, Any]:
    """Return the name of a value's type in a union, or its type in Python, and the value."""
    return value if isinstance(value, tuple) else (type(value), value)


def _same(value: Any) -> Any:
    return value


def _leaf(definition: Any) -> Convert:
    """Return the conversion of a type without others in it; an invalid logical type converts nothing."""
    kind, logical = definition["type"], definition.get("logical")
    if definition.get("name") == BOOLEAN:
        return b"\x01".__eq__
    if kind == "int":
        return _int
    if kind == "long" and logical in MILLISECONDS:
        return _microseconds
    precision, scale = definition.get("precision"), definition.get("scale", 0)
    if kind not in ("bytes", "fixed") or logical != "decimal" or type(precision) is not int or type(scale) is not int:
        return _same
    # Some precision may be more than a fixed can hold.
    is_too_long = kind == "fixed" and 10**precision > 2 ** (8 * definition["size"] - 1)
    if precision < 1 or not 0 <= scale <= precision or is_too_long:
        return _same

    def decimal(value: bytes) -> Decimal:
        unscaled = int.from_bytes(value, "big", signed=True)
        if not value or abs(unscaled) >= 10**precision:
            raise Unreadable("OverflowError")
        return Decimal(unscaled).scaleb(-scale, EXACT)

    return decimal


def _int(value: int) -> int:
    if not -(2**31) <= value < 2**31:
        raise NotCompared("an int has more than 32 bits")
    return value


def _microseconds(milliseconds: int) -> int:
    if abs(milliseconds) > 2**63 // 1000:
        raise Unreadable("OverflowError")
    return milliseconds * 1000
