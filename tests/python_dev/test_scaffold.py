"""The models that a scaffold writes: columns, classes, and what is refused."""

import json
import random
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from python_common.config.environment import PROJECT_ROOT
from python_common.errors import UserError
from python_dbt.pii import masks
from python_dev.scaffold import columns, files
from python_dev.scaffold.columns import StagingColumn
from python_dev.scaffold.schema import SourceField
from python_ingest.declare.spark_types import children
from python_ingest.declare.topics import read_declarations
from tests.support.scaffolded import TIME, new, topic_of
from tests.support.schemas import LEAVES, random_record
from tests.support.seeds import SEED
from tests.support.small_project import copy_project
from tests.support.topic_fixture import record

COLOUR = {"type": "enum", "name": "Colour", "symbols": ["NO", "on", "RED"]}


def columns_of(avro: Any, **classes: str) -> list[StagingColumn]:
    return columns.columns(topic_of(avro), classes, {})


@pytest.fixture
def project(tmp_path: Path) -> Path:
    copy_project(tmp_path)
    return tmp_path


def test_an_unclassified_column_is_in_no_mart() -> None:
    topic = new(record("one", **{f"field{number}": ["null", avro] for number, avro in enumerate(LEAVES)}))
    assert {one.pii for one in topic.columns} == {"unclassified"}
    assert {output.name for output in topic.outputs} == {"product_return_key", "recorded_at", "is_event_time_valid"}
    assert not masks.load().classes["unclassified"]


@pytest.mark.parametrize(
    ("avro", "landed", "as_is"),
    [
        ("boolean", "boolean", "boolean"),
        ("int", "int", "bigint"),
        ("long", "bigint", "bigint"),
        ("float", "float", "decimal(28,6)"),
        ("double", "double", "decimal(28,6)"),
        ("string", "string", "string"),
        (COLOUR, "string", "string"),
        (TIME, "timestamp", "timestamp"),
        ({"type": "int", "logicalType": "date"}, "date", "date"),
        ({"type": "long", "logicalType": "local-timestamp-micros"}, "timestamp_ntz", "timestamp"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}, "decimal(9,2)", "decimal(9,2)"),
    ],
)
def test_a_file_has_the_type_of_a_column(avro: Any, landed: str, as_is: str) -> None:
    [column] = columns_of(record("one", a=avro), a="none")
    assert (column.leaf.type, column.output.type) == (landed, as_is)
    # An error of a cast would quote personal data; the proof knows that a cast to bigint has none.
    [dropped] = columns_of(record("one", a=avro))
    assert dropped.type == (as_is if landed == "int" else landed)


@pytest.mark.parametrize("avro", LEAVES, ids=json.dumps)
def test_a_class_needs_a_mask_that_takes_the_type(avro: Any) -> None:
    for pii in masks.load().classes:
        [leaf] = topic_of(record("one", birth_year=avro)).leaves
        if columns.unused(topic_of(record("one", birth_year=avro))):
            continue
        if pii in columns.offered(leaf.type):
            assert [one.pii for one in columns_of(record("one", birth_year=avro), birth_year=pii)] == [pii]
        else:
            with pytest.raises(UserError, match=f"No mask of the class {pii} takes birth_year") as raised:
                columns_of(record("one", birth_year=avro), birth_year=pii)
            assert pii not in str(raised.value.remedy).split(", ")


@pytest.mark.parametrize("seed", range(50))
def test_each_field_is_a_column_or_listed_with_a_reason(seed: int) -> None:
    topic = topic_of(random_record(random.Random(f"{SEED}-{seed}")))
    payload = columns.columns(topic, {}, {})
    assert [one.leaf.path for one in payload] == [
        leaf.path for leaf in topic.leaves if leaf.path not in columns.unused(topic)
    ]
    assert {leaf.type.split("<")[0] for leaf in topic.leaves if leaf.path in columns.unused(topic)} <= {
        *("array", "map", "binary")
    }
    names = [one.name for one in payload]
    assert len({*names}) == len(names)
    assert all(re.fullmatch(r"[a-z][a-z0-9_]*", name) for name in names)
    assert not {*names} & (columns.sql_words() | columns.RESERVED)


def test_leaves_of_records_and_unions_are_columns() -> None:
    person = record("person", **{"e-mail".replace("-", ""): ["null", "string"], "photo": "bytes"})
    either = ["int", record("money", amount="double")]
    topic = topic_of(record("one", customer=person, lines={"type": "array", "items": person["name"]}, either=either))
    payload = columns.columns(topic, {}, {})
    assert {one.leaf.path: (one.name, one.leaf.is_optional) for one in payload} == {
        "customer.email": ("customer_email", True),
        "either.member_int": ("either_member_int", True),
        "either.member_money.amount": ("either_member_money_amount", True),
    }
    assert columns.unused(topic).keys() == {"customer.photo", "lines"}


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"order": "int", "Date": "string", "left": "string"}, ["order_value", "date_value", "left_value"]),
        ({"orderId": "int", "order_id": "int"}, ["order_id_value", "order_id"]),
        ({"order": "int", "order_value": "int"}, ["order_value_value", "order_value"]),
        ({"a": record("a", b="int"), "a_b": "int"}, ["a_b_value", "a_b"]),
        (
            {"kafka": record("kafka", offset="int"), "kafka_offset": "long"},
            ["kafka_offset_value", "value_kafka_offset"],
        ),
        ({"_1": "int", "Имя": "int", "größe": "int"}, ["field_1", "field_value", "gr_e"]),
        ({"yes": "int", "off": "int", "size": "int"}, ["yes_value", "off_value", "size"]),
        ({"x" * 300: "int"}, ["x" * 50]),
    ],
)
def test_a_field_gets_a_name_that_nothing_else_has(fields: dict[str, Any], expected: list[str]) -> None:
    assert [column.name for column in columns_of(record("one", **fields))] == expected


@pytest.mark.parametrize(
    ("path", "name", "selected"),
    [
        ("quantity", "quantity", "quantity"),
        ("Quantity", "quantity", "quantity"),
        ("orderId", "order_id", "orderid as order_id"),
        ("home.street", "home_street", "home.street as home_street"),
        ("Имя.street", "street", "`Имя`.street"),
        ("Имя.home.street", "home_street", "`Имя`.home.street as home_street"),
        ("group", "group_value", "`group` as group_value"),
    ],
)
def test_no_column_is_aliased_by_its_own_name(path: str, name: str, selected: str) -> None:
    column = StagingColumn(SourceField(path, "long", is_optional=False), name, "none", "Text.", frozenset())
    assert column.selected(is_key=False) == selected


def test_a_masked_column_has_no_name_of_another() -> None:
    topic = new(record("one", email="string", email_pseudonym="string"), email="email", email_pseudonym="none")
    assert [column.output.name for column in topic.columns] == ["email_pseudonym_value", "email_pseudonym"]


def test_names_that_differ_by_case_land_nowhere() -> None:
    topic = topic_of(record("one", Status="string", status="string", id="int"))
    assert [column.name for column in columns.columns(topic, {}, {})] == ["id"]
    assert topic.omitted.keys() == {"Status", "status"}


def test_a_description_is_documentation_or_what_is_known() -> None:
    avro = record("one", paid=["null", "double"], colour=COLOUR, price=LEAVES[-2], at=TIME, note="string", gone="int")
    avro["fields"][4]["doc"] = "Said by\n the {{ customer }}, {% not %} {# us #}."
    topic = topic_of(avro)
    assert [one.description for one in columns.columns(topic, {}, {})] == [
        "Field paid of topic: Avro double, optional.",
        "Field colour of topic: Avro enum, required, one of NO, on, RED.",
        "Field price of topic: Avro bytes decimal 12 2, required.",
        "Field at of topic: Avro long timestamp-micros, required.",
        "Said by the { { customer }}, { % not %} { # us #}.",
        "Field gone of topic: Avro int, required.",
    ]


@pytest.mark.parametrize(
    ("doc", "described", "name"),
    [
        ("Refund.", "Amount paid.", "amount_value"),
        ("Amount paid.", "Amount paid.", "amount"),
        (None, "Amount paid.", "amount"),
        (None, "Field amount of other: Avro int, required.", "amount_value"),
    ],
)
def test_one_name_has_one_description(doc: str | None, described: str, name: str) -> None:
    avro = record("one", amount="int")
    avro["fields"][0] |= {"doc": doc} if doc else {}
    [column] = columns.columns(topic_of(avro), {}, {"amount": described})
    assert column.name == name


def test_what_is_described_is_what_dbt_finds_in_all_files(tmp_path: Path) -> None:
    models = tmp_path / "models"
    (models / "docs").mkdir(parents=True)
    (models / "docs/columns.md").write_text(
        "{# {% docs gone %}old{% enddocs %} #}\n"
        "{% docs a %}\nof\n\nlines\n{% enddocs %}{% docs b %}in one{% enddocs %}\n{%docs c%}tight{%enddocs%}\n"
    )
    (models / "other.md").write_text("{%- docs d -%}\n  trimmed\n{%- enddocs -%}")
    assert files.described(tmp_path) == {"a": "of\n\nlines", "b": "in one", "c": "tight", "d": "trimmed"}


def test_a_topic_without_key_and_time_has_those_of_its_records() -> None:
    topic = new(record("one", note="string"))
    assert (topic.key, topic.at, topic.week) == ("product_return_key", "recorded_at", "recorded_week")
    assert new(record("one", sold_at=TIME), sold_at="none").week == "sold_week"
    taken = new(record("one", recorded_at="string", product_return_key="int", recorded_at_value="int"))
    assert (taken.key, taken.at) == ("product_return_key_value", "recorded_at_value_value")


@pytest.mark.parametrize(
    ("given", "message", "remedy"),
    [
        ({"key": "missing"}, "missing is not a column of type string or bigint", "Choose --key from code, email, id"),
        ({"key": "price"}, "price is not a column of type string or bigint", "Choose --key from code, email, id"),
        ({"key": "code"}, "--key code would be published, and code has no class", "Add --pii code=none if"),
        ({"key": "id"}, "--key id would be published, and id has no class", "Add --pii id=none if"),
        ({"key": "email", "email": "email"}, "email is not a column of type", "Choose --key from code, id, note"),
        ({"at": "id"}, "id is not a column of type timestamp", "Choose --at from sold_at"),
        ({"at": "sold_at"}, "--at sold_at would be published, and sold_at has no class", "Add --pii sold_at=none if"),
        ({"note": "secret"}, "There is no PII class secret", "Choose from none, user"),
        ({"other": "none"}, "Topic shop.returns has no column other", "Choose from code, email"),
    ],
)
def test_what_cannot_be_is_refused_with_the_remedy(given: dict[str, str], message: str, remedy: str) -> None:
    avro = record("one", code="string", email="string", id="long", note="string", price="double", sold_at=TIME)
    with pytest.raises(UserError) as raised:
        new(avro, **given)
    assert str(raised.value).startswith(message)
    assert str(raised.value.remedy).startswith(remedy)


@pytest.mark.parametrize("source", ["2crm", "my__crm", "crm_", "my-crm", "Crm", ""])
def test_a_source_name_that_dbt_cannot_have_is_refused(source: str) -> None:
    topic = topic_of(record("one", a="int"))
    assert files.new_topic(topic, "my_crm2", "returns", []).source == "my_crm2"
    with pytest.raises(UserError, match="is not a source name"):
        files.new_topic(topic, source, "returns", [])


def test_text_is_trimmed_but_for_the_key_and_personal_data(project: Path) -> None:
    avro = record("one", code="string", size="string", email="string", amount="int", price="double", rate="double")
    files.write(project, new(avro, "code", code="none", size="none", email="email", amount="none", price="none"))
    written = next((project / "models" / "staging" / "crm2").glob("stg_*.sql")).read_text()
    selected = re.search(r"-- payload\n(.*?)\n\n", written, re.DOTALL)[1]
    assert [line.strip() for line in selected.splitlines()] == [
        "code,",
        "{{ clean_text('size') }} as size,",
        "email,",
        "try_cast(amount as bigint) as amount,",
        "try_cast(price as decimal(28, 6)) as price,",
        "rate,",
    ]


def test_labels_are_those_of_the_schema(project: Path) -> None:
    avro = record("one", id="long", colour=COLOUR, shade=["null", COLOUR["name"]], paid=["null", "int"], sold_at=TIME)
    files.write(project, new(avro, "id", **dict.fromkeys(("id", "colour", "shade", "paid", "sold_at"), "none")))
    for layer, required in (("marts/fct_", {"id", "is_event_time_valid"}), ("exports/exp_weekly__", {"id", "sold_at"})):
        [model] = yaml.safe_load((project / f"models/{layer}product_returns.yml").read_text())["models"]
        by_name = {one["name"]: one for one in model["columns"]}
        assert {name for name, one in by_name.items() if "constraints" in one} - {"sold_week"} == required
        meta = {name: one["config"]["meta"] for name, one in by_name.items() if "config" in one}
        assert meta["colour"]["allowed_values"] == meta["shade"]["allowed_values"] == ["NO", "on", "RED"]
        reasoned = {name for name, one in meta.items() if "nullable" in one}
        assert by_name.keys() - required - reasoned - {"sold_week"} == {"shade", "paid"}
    described = files.described(project)
    assert described["id"] == "Field id of shop.returns: Avro long, required."
    assert "product_return_key" not in described


def test_a_source_declares_subject_key_and_unused_fields(project: Path) -> None:
    avro = record("one", id="long", tags={"type": "array", "items": "string"}, customer=record("c", userId="string"))
    topic = topic_of(avro, "no", subject="shop.One", key_format="avro", key_type="struct<`order`: bigint>")
    payload = columns.columns(topic, {"customer_user_id": "user"}, {})
    files.write(project, files.new_topic(topic, "crm2", "product_returns", payload))
    [declared] = [one for one in read_declarations(project / "models") if one.topic == "no"]
    assert (declared.key, declared.subject) == ("avro", ("shop.One", "no-key"))
    assert [subject.columns for subject in declared.persons] == [("customer.userId",)]
    assert {"id", "tags", "customer", "kafka_key"} <= children(declared.columns).keys()
    sources = yaml.safe_load((project / "models/staging/crm2/_crm2__sources.yml").read_text())["sources"]
    assert sources[0]["tables"][0]["config"]["meta"]["unused"] == ["tags"]
    # It asks for freshness as the others do.
    sources = [yaml.safe_load(file.read_text())["sources"] for file in project.glob("models/staging/*/_*__sources.yml")]
    [query] = {source["config"]["loaded_at_query"] for [source] in sources}
    assert len(sources) == 5
    assert "from {{ this }}.snapshots" in query


def test_no_model_and_no_list_of_another_form_is_overwritten(project: Path) -> None:
    before = contents(project)
    topic = new(record("one", id="long"))
    (project / "macros" / "topics.sql").write_text("")
    with pytest.raises(UserError, match=r"topics\.sql has another form"):
        files.write(project, topic)
    shutil.copy(PROJECT_ROOT / "macros" / "topics.sql", project / "macros")
    assert contents(project) == before
    files.write(project, topic)
    written = contents(project)
    with pytest.raises(UserError, match=r"shop\.returns is declared already, with the table bronze\.shop_returns"):
        files.write(project, topic)
    with pytest.raises(UserError, match=r"fct_product_returns\.sql"):
        files.write(project, replace(topic, topic=replace(topic.topic, name="other")))
    assert contents(project) == written


def contents(project: Path) -> dict[Path, str]:
    return {path: path.read_text() for path in (project / "models").rglob("*") if path.is_file()}
