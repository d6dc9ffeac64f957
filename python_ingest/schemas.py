"""Avro schemas as plain JSON: one writer's form, and the reader's form that all writers merge into.

Both forms name every record, enum and fixed by the place it stands at. Names are not part of the
encoding, so this changes no byte, and it lets one type be used twice, or renamed by a producer.
"""

import json
from collections.abc import Mapping
from typing import Any

Json = Any
PRIMITIVES = ("boolean", "int", "long", "float", "double", "bytes", "string")
WIDER = {("int", "long"): "long", ("float", "double"): "double"}


class IncompatibleSchema(Exception):
    """A schema that this table cannot take. The message names the field, never a value."""

    def __init__(self, field: str, reason: str) -> None:
        super().__init__(f"{field}: {reason}" if field else reason)


def writer_form(text: str) -> Json:
    """Return a registered schema without names, defaults, docs and aliases, types written out.

    Raises:
        IncompatibleSchema: it is not an Avro schema, or holds what a table column cannot.
    """
    try:
        document = json.loads(text)
    except json.JSONDecodeError:
        raise IncompatibleSchema("", "the schema is not JSON") from None
    return _Expander().expand(document, "", "")


def merge(reader: Json | None, writer: Json, field: str = "") -> Json:
    """Return the reader's form that holds every field of both, each as its wider type.

    Fields, elements and map values are optional throughout; the type itself stays as it is.

    Raises:
        IncompatibleSchema: a field of the two cannot be held by one column.
    """
    if reader is None:
        return _optional_throughout(writer)
    old, new = not_null(reader), not_null(writer)
    if kind(old) != kind(new):
        return _wider(old, new, field)
    match kind(old):
        case "record":
            merged = old | {"fields": _merged_fields(old, new, field)}
        case "array":
            merged = old | {"items": optional(merge(old["items"], new["items"], f"{field}.element"))}
        case "map":
            merged = old | {"values": optional(merge(old["values"], new["values"], f"{field}.value"))}
        case "enum":
            merged = old | {"symbols": list(dict.fromkeys(old["symbols"] + new["symbols"]))}
        case _ if old == new:
            merged = old
        case _:
            raise _clash(field, old, new)
    return merged


def merge_all(writers: Mapping[int, Json]) -> Json | None:
    """Return the reader's form of writers that are known to fit together, None for no writer."""
    reader = None
    for _, writer in sorted(writers.items()):
        reader = merge(reader, writer)
    return reader


def kind(schema: Json) -> str:
    """Return the Avro type's name, `union` for a list."""
    if isinstance(schema, list):
        return "union"
    return schema if isinstance(schema, str) else schema["type"]


def not_null(schema: Json) -> Json:
    """Return T of T or of a union of T and null."""
    if not isinstance(schema, list):
        return schema
    return next(branch for branch in schema if branch != "null")


def optional(schema: Json) -> Json:
    """Return the union of null and T."""
    return ["null", not_null(schema)]


def _wider(old: Json, new: Json, field: str) -> Json:
    wider = WIDER.get((kind(old), kind(new))) or WIDER.get((kind(new), kind(old)))
    if wider is None or _is_logical(old) or _is_logical(new):
        raise _clash(field, old, new)
    return wider


def _merged_fields(old: Json, new: Json, place: str) -> list[Json]:
    types = {each["name"]: each["type"] for each in old["fields"]}
    for each in new["fields"]:
        name = each["name"]
        types[name] = merge(types.get(name), each["type"], f"{place}.{name}".lstrip("."))
    _refuse_names_that_differ_by_case(types, place)
    return [_field(name, optional(schema)) for name, schema in types.items()]


def _optional_throughout(writer: Json) -> Json:
    schema = not_null(writer)
    match kind(schema):
        case "record":
            fields = [_field(each["name"], optional(_optional_throughout(each["type"]))) for each in schema["fields"]]
            return schema | {"fields": fields}
        case "array":
            return schema | {"items": optional(_optional_throughout(schema["items"]))}
        case "map":
            return schema | {"values": optional(_optional_throughout(schema["values"]))}
    return schema


def _field(name: str, schema: Json) -> Json:
    return {"name": name, "type": schema, "default": None}


def _is_logical(schema: Json) -> bool:
    return isinstance(schema, dict) and "logicalType" in schema


def _clash(field: str, old: Json, new: Json) -> IncompatibleSchema:
    return IncompatibleSchema(field or "the value", f"{_spoken(old)} cannot become {_spoken(new)}")


def _spoken(schema: Json) -> str:
    if not _is_logical(schema):
        return kind(schema)
    size = f"({schema['precision']},{schema['scale']})" if "precision" in schema else ""
    return schema["logicalType"] + size


def _refuse_names_that_differ_by_case(names: Any, place: str) -> None:
    seen: dict[str, str] = {}
    for name in names:
        other = seen.setdefault(name.lower(), name)
        if other != name:
            raise IncompatibleSchema(f"{place}.{name}".lstrip("."), f"differs from {other} by case only")


class _Expander:
    """Writes named types out where they are used."""

    def __init__(self) -> None:
        self._named: dict[str, tuple[Json, str]] = {}
        self._open: list[str] = []

    def expand(self, schema: Json, namespace: str, place: str) -> Json:
        if isinstance(schema, list):
            return self._union(schema, namespace, place)
        if isinstance(schema, str):
            return schema if schema in PRIMITIVES else self._reference(schema, namespace, place)
        if not isinstance(schema, dict) or "type" not in schema:
            raise IncompatibleSchema(place, "this is not an Avro schema")
        match schema["type"]:
            case "array":
                return {"type": "array", "items": self.expand(schema.get("items"), namespace, f"{place}.element")}
            case "map":
                return {"type": "map", "values": self.expand(schema.get("values"), namespace, f"{place}.value")}
            case "record" | "enum" | "fixed":
                return self._definition(schema, namespace, place)
        return _with_logical_type(self.expand(schema["type"], namespace, place), schema, place)

    def _definition(self, schema: Json, namespace: str, place: str) -> Json:
        full = self._full_name(str(schema.get("name", "")), schema.get("namespace", namespace))
        self._named[full] = schema, full.rpartition(".")[0]
        return self._reference(full, "", place)

    def _reference(self, name: str, namespace: str, place: str) -> Json:
        full = self._full_name(name, namespace)
        if full not in self._named:
            raise IncompatibleSchema(place, f"type '{name}' cannot be a column")
        schema, namespace = self._named[full]
        return self._named_type(schema, full, namespace, place)

    def _union(self, branches: list[Json], namespace: str, place: str) -> Json:
        others = [branch for branch in branches if branch != "null"]
        if len(others) != 1 or len(branches) > 2:
            raise IncompatibleSchema(place, "only a union of one type and null can be a column")
        return ["null" if branch == "null" else self.expand(branch, namespace, place) for branch in branches]

    def _named_type(self, schema: Json, full: str, namespace: str, place: str) -> Json:
        name = f"at{place and '.'}{place.lstrip('.')}.type"
        if schema["type"] == "enum":
            return {"type": "enum", "name": name, "symbols": schema["symbols"]}
        if schema["type"] == "fixed":
            fixed = {"type": "fixed", "name": name, "size": schema["size"]}
            return _with_logical_type(fixed, schema, place)
        if full in self._open:
            raise IncompatibleSchema(place, "a type that contains itself cannot be a column")
        self._open.append(full)
        fields = [
            {
                "name": each["name"],
                "type": self.expand(each["type"], namespace, f"{place}.{each['name']}".lstrip(".")),
            }
            for each in schema["fields"]
        ]
        self._open.pop()
        _refuse_names_that_differ_by_case([each["name"] for each in fields], place)
        return {"type": "record", "name": name, "fields": fields}

    @staticmethod
    def _full_name(name: str, namespace: str) -> str:
        return name if "." in name or not namespace else f"{namespace}.{name}"


def _with_logical_type(expanded: Json, schema: Json, place: str) -> Json:
    logical = schema.get("logicalType")
    if logical is None or isinstance(expanded, list):
        return expanded
    base = expanded if isinstance(expanded, dict) else {"type": expanded}
    if logical != "decimal":
        return base | {"logicalType": logical}
    precision, scale = schema.get("precision"), schema.get("scale", 0)
    if not (isinstance(precision, int) and 0 < precision <= 38 and 0 <= scale <= precision):
        raise IncompatibleSchema(place, "a decimal column has 1 to 38 digits")
    return base | {"logicalType": logical, "precision": precision, "scale": scale}
