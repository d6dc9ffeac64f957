"""A registered schema as one writer's form: types written out, unions kept, logical types only where they count."""

import json
from typing import Any

import pytest

from python_ingest.schema.avro import IncompatibleSchema, not_null, optional
from python_ingest.schema.writer_form import writer_form
from tests.support.lab import record


def form(schema: Any, *references: Any) -> Any:
    return writer_form(json.dumps(schema), [json.dumps(reference) for reference in references])


def types(record_form: Any) -> dict[str, Any]:
    return {field["name"]: field["type"] for field in record_form["fields"]}


def test_a_named_type_used_twice_is_written_out_at_both_places() -> None:
    address = record("address", street="string") | {"namespace": "shop"}
    home, work = form(record("r", home=address, work="shop.address") | {"namespace": "shop"})["fields"]
    assert home["type"]["fields"] == work["type"]["fields"] == [{"name": "street", "type": "string"}]
    assert home["type"]["name"] != work["type"]["name"]


def test_a_reference_is_looked_up_in_the_namespace_it_stands_in() -> None:
    def inner(kind: str) -> Any:
        return record("inner", code=kind)

    other = record("other", first=inner("string") | {"namespace": "elsewhere"}, second="elsewhere.inner")
    schema = record("r", other=other, first=inner("int"), second="inner") | {"namespace": "a.b"}
    assert types(types(form(schema))["second"]) == {"code": "int"}
    assert types(types(types(form(schema))["other"])["second"]) == {"code": "string"}


def test_types_of_other_documents_are_known_by_their_full_names() -> None:
    address = record("address", street="string") | {"namespace": "shop"}
    customer = record("customer", home="address") | {"namespace": "shop"}
    found = form(["null", "shop.customer", "shop.address"], address, customer)
    assert [record["name"].rpartition(".")[2] for record in found[1:]] == ["customer", "address"]
    assert types(types(found[1])["home"]) == {"street": "string"}


def test_the_form_keeps_what_the_bytes_depend_on() -> None:
    schema = record("r", a=["string", "null"], b={"type": "enum", "name": "e", "symbols": ["X", "Y"]}, c="null")
    assert types(form(schema)) == {
        "a": ["string", "null"],
        "b": {"type": "enum", "name": "at.b.type", "symbols": ["X", "Y"]},
        "c": "null",
    }


def test_an_alias_that_is_another_fields_name_says_nothing() -> None:
    schema = record("r", a="int", b="int")
    schema["fields"][1]["aliases"] = ["a", "z"]
    assert [field.get("aliases") for field in form(schema)["fields"]] == [None, ["z"]]


def test_a_type_of_a_union_is_named_as_its_producer_names_it() -> None:
    union = [record("shop.OrderPaid", at="int"), {"type": "enum", "name": "Side", "symbols": ["A"]}, "string"]
    paid, side, text = form(union)
    assert (paid["name"], side["name"], text) == ("at.member_orderpaid.orderpaid", "at.member_side.side", "string")


@pytest.mark.parametrize(
    ("union", "expected"),
    [
        (["null", "int"], "int"),
        (["int"], "int"),
        (["null"], "null"),
        (["long", "null", "int"], "long"),
        (["double", "float"], "double"),
        (["null", "int", "string"], ["int", "string"]),
        (["float", "int"], ["float", "int"]),
    ],
)
def test_null_is_taken_from_a_union_and_put_back_first(union: Any, expected: Any) -> None:
    assert not_null(union) == expected
    assert optional(expected) == ["null", *(expected if isinstance(expected, list) else [expected])]


@pytest.mark.parametrize(
    "logical",
    [
        {"type": "string", "logicalType": "date"},
        {"type": "int", "logicalType": "timestamp-millis"},
        {"type": "string", "logicalType": "uuid"},
        {"type": "bytes", "logicalType": "decimal"},
        {"type": "bytes", "logicalType": "decimal", "precision": 2, "scale": 3},
        {"type": "bytes", "logicalType": "decimal", "precision": "2"},
        {"type": "fixed", "name": "f", "size": 4, "logicalType": "decimal", "precision": 10},
        {"type": "fixed", "name": "f", "size": 0, "logicalType": "decimal", "precision": 1},
    ],
)
def test_a_logical_type_that_does_not_apply_counts_for_nothing(logical: dict[str, Any]) -> None:
    plain = {name: value for name, value in logical.items() if name in ("type", "name", "size")}
    assert form(record("r", x=logical)) == form(record("r", x=plain))


def test_a_fixed_holds_as_many_digits_as_always_fit() -> None:
    fixed = {"type": "fixed", "name": "f", "size": 4, "logicalType": "decimal", "precision": 9}
    assert types(form(record("r", x=fixed)))["x"]["precision"] == 9


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ("not json", "not JSON"),
        ("[]", "always null"),
        ('"null"', "always null"),
        ("{}", "not an Avro schema"),
        ("7", "not an Avro schema"),
        ('{"type": "fixed", "name": "f"}', "not an Avro schema"),
        ('{"type": "array", "items": null}', "not an Avro schema"),
        (json.dumps(record("r", x=record("s", a="int"), y=record("s", b="int"))), "type 's' is defined twice"),
        (json.dumps(record("r", x="missing.type")), "x: type 'missing.type' is not defined"),
        (json.dumps(record("r", x=["int", "int", "string"])), "x: two types of the union"),
        (json.dumps(record("r", Code="int", code="int")), "code: differs from Code by case only"),
        ('{"type": "enum", "name": "e", "symbols": "AB"}', "not an Avro schema"),
        ('[["null", "int"]]', "a union directly in a union"),
        ('["null", "null"]', "two types of the union"),
        (json.dumps(record("r", **{"a-b": "int"})), "'a-b' is not a name"),
        (json.dumps(record("r", x={"type": "enum", "name": "e", "symbols": ["A", "1"]})), "x: '1' is not a name"),
        (json.dumps(record("r", x={"type": "enum", "name": "e", "symbols": ["A", "A"]})), "x: two of its"),
        (json.dumps(record("r", x=["int", record("a-b", y="int")])), "x: 'a-b' is not a name"),
        (json.dumps(record("r", x={"type": "fixed", "name": "f", "size": -1})), "x: the size of a fixed"),
        (json.dumps(record("r", x={"type": "fixed", "name": "f", "size": "3"})), "x: the size of a fixed"),
        (json.dumps(record("r") | {"fields": [{"name": "a", "type": "int"}] * 2}), "two of its fields"),
        (json.dumps(record("r") | {"fields": [{"name": "a", "type": "int", "aliases": "b"}]}), "not an Avro schema"),
        ("[" * 5_000 + "]" * 5_000, "not an Avro schema"),
        (json.dumps(record("r", below=record("s", x=["null", "r"]))), r"below\.x: a type that contains itself"),
    ],
)
def test_what_cannot_be_a_column_is_refused_with_the_field(schema: str, words: str) -> None:
    with pytest.raises(IncompatibleSchema, match=words):
        writer_form(schema)
