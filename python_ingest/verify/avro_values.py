"""Decodes Avro bytes into columns by fastavro and the registered schema, independently of the ingester.

It follows docs/type-mapping.md. fastavro gets a schema of equal encoding in which every type is expanded under a
generated name: names are not encoded, and fastavro refuses some that Avro's Java library accepts. Times stay numbers.
"""

import io
import json
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from decimal import Context, Decimal
from itertools import count
from typing import Any

import fastavro
from pyiceberg.types import IcebergType, ListType, MapType, StructType

from python_ingest.avro.types import NAMED, RECORDS, AvroField, AvroSchema, AvroType, qualified_name, simple_name
from python_ingest.kafka.message import HEADER_BYTES
from python_ingest.verify.java_decoder import JavaDecoder

Convert = Callable[[Any], Any]
_Read = tuple[AvroSchema, Convert]
# A type is written out wherever it is used: a schema with more than this is not read.
MOST_TYPES = 500_000
# An omitted field is a dead letter beyond this, by docs/type-mapping.md.
MOST_EMPTY_ITEMS = 64
MOST_LEVELS = 32
NUMBERS = ({"int", "long"}, {"float", "double"})
MILLISECONDS = ("timestamp-millis", "local-timestamp-millis")
EXACT = Context(prec=80)


class Unreadable(Exception):
    """Bytes or a schema that cannot be read; the message holds no byte of them."""


class Reader:
    """Reads the values of one registered schema.

    A record's fields belong in the columns `fields`, any other value in one of the type `plain`; None if there is no
    such column. `names` are as `renamed` gives them. A record is read as a dict by the names of its columns; a column
    that the schema lacks is omitted, and so is a field whose path is `omitted`.

    Raises:
        Unreadable: the schema is not Avro.
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
        self._named: dict[str, tuple[AvroType, str]] = {}
        self._names = names
        self._omitted = omitted
        self._numbers = count()
        # The records that the current path is in, and how often it came into one again.
        self._open: tuple[int, ...] = ()
        self._level = 0
        self._copies: dict[tuple[int, ...], str] = {}
        self._path = ""
        self._parsed_types: dict[str, Any] = {}
        try:
            for document in map(json.loads, [*references, text]):
                self._define(document, "")
            self.is_record = self._is_record(document, "")
            schema: Any  # to fastavro's types an object has any keys
            schema, self._convert = self._read_as(document, "", fields if self.is_record else plain)
            self._schema = fastavro.parse_schema(schema, self._parsed_types)
        except Exception as error:  # an invalid schema fails in any way
            raise Unreadable(f"the schema cannot be read ({type(error).__name__})") from None

    def read(self, part: bytes, as_java: bool = False) -> Any:
        """Return the value in a key or value with its header.

        With `as_java` numbers in an encoding that Avro's Java library refuses are errors, which takes more time.

        Raises:
            Unreadable: the bytes are not of this schema.
        """
        body = part[HEADER_BYTES:]
        if not as_java:
            with suppress(Exception):  # damaged bytes make a reader fail in any way
                return self._convert(fastavro.schemaless_reader(io.BytesIO(body), self._schema, None))
        try:
            decoder = JavaDecoder(io.BytesIO(body))  # type: ignore[no-untyped-call]
            return self._convert(decoder.value(self._schema, self._parsed_types))
        except Exception as error:  # so does this one
            raise Unreadable(type(error).__name__) from None

    def _define(self, schema: AvroSchema | None, namespace: str) -> None:
        if isinstance(schema, dict):
            if schema.get("type") in NAMED:
                full = qualified_name(schema["name"], schema.get("namespace", namespace))
                namespace = full.rpartition(".")[0]
                self._named[full] = (schema, namespace)
            for field in schema.get("fields", ()):
                self._define(field["type"], namespace)
            for below in (schema.get("items"), schema.get("values"), schema.get("type")):
                self._define(below, namespace)
        for branch in schema if isinstance(schema, list) else ():
            self._define(branch, namespace)

    def _is_record(self, schema: AvroSchema, namespace: str) -> bool:
        if isinstance(schema, list):
            some = [branch for branch in schema if branch != "null"]
            return len(some) == 1 and self._is_record(some[0], namespace)
        if isinstance(schema, dict):
            return schema["type"] in RECORDS or self._is_record(schema["type"], namespace)
        named = self._lookup(schema, namespace)
        return named is not None and named[0]["type"] in RECORDS

    def _lookup(self, name: str, namespace: str) -> tuple[AvroType, str] | None:
        return self._named.get(qualified_name(name, namespace)) or self._named.get(name)

    def _read_as(self, schema: AvroSchema, namespace: str, column: IcebergType | None) -> _Read:
        """Return the schema for fastavro, and what makes of its values those of the column."""
        if next(self._numbers) > MOST_TYPES:
            raise ValueError
        if isinstance(schema, list):
            return self._union(schema, namespace, column)
        if isinstance(schema, dict) and schema["type"] not in NAMED:
            return self._unnamed(schema, namespace, column)
        if isinstance(schema, dict):
            schema, namespace = self._named[qualified_name(schema["name"], schema.get("namespace", namespace))]
        elif (named := self._lookup(schema, namespace)) is not None:
            schema, namespace = named
        else:
            # For fastavro any byte but 0 is true, for Java 1 alone.
            return (self._fixed(1), b"\x01".__eq__) if schema == "boolean" else READ_AS.get(schema, (schema, _same))
        if schema["type"] in RECORDS:
            return self._record(schema, namespace, column)
        if schema["type"] == "enum":  # encoded as an int
            return "int", dict(enumerate(schema["symbols"])).__getitem__
        return self._fixed(schema["size"]), _logical(schema)

    def _unnamed(self, schema: AvroType, namespace: str, column: IcebergType | None) -> _Read:
        if schema["type"] == "array":
            element = column.element_type if isinstance(column, ListType) else None
            items, convert = self._read_as(schema["items"], namespace, element)
            if column is None and _takes_no_bytes(items):
                # The index of a branch is encoded as a number of items, and the end of an array as the first index.
                some = [self._record_of([{"name": "end", "type": ["null"]}]) for _ in range(MOST_EMPTY_ITEMS)]
                return self._record_of([{"name": "items", "type": ["null", *some]}]), _same
            return {"type": "array", "items": items}, lambda decoded: [convert(item) for item in decoded]
        if schema["type"] == "map":
            value = column.value_type if isinstance(column, MapType) else None
            values, convert = self._read_as(schema["values"], namespace, value)
            return {"type": "map", "values": values}, lambda decoded: {
                name: convert(value) for name, value in decoded.items()
            }
        plain, convert = self._read_as(schema["type"], namespace, column)
        base = plain if isinstance(plain, dict) else {"type": plain}
        return plain, _logical(schema | base) if convert is _same else convert

    def _union(self, branches: list[AvroSchema], namespace: str, column: IcebergType | None) -> _Read:
        some = [branch for branch in branches if branch != "null"]
        if len(some) < 2 or {simple_name(branch) for branch in some} in NUMBERS:
            read = [self._read_as(branch, namespace, column) for branch in branches]
            # fastavro does not return which of two numeric branches was written.
            converters = [convert for branch, (_, convert) in zip(branches, read, strict=True) if branch != "null"]
            convert = converters[0] if len(converters) == 1 else _same
            return [plain for plain, _ in read], lambda value: None if value is None else convert(value)
        union: list[AvroSchema] = []
        members: dict[str, tuple[str, Convert]] = {}
        for branch in branches:
            if branch == "null":
                union.append(branch)
                continue
            name, field_name = f"member_{simple_name(branch)}", f"f{next(self._numbers)}"
            plain, convert = self._read_as(branch, namespace, _below(column).get(name))
            # A record of one field is encoded as that field, and identifies the branch.
            union.append(self._record_of([{"name": field_name, "type": plain}]))
            members[field_name] = name, convert

        def convert_member(value: Any) -> Any:
            if value is None:
                return None
            ((field_name, inner),) = value.items()
            name, convert = members[field_name]
            return {name: convert(inner)}

        return union, convert_member

    def _record(self, schema: AvroType, namespace: str, column: IcebergType | None) -> _Read:
        below, open_records, level = _below(column), self._open, self._level
        record = self._record_of([])
        if id(schema) in open_records:
            self._open = open_records[: open_records.index(id(schema))]
            copy = (level, *self._open, id(schema))
            if level == MOST_LEVELS or copy in self._copies:
                self._open = open_records
                return self._copies.get(copy) or self._record_of([{"name": "none", "type": []}]), _same
            self._copies[copy] = record["name"]
            self._level += 1
        self._open = (*self._open, id(schema))
        fields: list[tuple[str, str, Convert]] = []
        for field in schema["fields"]:
            name, field_name = self._column(field, below), f"f{next(self._numbers)}"
            outer, self._path = self._path, f"{self._path}{name}."
            plain, convert = self._read_as(field["type"], namespace, below.get(name))
            self._path = outer
            record["fields"].append({"name": field_name, "type": plain})
            if f"{outer}{field['name']}" not in self._omitted:
                fields.append((field_name, name, convert))
        self._open, self._level = open_records, level
        return record, lambda decoded: {name: convert(decoded[field_name]) for field_name, name, convert in fields}

    def _column(self, field: AvroField, below: Mapping[str, IcebergType]) -> str:
        """Return the column of a field: by its name in any case, else by its nearest alias."""
        name: str = field["name"]
        spellings = {column.lower(): column for column in below}
        near, seen = [name], {name}
        while near:
            for near_name in near:
                if near_name.lower() in spellings or not below:
                    return spellings.get(near_name.lower(), near_name)
            similar = [other for near_name in near for other in self._names.get(near_name, ())]
            near = [*field.get("aliases", ()), *similar] if near == [name] else similar
            near = [near_name for near_name in dict.fromkeys(near) if near_name not in seen]
            seen.update(near)
        return name

    def _fixed(self, size: int) -> AvroType:
        return {"type": "fixed", "name": self._name(), "size": size}

    def _record_of(self, fields: list[AvroField]) -> AvroType:
        return {"type": "record", "name": self._name(), "fields": fields}

    def _name(self) -> str:
        return f"t{next(self._numbers)}"


def _below(column: IcebergType | None) -> dict[str, IcebergType]:
    return {field.name: field.field_type for field in column.fields} if isinstance(column, StructType) else {}


def _takes_no_bytes(schema: Any) -> bool:
    if isinstance(schema, dict) and schema["type"] == "record":
        return all(_takes_no_bytes(field["type"]) for field in schema["fields"])
    return schema == "null" or (isinstance(schema, dict) and schema.get("size") == 0)


def _same(value: Any) -> Any:
    return value


def _logical(schema: AvroType) -> Convert:
    """Return the conversion of a logical type; an invalid one converts nothing."""
    logical = schema.get("logicalType")
    if schema["type"] == "long" and logical in MILLISECONDS:
        return _as_microseconds
    if schema["type"] not in ("bytes", "fixed") or logical != "decimal":
        return _same
    precision, scale = schema.get("precision"), schema.get("scale", 0)
    if type(precision) is not int or type(scale) is not int or not 0 <= scale <= precision or not precision:
        return _same
    # Some precision may be more than a fixed can hold.
    if schema["type"] == "fixed" and 10**precision > 2 ** (8 * schema["size"] - 1):
        return _same

    def decimal(unscaled_bytes: bytes) -> Decimal:
        unscaled = int.from_bytes(unscaled_bytes, "big", signed=True)
        if not unscaled_bytes or abs(unscaled) >= 10**precision:
            raise OverflowError
        return Decimal(unscaled).scaleb(-scale, EXACT)

    return decimal


def _as_int(number: int) -> int:
    if not -(2**31) <= number < 2**31:
        raise OverflowError
    return number


READ_AS: dict[str, _Read] = {"int": ("int", _as_int), "string": ("bytes", bytes.decode)}


def _as_microseconds(milliseconds: int) -> int:
    if abs(milliseconds) > 2**63 // 1000:
        raise OverflowError
    return milliseconds * 1000
