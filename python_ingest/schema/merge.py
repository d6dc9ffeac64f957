"""The reader's form of a topic's schemas: what all writers merge into, and how each writer's bytes are read as it.

The reader's form holds every field of every version, all of them optional. One place of it is one column, which may
hold several Avro types: an enum and a string, milliseconds and microseconds, fixed of two sizes.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping

from python_ingest.kafka.avro_schema import AvroField, AvroSchema, AvroType
from python_ingest.schema.avro import (
    IncompatibleSchema,
    avro_type,
    below,
    fields,
    holds_nothing,
    in_both,
    made_of,
    member,
    not_null,
    omitted,
    optional,
    parts,
)
from python_ingest.schema.writer_form import LOGICAL

WIDER = {("int", "long"): "long", ("float", "double"): "double"}
# What differs in Avro and is the same in a column.
SAME = {"enum": "string", "fixed": "bytes"}
CASE_TWIN = "its name differs from another by case only"
NESTED = ("record", "array", "map", "union")
LARGEST_DECIMAL_BYTES = 16


def column_type(schema: AvroSchema) -> str:
    """Return what a column of a schema holds: the same for all types that can share one."""
    some = not_null(schema)
    name = avro_type(some)
    if isinstance(some, dict) and "logicalType" in some:
        return LOGICAL[name, some["logicalType"]]
    return SAME.get(name, name)


def merge(reader: AvroSchema | None, writer: AvroSchema, place: str = "") -> AvroSchema:
    """Return the reader's form that holds every field of both, each as its wider type; fields match by name.

    Raises:
        IncompatibleSchema: a field of the two cannot be held by one column.
    """
    new = not_null(writer)
    old = new if reader is None else not_null(reader)
    before, after = column_type(old), column_type(new)
    if before != after:
        wider = WIDER.get((before, after)) or WIDER.get((after, before))
        if wider is None:
            raise _clash(old, new, place)
        return wider
    if after == "decimal":
        return _wider_decimal(old, new, place)
    if after not in NESTED:
        return old
    merged = parts(reader)
    for name, part in parts(new).items():
        if not holds_nothing(part):
            merged[name] = merge(merged.get(name), part, below(place, name))
    if len({*map(str.lower, merged)}) < len(merged):
        raise IncompatibleSchema(place, "names of two fields differ by case only")
    was = fields(reader)
    is_now = {name: field for name, field in fields(new).items() if not holds_nothing(field["type"])}
    return _reader(new, merged, {name: [*_aliases(was, name), *_aliases(is_now, name)] for name in merged})


def merge_all(writers: Mapping[int, AvroSchema]) -> AvroSchema | None:
    """Return the reader's form of writers that are known to fit together, None for no writer."""
    reader = None
    for _, writer in sorted(writers.items()):
        reader = merge(reader, writer)
    return reader


def with_column_names(reader: AvroSchema | None, writer: AvroSchema, place: str = "") -> AvroSchema:
    """Return a writer's form with each field named as the column it belongs to, by its own name or an alias.

    A column is known by every name and alias that the versions landed in it have. The bytes do not depend on names,
    so a form is renamed once, when it is learned, and the order of merging does not matter. Of names that differ by
    case only the one that the table has stays; fields with the others are omitted.

    Raises:
        IncompatibleSchema: it cannot be told which column a field belongs to.
    """
    old = not_null(reader or "null")
    if isinstance(writer, list):
        if not isinstance(not_null(writer), list):
            return [with_column_names(reader, branch, place) for branch in writer]
        members = parts(old) if isinstance(old, list) else {}
        names = map(member, writer)
        return [
            with_column_names(members.get(name), branch, below(place, name))
            for name, branch in zip(names, writer, strict=True)
        ]
    if isinstance(writer, str):
        return writer
    old = old if avro_type(old) == avro_type(writer) else "null"
    if writer["type"] == "record":
        return {**writer, "fields": _renamed_fields(old, writer, place)}
    before = parts(old)
    renamed = {
        name: with_column_names(before.get(name), part, below(place, name)) for name, part in parts(writer).items()
    }
    return made_of(writer, renamed)


def refuse_narrowing(before: AvroSchema | None, writer: AvroSchema, allowed: Collection[str]) -> None:
    """Raise if a type of a writer is narrower than what `before`, the merge of older versions, holds there.

    Raises:
        IncompatibleSchema: it is, and its place is not allowed. Its values would fit the column, but the producer
            promises less than readers rely on.
    """
    for place, old, new in in_both(before, writer):
        wide, narrow = column_type(old), column_type(new)
        narrower = (narrow, wide) in WIDER or (wide == narrow == "decimal" and _precision(new) < _precision(old))
        if narrower and not any(f"{place}.".startswith(f"{path}.") for path in allowed):
            raise _clash(old, new, place)


def replaced_fields(before: AvroSchema | None, writer: AvroSchema) -> Iterator[tuple[str, str, bool]]:
    """Yield what may be a rename without an alias: a field that a version lacks, and one that it has instead.

    The first comes by its path, the other by its name, and its type fits. The third part tells whether no record of
    either version may lack its own: then the two versions are neither BACKWARD nor FORWARD compatible.
    """
    for place, old, new in in_both(before, writer):
        if avro_type(new) != "record":
            continue
        was, is_now = fields(old), fields(new)
        for name, dropped in was.items():
            for added in (field for field in is_now.values() if name not in is_now and field["name"] not in was):
                if _fit(dropped["type"], added["type"]):
                    required = not dropped.get("optional") and not added.get("optional")
                    yield below(place, name), added["name"], required


def read_as(reader: AvroSchema, writer: AvroSchema) -> AvroSchema:
    """Return the reader's form for the bytes of one writer: the same columns, where needed by the writer's own types.

    Avro resolves records, unions and plain types by itself. It would misread a logical type, and refuse an enum or
    fixed, that is not the writer's own.
    """
    old, new = not_null(reader), not_null(writer)
    if avro_type(old) == avro_type(new) and avro_type(old) in NESTED:
        own = parts(new)
        return _reader(old, {name: read_as(part, own.get(name, "null")) for name, part in parts(old).items()}, {})
    promoted = isinstance(old, str) and isinstance(new, str)
    return old if promoted or new == "null" else new


def _reader(schema: AvroSchema, found: Mapping[str, AvroSchema], aliases: Mapping[str, Collection[str]]) -> AvroSchema:
    """Return the reader's form that is made of these parts, which are optional but in a union."""
    if isinstance(schema, list):
        return [*found.values()]
    some = {name: optional(part) for name, part in found.items()}
    if isinstance(schema, str) or schema["type"] != "record":
        return made_of(schema, some)
    new = [AvroField(name=name, type=part, default=None) for name, part in some.items()]
    for field in new:
        if others := aliases.get(field["name"]):
            field["aliases"] = sorted({*others})
    return {**schema, "fields": new}


def _aliases(of: Mapping[str, AvroField], name: str) -> list[str]:
    return of[name].get("aliases", []) if name in of else []


def _renamed_fields(old: AvroSchema, writer: AvroType, place: str) -> list[AvroField]:
    before = fields(old)
    columns = {alias: name for name in before for alias in _aliases(before, name)} | {name: name for name in before}
    taken: dict[str, str] = {}
    renamed = []
    for field in writer["fields"]:
        if "omitted" in field:
            renamed.append(field)
            continue
        name = field["name"]
        aliases = field.get("aliases", [])
        # Its own name decides; its aliases are asked only where that is no column's.
        found = {columns[name]} if name in columns else {columns[alias] for alias in aliases if alias in columns}
        column = min(found, default=name)
        if len(found) > 1:
            raise IncompatibleSchema(below(place, name), f"its aliases name the columns {' and '.join(sorted(found))}")
        if taken.setdefault(column, name) != name:
            raise IncompatibleSchema(below(place, name), f"it and {taken[column]} would be the one column {column}")
        of_column = before[column]["type"] if column in before else None
        part = with_column_names(of_column, field["type"], below(place, column))
        new: AvroField = {**field, "name": column, "type": part}
        new.pop("aliases", None)
        if others := sorted({name, *aliases} - {column}):
            new["aliases"] = others
        renamed.append(new)
    # A field that a schema had has a default in the reader's form. A column that only the source declares has none, and
    # takes a name in another case.
    landed = {name for name, field in before.items() if "default" in field}
    cases = Counter(map(str.lower, landed | {*taken}))
    kept = landed | {name for name in before if name.lower() not in map(str.lower, landed)}
    return [
        omitted(field, field["name"], CASE_TWIN)
        if field["name"] in taken and cases[field["name"].lower()] > 1 and field["name"] not in kept
        else field
        for field in renamed
    ]


def _fit(dropped: AvroSchema, added: AvroSchema) -> bool:
    try:
        merge(merge(None, dropped), added)
    except IncompatibleSchema:
        return False
    return not (holds_nothing(dropped) or holds_nothing(added))


def _wider_decimal(old: AvroSchema, new: AvroSchema, place: str) -> AvroSchema:
    if isinstance(old, dict) and isinstance(new, dict) and old["scale"] == new["scale"]:
        wider: AvroType = {**old, "precision": max(old["precision"], new["precision"])}
        return {**wider, "size": LARGEST_DECIMAL_BYTES} if "size" in old else wider
    raise _clash(old, new, place)


def _precision(schema: AvroSchema) -> int:
    return schema["precision"] if isinstance(schema, dict) else 0


def _clash(old: AvroSchema, new: AvroSchema, place: str) -> IncompatibleSchema:
    return IncompatibleSchema(place or "the value", f"{_spoken(old)} cannot become {_spoken(new)}")


def _spoken(schema: AvroSchema) -> str:
    if isinstance(schema, list):
        return f"a union of {', '.join(map(avro_type, schema))}"
    if isinstance(schema, dict) and "logicalType" in schema:
        size = f"({schema['precision']},{schema['scale']})" if "precision" in schema else ""
        return schema["logicalType"] + size
    return avro_type(schema)
