"""Column types: Spark's text to Iceberg and back, and the one type that holds the values of two."""

import random

import pytest
from pyiceberg.types import DecimalType, IcebergType, ListType, MapType, StructType

from python_ingest.avro.walk import IncompatibleSchema
from python_ingest.bronze.column_types import widened
from python_ingest.declare.spark_types import SPARK_NAMES, children, in_spark, of_spark, struct, with_children

LEAVES = [*SPARK_NAMES.values(), "decimal(10, 2)", "decimal(20, 2)", "decimal(38, 0)"]


def a_type(rng: random.Random, depth: int = 3) -> str:
    match rng.choice(["leaf", "struct", "array", "map"] if depth else ["leaf"]):
        case "struct":
            names = rng.sample("abcd", rng.randint(1, 3))
            return f"struct<{', '.join(f'`{name}`: {a_type(rng, depth - 1)}' for name in names)}>"
        case "array":
            return f"array<{a_type(rng, depth - 1)}>"
        case "map":
            return f"map<string, {a_type(rng, depth - 1)}>"
    return rng.choice(LEAVES)


def a_wider(rng: random.Random, column: IcebergType) -> IcebergType:
    """Return a type with more fields, digits or bits here and there."""
    wider = {name: a_wider(rng, child) for name, child in children(column).items()}
    match column:
        case StructType():
            number = rng.randrange(len(LEAVES))
            more = {f"more_{number}": of_spark(LEAVES[number])} if rng.random() < 0.5 else {}
            return struct(dict(rng.sample([*wider.items(), *more.items()], len(wider) + len(more))))
        case ListType() | MapType():
            return with_children(column, wider)
        case DecimalType():
            return DecimalType(min(38, column.precision + rng.randrange(9)), column.scale)
    return of_spark({"int": "bigint", "float": "double"}.get(in_spark(column), in_spark(column)))


def leaves(column: IcebergType, path: str = "") -> dict[str, str]:
    match column:
        case StructType():
            below = [leaves(field.field_type, f"{path}.{field.name}") for field in column.fields]
            return {name: text for part in below for name, text in part.items()}
        case ListType():
            return leaves(column.element_type, f"{path}.element")
        case MapType():
            return leaves(column.value_type, f"{path}.value")
    return {path: in_spark(column)}


def test_spark_reads_what_is_written_for_it() -> None:
    rng = random.Random(20261122)
    for _ in range(300):
        text = a_type(rng)
        assert in_spark(of_spark(text)) == text
    assert of_spark("STRUCT<a INT, `b c`: long>") == of_spark("struct<a: int, `b c`: bigint>")


@pytest.mark.parametrize(
    "text",
    [
        *("", "None", "foo", "varchar(5)", "tinyint", "interval", "decimal", "decimal(39, 0)", "decimal(3, 5)"),
        *("array", "array<", "struct<>", "struct<int>", "struct<a: array<void>>", "map<int, int>", "map<string>"),
    ],
)
def test_what_no_column_can_be_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not a type|has a field without|has keys"):
        of_spark(text)


def test_the_widened_type_holds_both_and_a_type_that_holds_another_stays() -> None:
    rng = random.Random(20261122)
    for _ in range(300):
        narrow = of_spark(a_type(rng))
        wide = a_wider(rng, narrow)
        assert widened(wide, narrow) == wide
        assert leaves(widened(narrow, wide)) == leaves(wide)
        other = a_wider(rng, narrow)
        assert leaves(widened(wide, other)).keys() == {**leaves(wide), **leaves(other)}.keys()


@pytest.mark.parametrize(
    ("struct_like", "other"),
    [("struct<value: double>", "map<string, double>"), ("struct<element: string>", "array<string>")],
)
def test_a_struct_whose_field_is_named_like_the_part_of_a_map_or_array_is_neither(struct_like: str, other: str) -> None:
    structure, another = of_spark(struct_like), of_spark(other)
    with pytest.raises(IncompatibleSchema):
        widened(structure, another)
    with pytest.raises(IncompatibleSchema):
        widened(another, structure)


def test_two_types_that_no_column_holds_are_named_with_their_place() -> None:
    rng = random.Random(20261122)
    clashes = 0
    for _ in range(300):
        kind, other = (struct({"x": of_spark(a_type(rng))}) for _ in range(2))
        try:
            both = leaves(widened(kind, other))
        except IncompatibleSchema as refused:
            clashes += 1
            assert refused.field.partition(".")[0] == "x"
            assert "does not fit the column's type" in refused.reason
            with pytest.raises(IncompatibleSchema):
                widened(other, kind)
        else:
            assert both.keys() == {**leaves(kind), **leaves(other)}.keys()
    assert 100 < clashes < 300
