"""Column types: Spark's text to Iceberg and back, and the one type that holds the values of two."""

import pytest

from python_ingest.avro.walk import IncompatibleSchema
from python_ingest.bronze.column_types import widened
from python_ingest.declare.spark_types import SPARK_NAMES, in_spark, of_spark

NESTED = "struct<`a b`: array<map<string, struct<`c`: decimal(38, 0), `d`: timestamp_ntz>>>, `e`: decimal(10, 2)>"


@pytest.mark.parametrize("text", [*SPARK_NAMES.values(), NESTED])
def test_spark_reads_what_is_written_for_it(text: str) -> None:
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


@pytest.mark.parametrize(
    ("narrow", "wide", "both"),
    [
        *((text, text, text) for text in SPARK_NAMES.values()),
        ("int", "bigint", "bigint"),
        ("float", "double", "double"),
        ("decimal(10, 2)", "decimal(20, 2)", "decimal(20, 2)"),
        ("struct<a: int, b: date>", "struct<c: string, B: date, A: bigint>", "struct<a: bigint, b: date, c: string>"),
        ("array<struct<a: float>>", "array<struct<b: int, a: double>>", "array<struct<a: double, b: int>>"),
        ("map<string, array<int>>", "map<string, array<bigint>>", "map<string, array<bigint>>"),
    ],
)
def test_the_widened_type_holds_both(narrow: str, wide: str, both: str) -> None:
    expected = of_spark(both)
    assert widened(of_spark(narrow), of_spark(wide)) == expected
    # A type that holds another stays.
    assert widened(expected, of_spark(narrow)) == widened(expected, of_spark(wide)) == expected


@pytest.mark.parametrize(
    ("current", "other", "path"),
    [
        ("int", "string", "x"),
        ("bigint", "double", "x"),
        ("timestamp", "timestamp_ntz", "x"),
        ("decimal(10, 2)", "decimal(10, 3)", "x"),
        ("decimal(38, 0)", "bigint", "x"),
        ("array<int>", "int", "x"),
        ("array<struct<a: map<string, int>>>", "array<struct<a: map<string, date>>>", "x.element.a.value"),
        # A struct whose field is named like the part of a map or array is neither.
        ("struct<value: double>", "map<string, double>", "x"),
        ("struct<element: string>", "array<string>", "x"),
    ],
)
def test_types_that_no_column_holds_are_named_by_place(current: str, other: str, path: str) -> None:
    columns = [of_spark(f"struct<x: {text}>") for text in (current, other)]
    for pair in (columns, columns[::-1]):
        with pytest.raises(IncompatibleSchema, match="does not fit the column's type") as caught:
            widened(*pair)
        assert caught.value.field == path
