"""Versions merged in any order, and each writer's bytes read in the shape of the columns."""

import json
import random
from functools import reduce
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


def types(columns: IcebergType) -> dict[str, str]:
    """Return the fields of a struct with their types in Spark."""
    return {name: in_spark(column) for name, column in children(columns).items()}


def plain(column: IcebergType) -> Any:
    """Return a type without the order of fields and the name of a renamed one."""
    if isinstance(column, StructType):
        return {name.replace("after", "before"): plain(part) for name, part in children(column).items()}
    if isinstance(column, ListType):
        return [plain(column.element_type)]
    return plain(column.value_type) if isinstance(column, MapType) else str(column)


def test_the_columns_are_the_same_whichever_version_is_read_first() -> None:
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


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_a_field_keeps_the_name_that_its_column_has(order: tuple[int, ...]) -> None:
    versions = [
        record("r", a="int"),
        aliased(record("r", b="long"), b=["a"]),
        aliased(record("r", c="int"), c=["b", "a"]),
    ]
    columns, writers = merged(*(versions[index] for index in order))
    first = "abc"[order[0]]
    assert types(columns) == {first: "bigint"}
    assert [list(fields(writer)) for writer in writers] == [[first]] * 3


def test_a_field_dropped_and_added_again_is_one_column() -> None:
    columns, _ = merged(record("r", a="int", b="int"), record("r", a="int"), record("r", b=["null", "long"], a="int"))
    assert types(columns) == {"a": "int", "b": "bigint"}


def test_an_alias_between_two_columns_joins_nothing() -> None:
    columns, (_, _, third) = merged(record("r", a="int"), record("r", b="int"), aliased(record("r", b="int"), b=["a"]))
    assert (list(types(columns)), list(fields(third))) == (["a", "b"], ["b"])


def test_a_field_that_holds_nothing_gives_its_aliases_to_no_column() -> None:
    emptied = aliased(record("r", d="null", k="int"), d=["b"])
    columns, _ = merged(record("r", d="double", k="int"), emptied, record("r", k="int", b="string"))
    assert types(columns).keys() == {"d", "k", "b"}


def test_two_fields_of_one_column_are_refused() -> None:
    versions = [record("r", a="int"), aliased(record("r", b="int"), b=["a"]), record("r", a="int", b="int")]
    with pytest.raises(IncompatibleSchema, match="b: it and a would be the one column a"):
        merged(*versions)
    with pytest.raises(IncompatibleSchema, match="c: its aliases name the columns a and b"):
        merged(record("r", a="int", b="int"), aliased(record("r", c="int"), c=["a", "b"]))


def test_a_renamed_type_changes_nothing_outside_a_union() -> None:
    before, after = record("Old", a="int"), record("New", a="int")
    columns, _ = merged(record("r", x=before), record("r", x=after))
    assert types(columns) == {"x": "struct<`a`: int>"}
    columns, _ = merged(record("r", x=["int", before]), record("r", x=["int", after]))
    assert plain(columns)["x"].keys() == {"member_int", "member_old", "member_new"}


def test_of_names_that_differ_by_case_only_the_one_that_the_table_has_lands() -> None:
    def omitted(*versions: Any) -> list[list[str]]:
        return [[path for path, _ in omitted_fields(writer)] for writer in merged(*versions)[1]]

    one, other = record("r", k="int", id="int"), record("r", k="int", ID="int")
    both = record("r", k="int", id="int", ID="int")
    assert omitted(one, other, both, one) == [[], [], ["ID"], []]
    assert omitted(both, one, other) == [["id", "ID"], [], []]
    reasons = [{why for _, why in omitted_fields(writer)} for writer in merged(both, one, both)[1]]
    assert reasons == [{NEW_TWIN}, set(), {CASE_TWIN}]
    nested = [record("r", below=version | {"name": "s"}) for version in (one, both)]
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
def test_a_column_is_read_as_the_writers_own_type_where_avro_cannot_convert(
    known: Any, writer: Any, expected: Any
) -> None:
    columns, (_, form) = merged(record("r", x=known), record("r", y="int", **({"x": writer} if writer else {})))
    read_type = not_null(fields(reader_schema(columns, form))["x"]["type"])
    if isinstance(read_type, list):
        assert list(map(avro_type, read_type)) == expected
    else:
        unnamed = (
            {name: part for name, part in read_type.items() if name != "name"}
            if isinstance(read_type, dict)
            else read_type
        )
        assert unnamed == expected
