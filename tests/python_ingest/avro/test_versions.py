"""Versions merged in any order, and each writer's bytes read in the shape of the columns."""

import json
import random
from functools import partial, reduce
from itertools import permutations
from typing import Any

import fastavro
import pytest
from pyiceberg.types import IcebergType, ListType, MapType, StructType

from python_ingest.avro.expanded_schema import expand_schema
from python_ingest.avro.types import omitted_fields
from python_ingest.avro.versions import CASE_TWIN, NEW_TWIN, Versions, with_column_names
from python_ingest.avro.walk import IncompatibleSchema, avro_type, fields, not_null
from python_ingest.bronze.column_types import exact, landed_record, of_avro, reader_schema, widened_columns
from python_ingest.bronze.schema_state import SchemaState
from python_ingest.declare.spark_types import children, in_spark, of_spark
from tests.support.avro_versions import VARIANTS, a_version, aliased, merged
from tests.support.topic_fixture import record

r = partial(record, "r")
# Neither of two new fields whose names differ by case alone has a column.
TWINS = record("twins", a="int", A="int")


def types(columns: IcebergType) -> dict[str, str]:
    """Return the fields of a struct with their types in Spark."""
    return {name: in_spark(column) for name, column in children(columns).items()}


def array(items: Any) -> dict[str, Any]:
    return {"type": "array", "items": items}


def a_map(values: Any) -> dict[str, Any]:
    return {"type": "map", "values": values}


def plain(column: IcebergType) -> Any:
    """Return a type without the order of fields and the name of a renamed one."""
    if isinstance(column, StructType):
        return {name.replace("after", "before"): plain(part) for name, part in children(column).items()}
    if isinstance(column, ListType):
        return [plain(column.element_type)]
    return plain(column.value_type) if isinstance(column, MapType) else str(column)


def test_columns_do_not_depend_on_the_order_of_versions() -> None:
    rng = random.Random(20261121)
    for _ in range(15):
        versions = [a_version(rng) for _ in range(3)]
        outcomes = []
        for order in permutations(versions):
            columns, writers = merged(*order)
            outcomes.append(plain(columns))
            for again in permutations(writers):
                reached = reduce(lambda state, form: state.with_writer("value", 1, form), again, SchemaState())
                assert plain(reached.columns) == outcomes[0]
                assert Versions.of(again).types.keys() == Versions.of(writers).types.keys()
        assert all(outcome == outcomes[0] for outcome in outcomes)


def paths(column: IcebergType, path: str = "") -> list[str]:
    """Return every path of a type, in order."""
    below = [path_below for name, part in children(column).items() for path_below in paths(part, f"{path}.{name}")]
    return [path, *below]


DECLARED = (
    "struct<place: struct<text: string, more: struct<x: date>>, later: map<string, decimal(9, 2)>, NUMBER: bigint>"
)


def test_every_version_is_read_in_the_shape_of_the_columns() -> None:
    rng = random.Random(20261124)
    for _ in range(50):
        columns, writers = merged(*(a_version(rng) for _ in range(4)))
        columns = widened_columns(columns, of_spark(DECLARED))
        for writer in writers:
            reader = reader_schema(columns, landed_record("value", writer))
            assert paths(of_avro(reader)) == paths(columns)
            # Where it is not the column's, the type is the writer's, and narrower.
            assert widened_columns(exact(columns), of_avro(reader)) == exact(columns)
            fastavro.parse_schema(json.loads(json.dumps(reader)))


def test_a_field_keeps_the_name_that_its_column_has() -> None:
    first, second = r(a="int"), aliased(r(b="long"), b=["a"])
    for order in permutations([first, second, aliased(r(c="int"), c=["b", "a"])]):
        columns, writers = merged(*order)
        name = order[0]["fields"][0]["name"]
        assert types(columns) == {name: "bigint"}
        assert [list(fields(writer)) for writer in writers] == [[name]] * 3


OLD, NEW = record("Old", a="int"), record("New", a="int")


@pytest.mark.parametrize(
    ("versions", "columns"),
    [
        # Dropped and added again.
        ([r(a="int", b="int"), r(a="int"), r(b=["null", "long"], a="int")], {"a": "int", "b": "bigint"}),
        # An alias between two columns.
        ([r(a="int"), r(b="int"), aliased(r(b="long"), b=["a"])], {"a": "int", "b": "bigint"}),
        # Aliases of a field that holds nothing.
        (
            [r(d="double"), aliased(r(d="null", k="int"), d=["b"]), r(b="string")],
            {"d": "double", "k": "int", "b": "string"},
        ),
        # Another name of a type, also in a union.
        ([r(x=OLD), r(x=NEW)], {"x": "struct<`a`: int>"}),
        (
            [r(x=["int", OLD]), r(x=["int", NEW])],
            {"x": "struct<`member_int`: int, `member_old`: struct<`a`: int>, `member_new`: struct<`a`: int>>"},
        ),
        # What is made of nothing but fields without a column has none, however deep.
        ([r(k="int", x=array(TWINS))], {"k": "int"}),
        ([r(k="int", x=a_map(["null", TWINS]))], {"k": "int"}),
        ([r(k="int", x=array(record("s", y=["null", a_map(array(TWINS))])))], {"k": "int"}),
        ([r(x=TWINS | {"fields": TWINS["fields"][:1]}), r(x=TWINS)], {"x": "struct<`a`: int>"}),
        ([r(k="int", x=array(TWINS)), r(x=array(record("s", b="int")))], {"k": "int", "x": "array<struct<`b`: int>>"}),
    ],
)
def test_versions_land_in_these_columns(versions: list[Any], columns: dict[str, str]) -> None:
    assert types(merged(*versions)[0]) == columns


def test_two_fields_of_one_column_are_refused() -> None:
    with pytest.raises(IncompatibleSchema, match="b: it and a would be the one column a"):
        merged(r(a="int"), aliased(r(b="int"), b=["a"]), r(a="int", b="int"))
    with pytest.raises(IncompatibleSchema, match="c: its aliases name the columns a and b"):
        merged(r(a="int", b="int"), aliased(r(c="int"), c=["a", "b"]))


def test_of_names_that_differ_by_case_the_known_one_lands() -> None:
    def omitted(*versions: Any) -> list[list[str]]:
        return [[path for path, _ in omitted_fields(writer)] for writer in merged(*versions)[1]]

    one, other = r(k="int", id="int"), r(k="int", ID="int")
    both = r(k="int", id="int", ID="int")
    assert omitted(one, other, both, one) == [[], [], ["ID"], []]
    assert omitted(both, one, other) == [["id", "ID"], [], []]
    reasons = [{why for _, why in omitted_fields(writer)} for writer in merged(both, one, both)[1]]
    assert reasons == [{NEW_TWIN}, set(), {CASE_TWIN}]
    nested = [r(below=version | {"name": "s"}) for version in (one, both)]
    assert omitted(*nested) == [[], ["below.ID"]]
    # A column that only the source declares takes the one name of a version, whatever its case.
    declared = of_spark("struct<id: int>")
    for version, omitted in ((other, []), (both, ["ID"])):
        writer = with_column_names(Versions(), expand_schema(json.dumps(version)), declared)
        assert [path for path, _ in omitted_fields(writer)] == omitted


def test_a_field_whose_alias_is_declared_has_the_declared_name() -> None:
    renamed = record("sale", orderid="int", place=aliased(record("p", postcode="string"), postcode=["zip"]))
    declared = of_spark("struct<order_id: bigint, place: struct<zip: string>>")
    schema = json.dumps(aliased(renamed, orderid=["order_id"]))
    writer = with_column_names(Versions(), expand_schema(schema), declared)
    assert list(fields(writer)) == ["order_id", "place"]
    assert list(fields(not_null(fields(writer)["place"]["type"]))) == ["zip"]


ENUM, FIXED = {"type": "enum", "name": "e", "symbols": ["A"]}, {"type": "fixed", "name": "f", "size": 2}


@pytest.mark.parametrize(
    ("known", "writer", "expected"),
    [
        ("long", "int", "long"),
        ("string", ENUM, {"type": "enum", "symbols": ["A"]}),
        (ENUM, "string", "string"),
        (FIXED, "bytes", "bytes"),
        ("bytes", FIXED, {"type": "fixed", "size": 2}),
        ("long", None, "long"),
        (VARIANTS["at"][0], None, {"type": "long", "logicalType": "timestamp-micros"}),
        (["int", ENUM, FIXED, "string"], ["int", "string"], ["int", "enum", "fixed", "string"]),
        (["int", record("s", a="int")], ["int", "string"], ["int", "record", "string"]),
        (["string", VARIANTS["price"][1]], ["string", "int"], ["string", "fixed", "int"]),
    ],
)
def test_a_type_that_avro_cannot_convert_is_read_as_written(known: Any, writer: Any, expected: Any) -> None:
    columns, (_, form) = merged(r(x=known), r(y="int", **({"x": writer} if writer else {})))
    read_type = not_null(fields(reader_schema(columns, form))["x"]["type"])
    if isinstance(read_type, list):
        read_type = [avro_type(branch) for branch in read_type]
    elif isinstance(read_type, dict):
        read_type = {key: part for key, part in read_type.items() if key != "name"}
    assert read_type == expected
