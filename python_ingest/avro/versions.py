"""The versions of a topic's schema: which column a field belongs to, and which change of a version is refused.

One column may hold several Avro types: an enum and a string, milliseconds and microseconds, fixed of two sizes.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import reduce
from itertools import product

from pyiceberg.types import IcebergType, StructType

from python_ingest.avro.expanded_schema import LOGICAL
from python_ingest.avro.types import AvroField, AvroSchema, AvroType
from python_ingest.avro.walk import (
    WIDER_NUMBERS,
    IncompatibleSchema,
    avro_type,
    below,
    fields,
    holds_nothing,
    member,
    not_null,
    omitted,
    walk,
)
from python_ingest.declare import spark_types

# What differs in Avro and is the same in a column.
SAME = {"enum": "string", "fixed": "bytes"}
# The other field has the column of the first kind; neither has one of the second.
CASE_TWIN = "its name differs from another by case only"
NEW_TWIN = "its name differs from another new one by case only"


def column_type(schema: AvroSchema) -> str:
    """Return what a column of a schema holds: the same for all types that can share one."""
    some = not_null(schema)
    name = avro_type(some)
    if isinstance(some, dict) and "logicalType" in some:
        return LOGICAL[name, some["logicalType"]]
    return SAME.get(name, name)


@dataclass(frozen=True)
class Versions:
    """What some versions of a schema hold, by path, in whatever order they are added.

    `types` are the widest of each path without null, `columns` those of each record by the names and aliases that
    their fields have had. `newest` is the version that was added last.
    """

    types: Mapping[str, AvroSchema] = field(default_factory=dict)
    columns: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    newest: AvroSchema | None = None

    @classmethod
    def of(cls, writers: Iterable[AvroSchema]) -> "Versions":
        """Return what writers hold; raises as `with_version`."""
        return reduce(cls.with_version, writers, cls())

    def with_version(self, writer: AvroSchema) -> "Versions":
        """Add a version whose fields are named as their columns.

        Raises:
            IncompatibleSchema: one column cannot hold a field of it and of the versions before.
        """
        types, columns = dict(self.types), dict(self.columns)
        for path, schema in walk(writer):
            types[path] = _wider(types.get(path, schema), schema, path)
            if used := [column for column in fields(schema).values() if not holds_nothing(column["type"])]:
                aliases = {alias: column["name"] for column in used for alias in column.get("aliases", ())}
                own_names = {column["name"]: column["name"] for column in used}
                before = columns.get(path, {})
                # A name that a column has is no other column's alias.
                columns[path] = {**aliases, **before, **own_names, **{name: name for name in before.values()}}
        return Versions(types, columns, writer)


def with_column_names(
    versions: Versions, writer: AvroSchema, column: IcebergType | None = None, path: str = ""
) -> AvroSchema:
    """Return an expanded schema with each field named as the column it belongs to, by its name or an alias.

    A column is known by every name and alias that the versions landed in it have; `column` has those that only a source
    declares. The bytes do not depend on names, so a schema is renamed once, when it is resolved, and the order of
    versions does not matter. A field has the column of its name in any case. Of names of one version that differ by
    case only, the one that the table has stays; fields with the others are omitted.

    Raises:
        IncompatibleSchema: a field's column is ambiguous.
    """
    below_column = spark_types.children(column)

    def named(part: AvroSchema, step: str) -> AvroSchema:
        return with_column_names(versions, part, below_column.get(step), below(path, step))

    if isinstance(writer, list):
        if not isinstance(not_null(writer), list):
            return [with_column_names(versions, branch, column, path) for branch in writer]
        return [named(branch, member(branch)) for branch in writer]
    if isinstance(writer, str) or writer["type"] not in ("array", "map", "record"):
        return writer
    if writer["type"] == "array":
        return {**writer, "items": named(writer["items"], "element")}
    if writer["type"] == "map":
        return {**writer, "values": named(writer["values"], "value")}
    declared = [*below_column] if isinstance(column, StructType) else []
    renamed = _renamed_fields(versions.columns.get(path, {}), declared, writer, path)
    for new in renamed:
        if "omitted" not in new:
            new["type"] = named(new["type"], new["name"])
    return {**writer, "fields": renamed}


def _renamed_fields(
    known: Mapping[str, str], declared: Collection[str], writer: AvroType, path: str
) -> list[AvroField]:
    columns = {**known, **{name: name for name in declared}}
    any_case = {name.lower(): columns[name] for name in (*columns, *columns.values()) if name in columns}
    spellings = Counter(field["name"].lower() for field in writer["fields"])
    field_by_column: dict[str, str] = {}
    renamed: list[AvroField] = []
    for written in writer["fields"]:
        if "omitted" in written:
            renamed.append(written)
            continue
        name = written["name"]
        # Spark and Iceberg resolve names in any case: the only field of a name has the column of that name.
        if name not in columns and spellings[name.lower()] == 1 and name.lower() in any_case:
            columns[name] = any_case[name.lower()]
        aliases = written.get("aliases", [])
        # Its name decides; its aliases count only where that is no column's.
        matching = {columns[name]} if name in columns else {columns[alias] for alias in aliases if alias in columns}
        column = min(matching, default=name)
        if len(matching) > 1:
            raise IncompatibleSchema(
                below(path, name), f"its aliases name the columns {' and '.join(sorted(matching))}"
            )
        if field_by_column.setdefault(column, name) != name:
            raise IncompatibleSchema(
                below(path, name), f"it and {field_by_column[column]} would be the one column {column}"
            )
        new: AvroField = {**written, "name": column}
        new.pop("aliases", None)
        if others := sorted(other for other in {name, *aliases} if other.lower() != column.lower()):
            new["aliases"] = others
        renamed.append(new)
    landed = {*known.values()}
    landed_in_lower_case = {*map(str.lower, landed)}
    cases = Counter(map(str.lower, landed | {*field_by_column}))
    unambiguous = landed | {name for name in declared if name.lower() not in landed_in_lower_case}
    twins = {name for name in field_by_column if cases[name.lower()] > 1 and name not in unambiguous}
    with_column = {*map(str.lower, field_by_column.keys() - twins)}
    return [
        omitted(new, new["name"], CASE_TWIN if new["name"].lower() in with_column else NEW_TWIN)
        if new["name"] in twins
        else new
        for new in renamed
    ]


def refuse_narrowing(before: Versions, writer: AvroSchema, allowed: Collection[str]) -> None:
    """Raise if a type of a writer is narrower than what older versions hold there.

    Raises:
        IncompatibleSchema: it is, and its path is not in `allowed`. Its values would fit the column, but the producer
            promises less than readers rely on.
    """
    for path, new in walk(writer, into_unions=False):
        old = before.types.get(path, new)
        wide, narrow = column_type(old), column_type(new)
        fewer_digits = wide == narrow == "decimal" and _precision(new) < _precision(old)
        narrower = (narrow, wide) in WIDER_NUMBERS or fewer_digits
        if narrower and not any(f"{path}.".startswith(f"{allowed_path}.") for allowed_path in allowed):
            raise _clash(old, new, path)


def replaced_fields(before: Versions, writer: AvroSchema) -> Iterator[tuple[str, str, bool]]:
    """Yield what may be a rename without an alias: a field that the newest version has, and one that it lacks.

    The first comes by its path, the other by its name, and its type fits. The third part is whether no record of
    either version may lack its field: then the two versions are neither BACKWARD nor FORWARD compatible.
    """
    old = dict(walk(before.newest or "null", into_unions=False))
    for path, new in walk(writer, into_unions=False):
        was, is_now = fields(old.get(path)), fields(new)
        are_dropped = [column for name, column in was.items() if name not in is_now]
        are_added = [column for name, column in is_now.items() if name not in was]
        for dropped, added in product(are_dropped, are_added):
            if _fit(dropped["type"], added["type"]):
                required = not dropped.get("optional") and not added.get("optional")
                yield below(path, dropped["name"]), added["name"], required


def _fit(dropped: AvroSchema, added: AvroSchema) -> bool:
    try:
        Versions.of([dropped, added])
    except IncompatibleSchema:
        return False
    return not (holds_nothing(dropped) or holds_nothing(added))


def _wider(old: AvroSchema, new: AvroSchema, path: str) -> AvroSchema:
    """Return the type that holds both; raises IncompatibleSchema if no type does."""
    before, after = column_type(old), column_type(new)
    if before != after:
        wider = WIDER_NUMBERS.get((before, after)) or WIDER_NUMBERS.get((after, before))
        if wider is None:
            raise _clash(old, new, path)
        return wider
    if isinstance(old, dict) and isinstance(new, dict) and after == "decimal":
        if old["scale"] != new["scale"]:
            raise _clash(old, new, path)
        return max(old, new, key=_precision)
    return old


def _precision(schema: AvroSchema) -> int:
    return schema["precision"] if isinstance(schema, dict) else 0


def _clash(old: AvroSchema, new: AvroSchema, path: str) -> IncompatibleSchema:
    return IncompatibleSchema(path or "the value", f"{_display_name(old)} cannot become {_display_name(new)}")


def _display_name(schema: AvroSchema) -> str:
    if isinstance(schema, list):
        return f"a union of {', '.join(map(avro_type, schema))}"
    if isinstance(schema, dict) and "logicalType" in schema:
        size = f"({schema['precision']},{schema['scale']})" if "precision" in schema else ""
        return schema["logicalType"] + size
    return avro_type(schema)
