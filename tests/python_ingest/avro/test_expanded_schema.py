"""A registered schema as one expanded schema: types written out, unions unchanged, logical types where they count."""

import io
import json
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import fastavro
import pytest

from python_ingest.avro.bounded import bounded
from python_ingest.avro.expanded_schema import expand_schema, fingerprint, full_name
from python_ingest.avro.types import omitted_fields
from python_ingest.avro.walk import IncompatibleSchema, not_null, optional
from python_ingest.bronze.column_types import of_avro, reader_schema
from python_ingest.declare.spark_types import children
from python_ingest.kafka.message import HEADER_BYTES
from python_ingest.verify.avro_values import Reader
from tests.support.registry_avro import encode
from tests.support.topic_fixture import record


def form(schema: Any, *references: Any) -> Any:
    return expand_schema(json.dumps(schema), [json.dumps(reference) for reference in references])


def types(record_form: Any) -> dict[str, Any]:
    return {field["name"]: field["type"] for field in record_form["fields"]}


def test_a_named_type_used_twice_is_written_out_at_both_places() -> None:
    address = record("address", street="string") | {"namespace": "shop"}
    home, work = form(record("r", home=address, work="shop.address") | {"namespace": "shop"})["fields"]
    assert home["type"]["fields"] == work["type"]["fields"] == [{"name": "street", "type": "string"}]
    assert home["type"]["name"] != work["type"]["name"]


def test_a_reference_is_looked_up_in_its_namespace() -> None:
    def inner(kind: str) -> Any:
        return record("inner", code=kind)

    other = record("other", first=inner("string") | {"namespace": "elsewhere"}, second="elsewhere.inner")
    schema = record("r", other=other, first=inner("int"), second="inner") | {"namespace": "a.b"}
    assert types(types(form(schema))["second"]) == {"code": "int"}
    assert types(types(types(form(schema))["other"])["second"]) == {"code": "string"}


def test_types_of_other_documents_are_known_by_their_full_names() -> None:
    address = record("address", street="string") | {"namespace": "shop"}
    customer = record("customer", home="address") | {"namespace": "shop"}
    union = form(["null", "shop.customer", "shop.address"], address, customer)
    assert [record["name"].rpartition(".")[2] for record in union[1:]] == ["customer", "address"]
    assert types(types(union[1])["home"]) == {"street": "string"}


def test_the_form_keeps_what_the_bytes_depend_on() -> None:
    schema = record("r", a=["string", "null"], b={"type": "enum", "name": "e", "symbols": ["X", "Y"]}, c="null")
    enum = {"type": "enum", "name": "at.b.type", "symbols": ["X", "Y"]}
    assert types(form(schema)) == {"a": ["string", "null"], "b": enum, "c": "null"}


def test_an_error_is_a_record() -> None:
    fields = record("e", a="int", again=["null", "e"])
    for place in (lambda kind: kind, lambda kind: ["null", kind], lambda kind: record("r", x=kind, y=["e", "int"])):
        assert form(place(fields | {"type": "error"})) == form(place(fields))
    texts = [json.dumps(record("r", x=record("e", a="int") | {"type": kind})) for kind in ("error", "record")]
    readers = [Reader(text, [], None, None, {}) for text in texts]
    body = encode(json.loads(texts[1]), 7, {"x": {"a": 1}})
    assert readers[0].read(body) == readers[1].read(body) == {"x": {"a": 1}}


def test_an_alias_that_is_another_fields_name_is_ignored() -> None:
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
        ('{"type": "enum", "name": "e", "symbols": "AB"}', "not an Avro schema"),
        ('[["null", "int"]]', "a union directly in a union"),
        ('["null", "null"]', "two types of the union"),
        (json.dumps(record("r", **{"a-b": "int"})), "'a-b' is not a name"),
        (json.dumps(record("r", x={"type": "enum", "name": "e", "symbols": ["A", "1"]})), "x: '1' is not a name"),
        (json.dumps(record("r", x={"type": "enum", "name": "e", "symbols": ["A", "A"]})), "x: two of its"),
        (json.dumps(record("r", x=["int", record("a-b", y="int")])), "x: 'a-b' is not a name"),
        (json.dumps(record("r", x={"type": "fixed", "name": "f", "size": -1})), "x: the size of a fixed"),
        (json.dumps(record("r", x={"type": "fixed", "name": "f", "size": "3"})), "x: the size of a fixed"),
        (json.dumps(record("r", x={"type": "fixed", "name": "f", "size": 2**26 + 1})), "x: the size of a fixed"),
        (json.dumps(record("r") | {"fields": [{"name": "a", "type": "int"}] * 2}), "two of its fields"),
        (json.dumps(record("r") | {"fields": [{"name": "a", "type": "int", "aliases": "b"}]}), "not an Avro schema"),
        ("[" * 5_000 + "]" * 5_000, "not an Avro schema"),
        (json.dumps({"type": "array", "items": record("r", next="r") | {"fields": []}}), "element: nothing but nulls"),
        (json.dumps({"type": "bytes", "logicalType": "decimal", "precision": 50}), "a decimal column has 1 to 38"),
        (json.dumps(["int", "string", {"type": "array", "items": "null"}]), "member_array.element: nothing but nulls"),
    ],
)
def test_what_is_not_avro_or_cannot_be_a_column_is_refused(schema: str, words: str) -> None:
    with pytest.raises(IncompatibleSchema, match=words):
        expand_schema(schema)


# More digits than a column of decimals has.
DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 50}


def around(name: str, **more: Any) -> Any:
    """Return a record with fields of all types that no column can have, and others before, between and behind them."""
    return record(
        name,
        number=DECIMAL,
        nulls={"type": "array", "items": "null"},
        id="int",
        by_name={"type": "map", "values": DECIMAL},
        either=["null", "int", {"type": "array", "items": ["null", DECIMAL]}],
        ticks=[{"type": "int", "logicalType": "time-millis"}, "long"],
        text="string",
        self=["null", name],
        selves={"type": "array", "items": name},
        **more,
    )


LANDED = {"id": 7, "text": "t"}
ODD = {"number": Decimal(10**49), "nulls": [None], "by_name": {"a": Decimal(1)}, "either": [Decimal(-3), None]}
ODD |= {"ticks": 5, "self": None, "selves": []}


@pytest.mark.parametrize("of_same_encoding", [lambda form: form, bounded])
def test_a_field_without_column_costs_itself_wherever_it_is(of_same_encoding: Callable[[Any], Any]) -> None:
    schema = around("outer", below=around("below"), each={"type": "array", "items": around("item")}, last="int")
    value = ODD | LANDED
    below = value | {"self": value, "selves": [value] * 2, "either": 3}
    writer = form(schema)
    omitted = {place + name for place in ("", "below.", "each.") for name in ODD}
    assert {path for path, _ in omitted_fields(writer)} == omitted
    reader = fastavro.parse_schema(reader_schema(of_avro(writer), writer))
    body = encode(schema, 7, value | {"below": below, "each": [below, value], "last": 9})[HEADER_BYTES:]
    decoded = fastavro.schemaless_reader(io.BytesIO(body), fastavro.parse_schema(of_same_encoding(writer)), reader)
    assert decoded == LANDED | {"below": LANDED, "each": [LANDED] * 2, "last": 9}


def test_records_that_contain_each_other_are_omitted() -> None:
    other = record("b", a=["null", "a"])
    writer = form(record("a", id="int", b=other))
    assert list(omitted_fields(writer)) == [("b.a", "a type that contains itself cannot be a column")]
    # What is left of b is no column.
    assert list(children(of_avro(writer))) == ["id"]


def test_a_schema_of_too_many_leaves_is_refused_early() -> None:
    def doubled(leaf: Any, times: int) -> Any:
        for number in range(times):
            leaf = record(f"r{number}", a=leaf, b=f"r{number - 1}" if number else "int")
        return leaf

    for leaf in ("int", {"type": "enum", "name": "e", "symbols": ["A"]}, record("empty")):
        assert types(form(doubled(leaf, 12)))
        with pytest.raises(IncompatibleSchema, match="type 'r29' has more than 5,000 leaves"):
            form(doubled(leaf, 30))
    # Twelve records, each of which has all twelve: there are millions of paths between them.
    names = [f"t{number}" for number in range(12)]
    nets = [record(name, **dict(zip(names, names, strict=True))) for name in names]
    with pytest.raises(IncompatibleSchema, match="type 't0' has more than 5,000 leaves"):
        form("t0", *nets)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ('{"type": "record", "name": "sale", "namespace": "shop", "fields": []}', "shop.sale"),
        ('{"type": "record", "name": "till.sale", "namespace": "shop", "fields": []}', "till.sale"),
        ('"string"', "string"),
        ('{"type": "map", "values": "int"}', ""),
        ("{", ""),
    ],
)
def test_a_schemas_full_name_is_avros(text: str, name: str) -> None:
    assert full_name(text) == name


def test_a_fingerprint_follows_what_the_bytes_mean() -> None:
    def fingerprinted(schema: Any) -> str:
        return fingerprint(json.dumps(schema))

    at = {"type": "long", "logicalType": "timestamp-millis"}
    sale = record("sale", id="int", at=at)
    same = json.loads(json.dumps(sale))
    same["doc"] = "sold"
    same["fields"][0] |= {"default": 0, "aliases": ["number"]}
    assert fingerprinted(sale) == fingerprinted(same)
    # Tables have it as a property.
    assert fingerprinted(sale)[:16] == "15e51120410c585f"
    others = [record("sale", at=at, id="int"), record("sale", id="long", at=at), record("sale", id="int", at="long")]
    fingerprints = {*map(fingerprinted, [sale, *others, record("sale", nr="int", at=at), "int", "nothing"])}
    assert len(fingerprints) == 7


def test_a_long_fixed_holds_the_digits_that_avro_counts() -> None:
    for size, digits in ((1, 2), (4, 9), (9, 21), (16, 38), (5_000, 38), (60_000_000, 38)):
        for precision in (digits, digits + 1):
            written = {"type": "fixed", "name": "f", "size": size, "logicalType": "decimal", "precision": precision}
            form = expand_schema(json.dumps(record("r", x=written, y="int")))
            is_decimal = "logicalType" in form["fields"][0]["type"]
            assert is_decimal == (precision == digits), (size, precision)
