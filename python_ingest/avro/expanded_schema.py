"""A registered Avro schema as one expanded schema: plain JSON with every type written out where it is used.

Every record, enum and fixed is named by its path. Names are not part of the encoding, so this changes no
byte, and it lets one type be used twice, or renamed by a producer. Of a record's fields name, type and aliases are
kept, and whether a record may lack it; of logical types those that determine how a value is read.

A field that no column can hold is marked as `omitted`: its bytes are read, and no reader schema has it.
"""

import json
import math
from collections.abc import Sequence
from hashlib import sha256
from typing import Any

from python_ingest.avro.types import NAMED, RECORDS, AvroField, AvroSchema, AvroType, qualified_name, simple_name
from python_ingest.avro.walk import (
    IncompatibleSchema,
    avro_type,
    below,
    holds_nothing,
    is_name,
    member,
    not_null,
    omitted,
    takes_no_bytes,
)

PRIMITIVES = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
# What a value with a logical type is, by the Avro type below it. What becomes a timestamp is one type whatever its
# unit; what stays a number (times of day, nanoseconds) is a type per unit, so that units never mix in a column.
LOGICAL = {
    ("int", "date"): "date",
    ("int", "time-millis"): "time-millis",
    ("long", "time-micros"): "time-micros",
    ("long", "timestamp-millis"): "timestamp",
    ("long", "timestamp-micros"): "timestamp",
    ("long", "timestamp-nanos"): "timestamp-nanos",
    ("long", "local-timestamp-millis"): "local-timestamp",
    ("long", "local-timestamp-micros"): "local-timestamp",
    ("long", "local-timestamp-nanos"): "local-timestamp-nanos",
    ("bytes", "decimal"): "decimal",
    ("fixed", "decimal"): "decimal",
}
# A named type is written out wherever it is used: a few lines can have millions of leaves.
MOST_LEAVES = 5_000
# The size of a fixed: Avro takes its memory before it reads a byte. conf/spark-defaults.conf has the same for `bytes`.
MOST_BYTES = 64 * 1024 * 1024


class NoColumn(IncompatibleSchema):
    """A type that no column can have. It costs the record's field that holds it; outside of a record, the schema."""


def expand_schema(text: str, references: Sequence[str] = (), docs: dict[str, str] | None = None) -> AvroSchema:
    """Return the form of a registered schema; `references` are the texts of the schemas it refers to.

    `docs` gets the documentation of each field that has one, by path.

    Raises:
        IncompatibleSchema: it is not an Avro schema, has too many leaves, or no column can hold its outermost type.
    """
    expander = _Expander({} if docs is None else docs)
    try:
        for document in map(json.loads, (*references, text)):
            expander.define(document, "")
        form = expander.expand(document, "", "")
    except json.JSONDecodeError:
        raise IncompatibleSchema("", "the schema is not JSON") from None
    except (AttributeError, KeyError, TypeError, RecursionError):
        raise IncompatibleSchema("", "this is not an Avro schema") from None
    if not_null(form) == "null":
        raise IncompatibleSchema("", "a value that is always null cannot be a column")
    return form


def fingerprint(text: str, references: Sequence[str] = ()) -> str:
    """Return a hash of what determines the meaning of bytes: types, order, names and logical types, expanded."""
    try:
        form = json.dumps(expand_schema(text, references))
    except IncompatibleSchema as error:
        return str(error)
    ignored = ("aliases", "optional", "omitted")
    stripped = json.loads(form, object_hook=lambda part: {key: part[key] for key in sorted(part) if key not in ignored})
    return sha256(json.dumps(stripped).encode()).hexdigest()


def validate_name(name: str, path: str) -> None:
    """Raise IncompatibleSchema for an invalid name: Spark could read no record of the topic with such a schema."""
    if not is_name(name):
        raise IncompatibleSchema(path, f"'{name}' is not a name in Avro")


def full_name(text: str) -> str:
    """Return the name of a registered schema's outermost type but null, with its namespace; '' if it has none."""
    try:
        schema: Any = not_null(json.loads(text))
        return schema if isinstance(schema, str) else qualified_name(schema["name"], schema.get("namespace"))
    except (json.JSONDecodeError, KeyError, TypeError):
        return ""


class _Expander:
    def __init__(self, docs: dict[str, str]) -> None:
        self._docs = docs
        self._named: dict[str, tuple[AvroType, str]] = {}
        # The records that the current path is in, and their names in the form.
        self._open: dict[str, str] = {}
        self._leaves = 0
        # Whether the current path is in an omitted field, of which only the bytes count.
        self._omits = False

    def define(self, schema: AvroSchema | None, namespace: str) -> None:
        """Collect the named types that a schema defines, at any depth."""
        if isinstance(schema, list):
            for branch in schema:
                self.define(branch, namespace)
        if not isinstance(schema, dict):
            return
        if schema["type"] in NAMED:
            full = qualified_name(schema["name"], schema.get("namespace", namespace))
            namespace = full.rpartition(".")[0]
            if self._named.setdefault(full, (schema, namespace))[0] != schema:
                raise IncompatibleSchema("", f"type '{full}' is defined twice")
        nested = [field["type"] for field in schema.get("fields", ())]
        for part in (*nested, schema.get("items"), schema.get("values"), schema["type"]):
            self.define(part, namespace)

    def expand(self, schema: AvroSchema, namespace: str, path: str, name: str = "type") -> AvroSchema:
        """Return a schema written out; `name` is what a named type is called at its path."""
        if isinstance(schema, list):
            return self._union(schema, namespace, path)
        if isinstance(schema, str):
            return self._leaf(schema) if schema in PRIMITIVES else self._reference(schema, namespace, path, name)
        match schema["type"]:
            case "array":
                return {"type": "array", "items": self._item(schema["items"], namespace, below(path, "element"))}
            case "map":
                return {"type": "map", "values": self._item(schema["values"], namespace, below(path, "value"))}
            case "record" | "error" | "enum" | "fixed":
                return self._reference(schema["name"], schema.get("namespace", namespace), path, name)
        return self._with_logical_type(self.expand(schema["type"], namespace, path, name), schema, path)

    def _leaf(self, form: AvroSchema) -> AvroSchema:
        self._leaves += 1
        if self._leaves > MOST_LEAVES:
            outermost = next(iter(self._open), "union")
            raise IncompatibleSchema("", f"type '{outermost}' has more than {MOST_LEAVES:,} leaves when written out")
        return form

    def _item(self, schema: AvroSchema, namespace: str, path: str, name: str = "type") -> AvroSchema:
        item = self.expand(schema, namespace, path, name)
        if (holds_nothing(item) or takes_no_bytes(item)) and not self._omits:
            raise NoColumn(path, "nothing but nulls cannot be a column")
        return item

    def _union(self, branches: list[AvroSchema], namespace: str, path: str) -> AvroSchema:
        several = len([branch for branch in branches if branch != "null"]) > 1
        union: list[AvroSchema] = []
        for branch in branches:
            if not several or branch == "null":
                union.append(self.expand(branch, namespace, path))
                continue
            name = simple_name(branch)
            validate_name(name, path)
            union.append(self._item(branch, namespace, below(path, f"member_{name}"), name))
        if any(isinstance(branch, list) for branch in union):
            raise IncompatibleSchema(path, "a union directly in a union is not Avro")
        if self._omits:
            if len({*map(_full_name, union)}) < len(union):
                raise IncompatibleSchema(path, "two types of the union have one name")
            return union
        if len({*map(member, union)}) < len(union):
            raise NoColumn(path, "two types of the union would be landed under one name")
        if {*map(avro_type, union)} - {"null"} == {"int", "long"} and any(isinstance(branch, dict) for branch in union):
            # Spark would land the bare numbers of both, whatever they mean.
            raise NoColumn(path, "a union of int and long with a logical type cannot be a column")
        return union

    def _reference(self, name: str, namespace: str, path: str, called: str) -> AvroSchema:
        full = qualified_name(name, namespace)
        full = full if full in self._named else name
        if full not in self._named:
            raise IncompatibleSchema(path, f"type '{name}' is not defined")
        schema, namespace = self._named[full]
        # Two types of an omitted union may have one simple name.
        called = f"{called}{self._leaves}" if self._omits else called
        kind = "record" if schema["type"] in RECORDS else schema["type"]
        form = AvroType(type=kind, name=f"at{path and '.'}{path.lstrip('.')}.{called}")
        match schema["type"]:
            case "enum":
                return self._leaf({**form, "symbols": _names(schema["symbols"], path)})
            case "fixed":
                if type(schema["size"]) is not int or not 0 <= schema["size"] <= MOST_BYTES:
                    raise IncompatibleSchema(path, f"the size of a fixed is not a number from 0 to {MOST_BYTES:,}")
                return self._with_logical_type(self._leaf({**form, "size": schema["size"]}), schema, path)
        if full in self._open:
            if self._omits:
                return self._leaf(self._open[full])
            raise NoColumn(path, "a type that contains itself cannot be a column")
        names = _names([field["name"] for field in schema["fields"]], path)
        self._open[full] = form["name"]
        try:
            fields = [self._field(field, names, namespace, below(path, field["name"])) for field in schema["fields"]]
        finally:
            del self._open[full]
        # An empty record is a leaf: a few lines can have millions of them.
        form["fields"] = fields
        return form if fields else self._leaf(form)

    def _field(self, field: AvroField, siblings: list[str], namespace: str, path: str) -> AvroField:
        leaves = self._leaves
        if isinstance(doc := field.get("doc"), str):
            self._docs[path] = doc
        try:
            form = AvroField(name=field["name"], type=self.expand(field["type"], namespace, path))
        except NoColumn as error:
            self._leaves, self._omits = leaves, True
            form = AvroField(name=field["name"], type=self.expand(field["type"], namespace, path))
            self._omits = False
            return omitted(form, field["name"], error.reason)
        # An alias that is the name of another field of this version has no meaning.
        aliases = [alias for alias in _strings(field.get("aliases", [])) if alias not in siblings]
        if "default" in field or (isinstance(field["type"], list) and "null" in field["type"]):
            form["optional"] = True
        return {**form, "aliases": aliases} if aliases else form

    def _with_logical_type(self, expanded: AvroSchema, schema: AvroType, path: str) -> AvroSchema:
        """Return the type with its logical type; as Avro has it, an unknown or impossible one counts for nothing."""
        logical = schema.get("logicalType")
        if self._omits or logical is None or isinstance(expanded, list):
            return expanded
        if (avro_type(expanded), logical) not in LOGICAL:
            return expanded
        base: AvroType = expanded if isinstance(expanded, dict) else {"type": expanded}
        if logical != "decimal":
            return {**base, "logicalType": logical}
        precision, scale = schema.get("precision"), schema.get("scale", 0)
        if type(precision) is not int or type(scale) is not int or not 0 <= scale <= precision or precision == 0:
            return expanded
        if "size" in base and precision > _digits(base["size"]):
            return expanded
        if precision > 38:
            raise NoColumn(path, "a decimal column has 1 to 38 digits")
        return {**base, "logicalType": logical, "precision": precision, "scale": scale}


def _full_name(branch: AvroSchema) -> str:
    return branch.get("name", avro_type(branch)) if isinstance(branch, dict) else avro_type(branch)


def _strings(value: object) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(text, str) for text in value):
        raise TypeError("not a list of strings")
    return value


def _names(value: object, path: str) -> list[str]:
    names = _strings(value)
    for name in names:
        validate_name(name, path)
    if len({*names}) < len(names):
        raise IncompatibleSchema(path, "two of its fields or symbols have one name")
    return names


def _digits(size: int) -> int:
    """Return how many digits always fit into so many bytes with a sign, by Avro's formula."""
    return int(math.log10(2) * (8 * size - 1)) if size else 0
