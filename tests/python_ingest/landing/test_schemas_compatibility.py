"""Versions of a schema: what is BACKWARD or FORWARD compatible lands, and a note names a possible rename."""

import json
from itertools import product
from typing import Any

import pytest
from pyiceberg.types import StructType

from python_ingest.avro.versions import Versions
from python_ingest.avro.walk import IncompatibleSchema
from python_ingest.bronze.schema_state import SchemaState
from python_ingest.declare.spark_types import NO_COLUMNS, of_spark, struct
from python_ingest.declare.topics import Declaration
from python_ingest.kafka.registry import Registered
from python_ingest.landing.schemas import check_compatibility
from tests.support.topic_fixture import record


def schema_of(fields: dict[str, tuple[str, bool]], depth: int = 0) -> dict[str, Any]:
    """Return a record with fields of these types, which a record may lack or not; in other records, if so deep."""
    schema: dict[str, Any] = {"type": "record", "name": f"level_{depth}", "fields": []}
    for name, (kind, is_optional) in fields.items():
        default = {"int": 0, "string": ""}[kind]
        schema["fields"].append({"name": name, "type": kind} | ({"default": default} if is_optional else {}))
    outer = {"type": "array", "items": schema}
    return schema if depth == 0 else record("outer", below=outer if depth == 2 else schema)


def notes_of(*versions: Any, allow: tuple[str, ...] = (), columns: StructType = NO_COLUMNS) -> tuple[str, ...]:
    """Return the notes on the last version, of a table with these columns."""
    declaration, known, notes = Declaration("t", "s", "t", allow=allow), Versions(), ()
    for version in versions:
        registered = Registered("AVRO", json.dumps(version))
        writer, notes = check_compatibility("value", declaration, columns, known, known, known, registered)
        SchemaState(columns=columns).with_writer("value", 1, writer)
        known = known.with_version(writer)
    return notes


def test_a_schema_that_is_not_avro_is_refused() -> None:
    registered, known = Registered("JSON", "{}"), Versions()
    with pytest.raises(IncompatibleSchema, match="the schema is JSON, not AVRO"):
        check_compatibility("value", Declaration("t", "s", "t"), NO_COLUMNS, known, known, known, registered)


def test_what_is_incompatible_both_ways_is_refused() -> None:
    """Of all versions that drop a field, add one or both, each of which a record may lack or not."""
    sides: list[bool | None] = [None, False, True]
    for depth, kind, dropped, added in product(range(3), ("int", "string"), sides, sides):
        old, new = ({"k": ("int", False)} for _ in range(2))
        old |= {} if dropped is None else {"x": ("int", dropped)}
        new |= {} if added is None else {"y": (kind, added)}
        before, after = (schema_of(fields, depth) for fields in (old, new))
        fits = kind == "int" and None not in (dropped, added)
        if fits and not dropped and not added:
            with pytest.raises(IncompatibleSchema):
                notes_of(before, after)
        else:
            assert bool(notes_of(before, after)) == fits


# Names that differ by case only cannot be columns, so nothing of the record is left.
TWINS = record("twins", A="int", a="int")
HERE, THERE = (record("r", place=record("p", **{name: "int"})) for name in "xy")
MAYBE_HERE, MAYBE_THERE = (record("r", place=schema_of({name: ("int", True)})) for name in "xy")
DECLARED = struct({"later": of_spark("array<string>")})


@pytest.mark.parametrize(
    ("before", "after", "allow", "refusal"),
    [
        (HERE, THERE, (), "place.x: renamed to y without an alias"),
        (record("r", a="long"), record("r", a="int"), ("b",), "a: long cannot become int"),
        # What no column can hold, no declaration makes fit.
        (record("r", a="string"), record("r", a="int"), ("a",), "a: string cannot become int"),
        (HERE, record("r", later="string"), (), "later: string does not fit the column's type array<string>"),
        (
            record("r", id="int"),
            record("r", id="int", text=["null", "string", TWINS]),
            (),
            "text: a record in the union has no field that can be a column",
        ),
    ],
)
def test_a_version_that_its_readers_cannot_read_is_refused(
    before: Any, after: Any, allow: tuple[str, ...], refusal: str
) -> None:
    with pytest.raises(IncompatibleSchema, match=f"^{refusal}$"):
        notes_of(before, after, allow=allow, columns=DECLARED)


@pytest.mark.parametrize(
    ("before", "after", "allow", "dropped"),
    [
        (MAYBE_HERE, THERE, (), "place.x was dropped and y"),
        (HERE, MAYBE_THERE, (), "place.x was dropped and y"),
        (record("r", a="int"), record("r", b=["null", "int"]), (), "a was dropped and b"),
        (record("r", a="int"), record("r", b="string"), (), None),
        (HERE, THERE, ("place.x",), None),
        (record("r", a="long"), record("r", a="int"), ("a",), None),
    ],
)
def test_a_possible_rename_is_noted_unless_it_is_allowed(
    before: Any, after: Any, allow: tuple[str, ...], dropped: str | None
) -> None:
    assert notes_of(before, after, allow=allow) == ((f"{dropped} added, as a separate column",) if dropped else ())
