"""Avro schemas: types written out, versions merged, and what does not fit named by its field."""

import json
from itertools import permutations
from typing import Any

import pytest

from python_ingest.schemas import IncompatibleSchema, Json, merge, writer_form


def avro_record(**fields: Any) -> Json:
    return {"type": "record", "name": "r", "fields": [{"name": name, "type": kind} for name, kind in fields.items()]}


def merged(*versions: Json) -> Json:
    reader = None
    for version in versions:
        reader = merge(reader, writer_form(json.dumps(version)))
    return reader


def types(reader: Json) -> dict[str, Json]:
    return {each["name"]: each["type"] for each in reader["fields"]}


def test_a_named_type_used_twice_is_written_out_at_both_places() -> None:
    address = avro_record(street="string") | {"name": "address", "namespace": "shop"}
    schema = avro_record(home=address, work="shop.address") | {"namespace": "shop"}
    home, work = writer_form(json.dumps(schema))["fields"]
    assert home["type"]["fields"] == work["type"]["fields"] == [{"name": "street", "type": "string"}]
    assert home["type"]["name"] != work["type"]["name"]


def test_a_reference_is_looked_up_in_the_namespace_it_stands_in() -> None:
    inner = avro_record(code="int") | {"name": "inner"}
    schema = avro_record(first=inner, second="inner") | {"namespace": "a.b"}
    assert writer_form(json.dumps(schema))["fields"][1]["type"]["fields"] == [{"name": "code", "type": "int"}]


def test_the_writers_form_keeps_what_the_bytes_depend_on() -> None:
    schema = avro_record(a=["string", "null"], b={"type": "enum", "name": "e", "symbols": ["X", "Y"]}, c="int")
    assert types(writer_form(json.dumps(schema))) == {
        "a": ["string", "null"],
        "b": {"type": "enum", "name": "at.b.type", "symbols": ["X", "Y"]},
        "c": "int",
    }


def test_the_reader_holds_every_field_of_every_version_in_any_order() -> None:
    versions = [
        avro_record(id="int", price="float"),
        avro_record(id="int", code=["null", "string"], price="double"),
        avro_record(price="float", id="long", nested=avro_record(x="int") | {"name": "n"}),
    ]
    expected = {
        "id": ["null", "long"],
        "price": ["null", "double"],
        "code": ["null", "string"],
    }
    for order in permutations(versions):
        found = types(merged(*order))
        assert found.pop("nested")[1]["fields"] == [{"name": "x", "type": ["null", "int"], "default": None}]
        assert found == expected


def test_fields_are_added_inside_records_arrays_and_maps() -> None:
    def version(**fields: str) -> Json:
        place = avro_record(**fields)
        lines = {"type": "array", "items": place | {"name": "line"}}
        return avro_record(
            place=place | {"name": "p"}, lines=lines, by_name={"type": "map", "values": place | {"name": "v"}}
        )

    found = types(merged(version(a="int"), version(a="int", b="string")))
    names = [each["name"] for each in found["place"][1]["fields"]]
    assert names == ["a", "b"]
    assert [each["name"] for each in found["lines"][1]["items"][1]["fields"]] == ["a", "b"]
    assert [each["name"] for each in found["by_name"][1]["values"][1]["fields"]] == ["a", "b"]


def test_an_enum_keeps_the_symbols_of_all_versions() -> None:
    def version(*symbols: str) -> Json:
        return avro_record(side={"type": "enum", "name": "side", "symbols": list(symbols)})

    assert types(merged(version("BUY"), version("SELL", "BUY")))["side"][1]["symbols"] == ["BUY", "SELL"]


DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}
MILLIS = {"type": "long", "logicalType": "timestamp-millis"}


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        ("string", "int", "x: string cannot become int"),
        ("int", "string", "x: int cannot become string"),
        ("int", "double", "x: int cannot become double"),
        ("long", MILLIS, "x: long cannot become timestamp-millis"),
        (
            MILLIS,
            {"type": "long", "logicalType": "timestamp-micros"},
            "timestamp-millis cannot become timestamp-micros",
        ),
        (DECIMAL, DECIMAL | {"scale": 4}, r"x: decimal\(10,2\) cannot become decimal\(10,4\)"),
        ("int", avro_record(a="int") | {"name": "n"}, "x: int cannot become record"),
        (
            {"type": "array", "items": "int"},
            {"type": "array", "items": "string"},
            r"x\.element: int cannot become string",
        ),
    ],
)
def test_what_one_column_cannot_hold_is_refused_with_the_field(before: Json, after: Json, words: str) -> None:
    with pytest.raises(IncompatibleSchema, match=words):
        merged(avro_record(id="int", x=before), avro_record(id="int", x=after))


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ("not json", "not JSON"),
        ("[]", "only a union of one type and null"),
        (json.dumps(avro_record(x=["int", "string"])), "x: only a union of one type and null"),
        (json.dumps(avro_record(x="null")), "x: type 'null' cannot be a column"),
        (json.dumps(avro_record(x="missing.type")), "x: type 'missing.type' cannot be a column"),
        (json.dumps(avro_record(x=["null", "r"])), "x: a type that contains itself"),
        (json.dumps(avro_record(Code="int", code="int")), "code: differs from Code by case only"),
        (json.dumps(avro_record(x=DECIMAL | {"precision": 39})), "x: a decimal column has 1 to 38 digits"),
        ("{}", "not an Avro schema"),
    ],
)
def test_what_cannot_be_a_column_is_refused(schema: str, words: str) -> None:
    with pytest.raises(IncompatibleSchema, match=words):
        writer_form(schema)


def test_fields_that_differ_by_case_only_across_versions_are_refused() -> None:
    with pytest.raises(IncompatibleSchema, match="ID: differs from id by case only"):
        merged(avro_record(id="int"), avro_record(ID="int"))
