"""Versions of a schema: what is BACKWARD or FORWARD compatible lands, and a note names a possible rename."""

import json
import random
from typing import Any

import pytest
from confluent_kafka.schema_registry import Schema

from python_ingest.avro.versions import Versions
from python_ingest.avro.walk import IncompatibleSchema
from python_ingest.declare.spark_types import NO_COLUMNS, of_spark, struct
from python_ingest.declare.topics import Declaration
from python_ingest.kafka.registry import Registered
from python_ingest.landing.schemas import check_compatibility
from tests.support.topic_fixture import TopicFixture, record

Fields = dict[str, tuple[str, bool]]
LATER = record("sale", later="string")
DEFAULTS = {"int": 0, "string": "", "double": 0.5}


def a_version(rng: random.Random, before: Fields) -> Fields:
    """Return fields by name, with their type and whether a record may lack them; some of an earlier version's."""
    remaining = {name: (kind, rng.choice([optional, True])) for name, (kind, optional) in before.items()}
    remaining = dict(rng.sample(list(remaining.items()), rng.randint(max(0, len(remaining) - 2), len(remaining))))
    added = {f"f{rng.randrange(1000)}": (rng.choice([*DEFAULTS]), rng.random() < 0.3) for _ in range(rng.randint(0, 2))}
    return remaining | added


def schema_of(fields: Fields, depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "record", "name": f"level_{depth}", "fields": []}
    for name, (kind, optional) in fields.items():
        schema["fields"].append({"name": name, "type": kind} | ({"default": DEFAULTS[kind]} if optional else {}))
    outer = {"type": "array", "items": schema}
    return schema if depth == 0 else record("outer", below=outer if depth == 2 else schema)


def notes_of(before: Any, after: Any, *allow: str) -> tuple[str, ...]:
    declaration = Declaration("t", "s", "t", "string", "dead_letter", allow=allow)
    first, _ = check_compatibility(
        "value", declaration, NO_COLUMNS, Versions(), Versions(), Versions(), Registered("AVRO", json.dumps(before))
    )
    versions = Versions.of([first])
    _, notes = check_compatibility(
        "value", declaration, NO_COLUMNS, versions, versions, versions, Registered("AVRO", json.dumps(after))
    )
    return notes


def test_a_field_that_does_not_fit_its_declared_column_is_refused() -> None:
    columns = struct({"later": of_spark("array<string>")})
    declaration = Declaration("t", "s", "t", "string", "dead_letter")
    with pytest.raises(IncompatibleSchema, match=r"^later: string does not fit the column's type array<string>$"):
        check_compatibility(
            "value", declaration, columns, Versions(), Versions(), Versions(), Registered("AVRO", json.dumps(LATER))
        )


def test_a_schema_that_is_not_avro_is_refused() -> None:
    declaration, registered = Declaration("t", "s", "t"), Registered("JSON", "{}")
    with pytest.raises(IncompatibleSchema, match="the schema is JSON, not AVRO"):
        check_compatibility("value", declaration, NO_COLUMNS, Versions(), Versions(), Versions(), registered)


def test_a_union_of_which_a_record_holds_nothing_is_refused() -> None:
    """Names that differ by case only cannot be columns, so nothing of the record is left."""
    twins = record("twins", A="int", a="int")
    with pytest.raises(IncompatibleSchema, match="text: a record in the union has no field that can be a column"):
        notes_of(record("r", id="int"), record("r", id="int", text=["null", "string", twins]))


@pytest.mark.slow
def test_only_a_version_that_the_registry_calls_incompatible_both_ways_is_refused(topic: TopicFixture) -> None:
    rng = random.Random(20261122)
    outcomes = {"landed": 0, "noted": 0, "refused": 0}
    for number in range(120):
        old = {f"f{name}": (rng.choice([*DEFAULTS]), rng.random() < 0.3) for name in range(3)}
        new = a_version(rng, old)
        before, after = (schema_of(fields, number % 3) for fields in (old, new))
        compatible = False
        for level in ("BACKWARD", "FORWARD"):
            subject = f"{topic.name}-{number}-{level}"
            topic.registry.register_schema(subject, Schema(json.dumps(before), "AVRO"))
            topic.registry.set_compatibility(subject, level)
            compatible |= topic.registry.test_compatibility(subject, Schema(json.dumps(after), "AVRO"))
        gone = {kind for name, (kind, optional) in old.items() if name not in new and not optional}
        come = {kind for name, (kind, optional) in new.items() if name not in old and not optional}
        try:
            notes = notes_of(before, after)
        except IncompatibleSchema:
            assert not compatible, (before, after)
            assert gone & come
            outcomes["refused"] += 1
        else:
            assert not gone & come
            outcomes["noted" if notes else "landed"] += 1
    assert min(outcomes.values()) > 10, outcomes


def optional(schema: dict[str, Any], *names: str) -> dict[str, Any]:
    fields = [field | ({"default": 0} if field["name"] in names else {}) for field in schema["fields"]]
    return schema | {"fields": fields}


def test_what_replaces_a_field_is_noted_or_refused_by_its_path_until_it_is_allowed() -> None:
    before, other = record("p", x="int"), record("p", y="int")
    assert notes_of(record("r", place=optional(before, "x")), record("r", place=other)) == (
        "place.x was dropped and y added, as a separate column",
    )
    assert notes_of(record("r", place=before), record("r", place=optional(other, "y"))) != ()
    with pytest.raises(IncompatibleSchema, match=r"^place.x: renamed to y without an alias$"):
        notes_of(record("r", place=before), record("r", place=other))
    assert notes_of(record("r", a="int"), record("r", b=["null", "int"])) == (
        "a was dropped and b added, as a separate column",
    )
    assert notes_of(record("r", place=before), record("r", place=other), "place.x") == ()
    assert notes_of(record("r", a="int"), record("r", b="string")) == ()
    with pytest.raises(IncompatibleSchema, match="a: long cannot become int"):
        notes_of(record("r", a="long"), record("r", a="int"), "b")
    assert notes_of(record("r", a="long"), record("r", a="int"), "a") == ()
    # What no column can hold, no declaration makes fit.
    with pytest.raises(IncompatibleSchema, match="a: string cannot become int"):
        notes_of(record("r", a="string"), record("r", a="int"), "a")
