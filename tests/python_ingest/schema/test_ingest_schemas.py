"""Versions merged into the reader's form, in any order, and each writer's bytes read as it."""

import json
import random
from itertools import permutations
from typing import Any

import pytest
from pyiceberg.types import IntegerType, ListType, MapType, NestedField, StructType

from python_ingest.kafka.avro_schema import omitted_fields
from python_ingest.schema import column_types
from python_ingest.schema.avro import IncompatibleSchema
from python_ingest.schema.merge import merge, merge_all, read_as, with_column_names
from python_ingest.schema.writer_form import writer_form
from tests.support.lab import record


def learned(*versions: Any) -> tuple[Any, list[Any]]:
    """Return the reader's form of versions learned one after the other, and their writers' forms."""
    reader, writers = None, []
    for version in versions:
        writers.append(with_column_names(reader, writer_form(json.dumps(version))))
        reader = merge(reader, writers[-1])
    return reader, writers


def types(reader: Any) -> dict[str, Any]:
    return {field["name"]: field["type"] for field in reader["fields"]}


def aliased(schema: Any, **aliases: list[str]) -> Any:
    """Return a record schema with aliases of some of its fields."""
    fields = [
        field | ({"aliases": aliases[field["name"]]} if field["name"] in aliases else {}) for field in schema["fields"]
    ]
    return schema | {"fields": fields}


def test_the_reader_holds_every_field_of_every_version_in_any_order() -> None:
    versions = [
        record("r", id="int", price="float"),
        record("r", id="int", code=["null", "string"], price="double"),
        record("r", price="float", id="long", nested=record("n", x="int")),
    ]
    expected = {
        "id": ["null", "long"],
        "price": ["null", "double"],
        "code": ["null", "string"],
    }
    for order in permutations(versions):
        found = types(learned(*order)[0])
        assert found.pop("nested")[1]["fields"] == [{"name": "x", "type": ["null", "int"], "default": None}]
        assert found == expected


VARIANTS: dict[str, list[Any]] = {
    "number": ["int", "long", ["null", "int"], ["int", "long"]],
    "ratio": ["float", ["double", "null"]],
    "text": ["string", *({"type": "enum", "name": "e", "symbols": symbols} for symbols in (["A", "B"], ["B", "C"]))],
    "blob": ["bytes", *({"type": "fixed", "name": "f", "size": size} for size in (3, 5))],
    "at": [{"type": "long", "logicalType": f"timestamp-{unit}"} for unit in ("millis", "micros")],
    "price": [
        {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2},
        {"type": "fixed", "name": "d", "size": 8, "logicalType": "decimal", "precision": 18, "scale": 2},
    ],
    "union": [["int", "string"], ["string", "null", "long"], ["null", "boolean", "int"]],
    "late": ["null", ["null", "string"]],
}


def a_version(rng: random.Random, depth: int = 2) -> Any:
    """Return a record schema whose fields are some of VARIANTS, in any order and one name with an alias."""
    fields = {name: rng.choice(VARIANTS[name]) for name in rng.sample(sorted(VARIANTS), 3)}
    if depth:
        below = a_version(rng, depth - 1)
        fields |= rng.choice(
            [
                {"place": below},
                {"places": {"type": "array", "items": below}},
                {"by_name": {"type": "map", "values": ["null", below]}},
                {"either": ["int", below]},
            ]
        )
    renamed = rng.choice(["before", "after"])
    version = record("r", **fields, **{renamed: rng.choice(["int", "long"])}) | {"namespace": f"depth{depth}"}
    return aliased(version, after=["before"])


def columns(schema: Any) -> Any:
    """Return what a schema is landed as, without the order of fields and the name of a renamed one."""
    found = column_types.of_avro(schema)

    def plain(data_type: Any) -> Any:
        if isinstance(data_type, StructType):
            return {field.name.replace("after", "before"): plain(field.field_type) for field in data_type.fields}
        if isinstance(data_type, ListType):
            return [plain(data_type.element_type)]
        return plain(data_type.value_type) if isinstance(data_type, MapType) else str(data_type)

    return plain(found)


def test_the_columns_are_the_same_whatever_version_is_learned_first() -> None:
    rng = random.Random(20261121)
    for _ in range(25):
        versions = [a_version(rng) for _ in range(3)]
        outcomes = []
        for order in permutations(versions):
            reader, writers = learned(*order)
            outcomes.append(columns(reader))
            for again in permutations(writers):
                assert columns(merge_all(dict(enumerate(again)))) == outcomes[0]
        assert all(outcome == outcomes[0] for outcome in outcomes)


def test_fields_are_added_inside_records_arrays_and_maps() -> None:
    def version(**fields: str) -> Any:
        lines = {"type": "array", "items": record("line", **fields)}
        return record(
            "r", place=record("p", **fields), lines=lines, by_name={"type": "map", "values": record("v", **fields)}
        )

    found = types(learned(version(a="int"), version(a="int", b="string"))[0])
    names = [field["name"] for field in found["place"][1]["fields"]]
    assert names == ["a", "b"]
    assert [field["name"] for field in found["lines"][1]["items"][1]["fields"]] == ["a", "b"]
    assert [field["name"] for field in found["by_name"][1]["values"][1]["fields"]] == ["a", "b"]


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_a_field_keeps_the_name_that_its_column_has(order: tuple[int, ...]) -> None:
    versions = [
        record("r", a="int"),
        aliased(record("r", b="long"), b=["a"]),
        aliased(record("r", c="int"), c=["b", "a"]),
    ]
    reader, writers = learned(*(versions[index] for index in order))
    first = "abc"[order[0]]
    assert types(reader) == {first: ["null", "long"]}
    assert [list(types(writer)) for writer in writers] == [[first]] * 3


def test_an_alias_between_two_columns_joins_nothing() -> None:
    reader, (_, _, third) = learned(record("r", a="int"), record("r", b="int"), aliased(record("r", b="int"), b=["a"]))
    assert (list(types(reader)), list(types(third))) == (["a", "b"], ["b"])


def test_a_field_that_holds_nothing_gives_its_aliases_to_no_column() -> None:
    emptied = aliased(record("r", d="null", k="int"), d=["b"])
    reader, _ = learned(record("r", d="double", k="int"), emptied, record("r", k="int", b="string"))
    assert types(reader).keys() == {"d", "k", "b"}


def test_two_fields_of_one_column_are_refused() -> None:
    versions = [record("r", a="int"), aliased(record("r", b="int"), b=["a"]), record("r", a="int", b="int")]
    with pytest.raises(IncompatibleSchema, match="b: it and a would be the one column a"):
        learned(*versions)
    with pytest.raises(IncompatibleSchema, match="c: its aliases name the columns a and b"):
        learned(record("r", a="int", b="int"), aliased(record("r", c="int"), c=["a", "b"]))


def test_a_renamed_type_changes_nothing_outside_a_union() -> None:
    before, after = record("Old", a="int"), record("New", a="int")
    reader, _ = learned(record("r", x=before), record("r", x=after))
    assert [field["name"] for field in types(reader)["x"][1]["fields"]] == ["a"]
    reader, _ = learned(record("r", x=["int", before]), record("r", x=["int", after]))
    assert columns(reader)["x"].keys() == {"member_int", "member_old", "member_new"}


def test_of_names_that_differ_by_case_only_the_one_that_the_table_has_lands() -> None:
    def left_out(*versions: Any) -> list[list[str]]:
        return [[path for path, _ in omitted_fields(writer)] for writer in learned(*versions)[1]]

    one, other = record("r", k="int", id="int"), record("r", k="int", ID="int")
    both = record("r", k="int", id="int", ID="int")
    assert left_out(one, other, both, one) == [[], ["ID"], ["ID"], []]
    assert left_out(both, one, other) == [["id", "ID"], [], ["ID"]]
    nested = [record("r", below=version | {"name": "s"}) for version in (one, both)]
    assert left_out(*nested) == [[], ["below.ID"]]
    # A column that only the source declares takes the one name of a version, whatever its case.
    declared = column_types.with_names_of(StructType(NestedField(1, "id", IntegerType(), required=False)), None)
    for version, omitted in ((other, []), (both, ["ID"])):
        writer = with_column_names(declared, writer_form(json.dumps(version)))
        assert [path for path, _ in omitted_fields(writer)] == omitted


@pytest.mark.parametrize(
    ("known", "writer", "expected"),
    [
        ("long", "int", ["null", "long"]),
        ("string", {"type": "enum", "name": "e", "symbols": ["A"]}, ["null", {"type": "enum", "symbols": ["A"]}]),
        ({"type": "enum", "name": "e", "symbols": ["A"]}, "string", ["null", "string"]),
        ({"type": "fixed", "name": "f", "size": 2}, "bytes", ["null", "bytes"]),
        ("bytes", {"type": "fixed", "name": "f", "size": 2}, ["null", {"type": "fixed", "size": 2}]),
    ],
)
def test_a_column_is_read_as_the_writers_own_type_where_avro_cannot_convert(
    known: Any, writer: Any, expected: Any
) -> None:
    reader, (_, form) = learned(record("r", x=known), record("r", x=writer))
    (found,) = types(read_as(reader, form)).values()
    assert [
        {name: part for name, part in branch.items() if name != "name"} if isinstance(branch, dict) else branch
        for branch in found
    ] == expected
