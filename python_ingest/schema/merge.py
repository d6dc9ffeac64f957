"""The reader's form of a topic's schemas: what all writers merge into, and how each writer's bytes are read as it.

The reader's form holds every field of every version, all of them optional. One place of it is one column, which may
hold several Avro types: an enum and a string, milliseconds and microseconds, fixed of two sizes.
"""

from collections.abc import Collection, Iterator, Mapping

from python_ingest.schema.writer_form import (
    LOGICAL,
    IncompatibleSchema,
    Json,
    holds_nothing,
    inside,
    kind,
    member,
    not_null,
    optional,
    refuse_names_that_differ_by_case,
)

WIDER = {("int", "long"): "long", ("float", "double"): "double"}
# What differs in Avro and is the same in a column.
SAME = {"enum": "string", "fixed": "bytes"}
LARGEST_DECIMAL_BYTES = 16


def column_kind(schema: Json) -> str:
    """Return what a column of a schema holds: the same for all types that can share one."""
    some = not_null(schema)
    if isinstance(some, dict) and "logicalType" in some:
        return LOGICAL[some["type"], some["logicalType"]]
    return SAME.get(kind(some), kind(some))


def merge(reader: Json | None, writer: Json, place: str = "") -> Json:
    """Return the reader's form that holds every field of both, each as its wider type; fields match by name.

    Raises:
        IncompatibleSchema: a field of the two cannot be held by one column.
    """
    new = not_null(writer)
    old = new if reader is None else not_null(reader)
    before, after = column_kind(old), column_kind(new)
    if before != after:
        wider = WIDER.get((before, after)) or WIDER.get((after, before))
        if wider is None:
            raise _clash(old, new, place)
        return wider
    match after:
        case "record":
            fields = [] if reader is None else old["fields"]
            return new | {"fields": _merged_fields(fields, new["fields"], place)}
        case "array" | "map":
            below, step = ("items", "element") if after == "array" else ("values", "value")
            known = None if reader is None else old[below]
            return new | {below: optional(merge(known, new[below], inside(place, step)))}
        case "union":
            branches = {} if reader is None else {member(each): each for each in old}
            for each in new:
                name = member(each)
                branches[name] = merge(branches.get(name), each, inside(place, name))
            return list(branches.values())
        case "decimal":
            return _wider_decimal(old, new, place)
    return old


def merge_all(writers: Mapping[int, Json]) -> Json | None:
    """Return the reader's form of writers that are known to fit together, None for no writer."""
    reader = None
    for _, writer in sorted(writers.items()):
        reader = merge(reader, writer)
    return reader


def with_column_names(reader: Json | None, writer: Json, place: str = "") -> Json:
    """Return a writer's form with each field named as the column it belongs to, by its own name or an alias.

    A column is known by every name and alias that the versions landed in it have. The bytes do not depend on names,
    so a form is renamed once, when it is learned, and the order of merging does not matter.

    Raises:
        IncompatibleSchema: it cannot be told which column a field belongs to.
    """
    old = not_null(reader)
    if isinstance(writer, list):
        if not isinstance(not_null(writer), list):
            return [with_column_names(reader, each, place) for each in writer]
        known = {member(each): each for each in old} if isinstance(old, list) else {}
        return [with_column_names(known.get(member(each)), each, inside(place, member(each))) for each in writer]
    match reader and kind(old), kind(writer):
        case "record", "record":
            return writer | {"fields": _renamed_fields(old, writer, place)}
        case "array", "array":
            return writer | {"items": with_column_names(old["items"], writer["items"], inside(place, "element"))}
        case "map", "map":
            return writer | {"values": with_column_names(old["values"], writer["values"], inside(place, "value"))}
    return writer


def refuse_narrowing(before: Json | None, writer: Json, allowed: Collection[str], place: str = "") -> None:
    """Raise if a type of a writer is narrower than what `before`, the merge of older versions, holds there.

    Raises:
        IncompatibleSchema: it is, and its place is not allowed. Its values would fit the column, but the producer
            promises less than readers rely on.
    """
    if before is None or place in allowed:
        return
    old, new = not_null(before), not_null(writer)
    match column_kind(old), column_kind(new):
        case "record", "record":
            types = {each["name"]: each["type"] for each in old["fields"]}
            for each in new["fields"]:
                refuse_narrowing(types.get(each["name"]), each["type"], allowed, inside(place, each["name"]))
        case "array", "array":
            refuse_narrowing(old["items"], new["items"], allowed, inside(place, "element"))
        case "map", "map":
            refuse_narrowing(old["values"], new["values"], allowed, inside(place, "value"))
        case "decimal", "decimal" if new["precision"] < old["precision"]:
            raise _clash(old, new, place)
        case wide, narrow if (narrow, wide) in WIDER:
            raise _clash(old, new, place)


def replaced_fields(before: Json | None, writer: Json, place: str = "") -> Iterator[tuple[str, str, bool]]:
    """Yield what may be a rename without an alias: a field that a version lacks, by its path, and another that it has
    instead, of a type that fits. The third part tells whether no record of either version may lack its own: then the
    two versions are neither BACKWARD nor FORWARD compatible."""
    if before is None:
        return
    old, new = not_null(before), not_null(writer)
    match kind(old), kind(new):
        case "record", "record":
            was, is_now = ({each["name"]: each for each in schema["fields"]} for schema in (old, new))
            for name in [name for name in was if name not in is_now]:
                for added in (each for each in is_now.values() if each["name"] not in was):
                    if _fit(was[name]["type"], added["type"]):
                        required = not was[name].get("optional") and not added.get("optional")
                        yield inside(place, name), added["name"], required
            for name in sorted(was.keys() & is_now.keys()):
                yield from replaced_fields(was[name]["type"], is_now[name]["type"], inside(place, name))
        case "array", "array":
            yield from replaced_fields(old["items"], new["items"], inside(place, "element"))
        case "map", "map":
            yield from replaced_fields(old["values"], new["values"], inside(place, "value"))


def read_as(reader: Json, writer: Json) -> Json:
    """Return the reader's form for the bytes of one writer: the same columns, where needed by the writer's own types.

    Avro resolves records, unions and plain types by itself. It would misread a logical type, and refuse an enum or
    fixed, that is not the writer's own.
    """
    old, new = not_null(reader), not_null(writer)
    match kind(old):
        case "record" if kind(new) == "record":
            own = {each["name"]: each["type"] for each in new["fields"]}
            fields = [
                _field(each["name"], read_as(each["type"], own.get(each["name"], "null"))) for each in old["fields"]
            ]
            return old | {"fields": fields}
        case "array" if kind(new) == "array":
            return old | {"items": optional(read_as(old["items"], new["items"]))}
        case "map" if kind(new) == "map":
            return old | {"values": optional(read_as(old["values"], new["values"]))}
        case "union" if kind(new) == "union":
            own = {member(each): each for each in new}
            return [read_as(each, own.get(member(each), "null")) for each in old]
    promoted = isinstance(old, str) and isinstance(new, str)
    return old if promoted or new == "null" else new


def _merged_fields(old: list[Json], new: list[Json], place: str) -> list[Json]:
    fields = {each["name"]: each for each in old}
    for each in new:
        if holds_nothing(each["type"]):
            continue
        name = each["name"]
        known = fields.get(name, {})
        merged = _field(name, merge(known.get("type"), each["type"], inside(place, name)))
        aliases = sorted({*known.get("aliases", ()), *each.get("aliases", ())})
        fields[name] = merged | {"aliases": aliases} if aliases else merged
    refuse_names_that_differ_by_case(list(fields), place)
    return list(fields.values())


def _renamed_fields(old: Json, writer: Json, place: str) -> list[Json]:
    types = {each["name"]: each["type"] for each in old["fields"]}
    columns = {alias: each["name"] for each in old["fields"] for alias in each.get("aliases", ())}
    columns |= {name: name for name in types}
    taken: dict[str, str] = {}
    fields = []
    for each in writer["fields"]:
        name, aliases = each["name"], each.get("aliases", [])
        # Its own name decides; its aliases are asked only where that is no column's.
        found = {columns[name]} if name in columns else {columns[alias] for alias in aliases if alias in columns}
        column = min(found, default=name)
        if len(found) > 1:
            raise IncompatibleSchema(inside(place, name), f"its aliases name the columns {' and '.join(sorted(found))}")
        if taken.setdefault(column, name) != name:
            raise IncompatibleSchema(inside(place, name), f"it and {taken[column]} would be the one column {column}")
        below = with_column_names(types.get(column), each["type"], inside(place, column))
        others = sorted({name, *aliases} - {column})
        rest = {name: value for name, value in each.items() if name not in ("name", "type", "aliases")}
        fields.append({"name": column, "type": below} | rest | ({"aliases": others} if others else {}))
    return fields


def _fit(one: Json, other: Json) -> bool:
    try:
        merge(merge(None, one), other)
    except IncompatibleSchema:
        return False
    return not (holds_nothing(one) or holds_nothing(other))


def _wider_decimal(old: Json, new: Json, place: str) -> Json:
    if old["scale"] != new["scale"]:
        raise _clash(old, new, place)
    size = {"size": LARGEST_DECIMAL_BYTES} if "size" in old else {}
    return old | {"precision": max(old["precision"], new["precision"])} | size


def _field(name: str, schema: Json) -> Json:
    return {"name": name, "type": optional(schema), "default": None}


def _clash(old: Json, new: Json, place: str) -> IncompatibleSchema:
    return IncompatibleSchema(place or "the value", f"{_spoken(old)} cannot become {_spoken(new)}")


def _spoken(schema: Json) -> str:
    if isinstance(schema, list):
        return f"a union of {', '.join(map(kind, schema))}"
    if isinstance(schema, dict) and "logicalType" in schema:
        size = f"({schema['precision']},{schema['scale']})" if "precision" in schema else ""
        return str(schema["logicalType"]) + size
    return kind(schema)
