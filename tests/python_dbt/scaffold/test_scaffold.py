"""The models that a scaffold writes: columns, guesses, and what is refused. An end-to-end test builds them."""

import json
import os
import random
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import sqlglot
import yaml
from sqlfluff.dialects.dialect_sparksql_keywords import RESERVED_KEYWORDS, UNRESERVED_KEYWORDS
from sqlglot import exp
from sqlglot.dialects import Spark

from python_common.config.environment import PROJECT_ROOT
from python_common.errors import UserError
from python_dbt.compile import COPIED, compiled_manifest
from python_dbt.pii import check, masks, proof
from python_dbt.scaffold import columns, files
from python_dbt.scaffold.columns import Column
from python_dbt.scaffold.files import New, UpTo
from python_ingest.avro.expanded_schema import expand_schema
from python_ingest.bronze.columns import landed_columns
from python_ingest.declare.spark_types import children
from python_ingest.declare.topics import read_declarations
from tests.support.seeds import SEED
from tests.support.topic_fixture import record

pytestmark = pytest.mark.unit

TIME = {"type": "long", "logicalType": "timestamp-micros"}
EVERY_TYPE = record(
    "every",
    a_boolean="boolean",
    an_int="int",
    a_long="long",
    a_float="float",
    a_double="double",
    a_text="string",
    some_bytes="bytes",
    a_list={"type": "array", "items": "string"},
    a_map={"type": "map", "values": "long"},
    a_record=record("inner", name="string"),
    a_day={"type": "int", "logicalType": "date"},
    a_decimal={"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2},
    a_local_time={"type": "long", "logicalType": "local-timestamp-micros"},
    kafka_offset="long",
)


def columns_of(schema: dict[str, Any], **classes: str) -> list[Column]:
    landed = children(landed_columns("value", expand_schema(json.dumps(schema))))
    return columns.columns(landed, {}, "topic", classes)


def new(schema: dict[str, Any], key: str | None = None, at: str | None = None, **classes: str) -> New:
    payload = ("string", "string", columns_of(schema, **classes))
    return files.new_topic("shop.returns", "returns", "product_returns", payload, key, at)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for name in (*COPIED, "analyses", "macros"):
        shutil.copytree(PROJECT_ROOT / name, tmp_path / name)
    for name in (".sqlfluff", ".yamllint.yaml", "dbt-bouncer.yml", "dbt_project.yml", "profiles.yml"):
        shutil.copy(PROJECT_ROOT / name, tmp_path / name)
    return tmp_path


@pytest.mark.parametrize(
    ("name", "guess"),
    [
        ("email", "email"),
        ("contactEmail", "email"),
        ("customerId", "customer"),
        ("customer_number", "customer"),
        ("userid", "user"),
        ("cc_number", "card_number"),
        ("cardExpiration", "card_expiration"),
        ("iban", "account"),
        ("postalCode", "postal_code"),
        ("zip", "postal_code"),
        ("address_line_1", "street"),
        ("date_of_birth", "birth"),
        ("gender", "gender"),
        ("firstName", "person_name"),
        ("name", "person_name"),
        # The name does not show the content.
        ("remark", "free_text"),
        ("sku", "free_text"),
        ("address_id", "free_text"),
    ],
)
def test_text_has_the_class_of_its_name_or_is_excluded(name: str, guess: str) -> None:
    [column] = columns_of(record("one", **{name: ["null", "string"]}))
    assert (column.pii, column.is_guessed) == (guess, True)


def test_every_guess_is_a_class_and_every_mask_has_a_name() -> None:
    classes = masks.load().classes
    assert {*columns.GUESSES, columns.FREE_TEXT} <= classes.keys()
    assert {mask for names in classes.values() for mask in names} - {"as_is"} == columns.MASKED.keys()


def test_a_mask_that_the_scaffold_does_not_know_yet_names_its_column(monkeypatch: pytest.MonkeyPatch) -> None:
    known = masks.load()
    added = replace(known, classes={**known.classes, "birth": ("decade",)})
    monkeypatch.setattr(masks, "load", lambda: added)
    [column] = columns_of(record("one", birth="string"))
    expected = columns.Output("birth_decade", "string", "`decade` of birth.", "birth", "decade")
    assert column.output == expected


def test_columns_of_every_type_reach_a_mart_only_if_a_file_can_hold_them() -> None:
    by_name = {column.name: column for column in columns_of(EVERY_TYPE, a_text="none", some_bytes="none")}
    assert {name: column.output.type for name, column in by_name.items() if column.output} == {
        "a_boolean": "boolean",
        "an_int": "bigint",
        "a_long": "bigint",
        "a_float": "decimal(28,6)",
        "a_double": "decimal(28,6)",
        "a_text": "string",
        "a_day": "date",
        "a_decimal": "decimal(10,2)",
        "a_local_time": "timestamp",
        # The ingester has a column of the field's name.
        "value_kafka_offset": "bigint",
    }
    assert {by_name[name].pii for name in ("a_list", "a_map", "a_record")} == {"free_text"}


def test_a_topic_without_key_and_time_has_those_of_its_records() -> None:
    topic = new(record("one", note="string"))
    assert (topic.key, topic.at, topic.week) == ("product_return_key", "recorded_at", "recorded_week")
    assert new(record("one", sold_at=TIME)).week == "sold_week"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"key": "missing"}, "missing is not a column of type string or bigint without personal data"),
        ({"key": "email"}, "email is not a column of type"),
        ({"at": "id"}, "id is not a column of type timestamp"),
        ({"note": "secret"}, "There is no PII class secret"),
        ({"other": "none"}, "Topic topic has no column other"),
    ],
)
def test_what_cannot_be_is_refused_with_what_can(given: dict[str, str], message: str) -> None:
    schema = record("one", id="long", email="string", note="string", sold_at=TIME)
    with pytest.raises(UserError, match=message) as raised:
        new(schema, **given)
    assert raised.value.remedy


def test_a_word_of_sql_is_no_name_of_a_column() -> None:
    fields = {"order": "int", "date": "string", "yearOfSale": "int", "left": "string"}
    by_field = {column.field: column for column in columns_of(record("one", **fields))}
    assert by_field["order"].expression == "try_cast(`order` as bigint) as order_value"
    assert by_field["date"].expression == "date as date_value"
    assert by_field["yearOfSale"].expression == "try_cast(yearofsale as bigint) as year_of_sale"
    assert by_field["left"].expression == "`left` as left_value"


def test_text_is_trimmed_in_staging_but_for_the_key_and_what_is_masked(project: Path) -> None:
    schema = record("one", code="string", size="string", email="string", amount="int")
    files.write(project, new(schema, key="code", code="none", size="none"))
    written = next((project / "models" / "staging" / "returns").glob("stg_*.sql")).read_text()
    selected = re.search(r"-- payload\n(.*?)\n\n", written, re.DOTALL)[1]
    assert [line.strip() for line in selected.splitlines()] == [
        "code,",
        "{{ clean_text('size') }} as size,",
        "email,",
        "try_cast(amount as bigint) as amount,",
    ]


def test_a_source_asks_for_freshness_as_the_others_do(project: Path) -> None:
    files.write(project, new(record("one", code="string")))
    sources = [yaml.safe_load(file.read_text())["sources"] for file in project.glob("models/staging/*/_*__sources.yml")]
    assert len(sources) == 5
    [query] = {source["config"]["loaded_at_query"] for [source] in sources}
    assert "from {{ this }}.snapshots" in query


def test_words_of_sql_are_those_that_the_linter_and_the_proof_know() -> None:
    known = {*RESERVED_KEYWORDS, *UNRESERVED_KEYWORDS, *Spark.Tokenizer.KEYWORDS}
    assert {word.lower() for word in known if word.isidentifier()} == columns.RESERVED | columns.KEYWORDS
    for word in sorted(columns.KEYWORDS):
        [column] = sqlglot.parse_one(f"select {word} from landed", read="spark").find_all(exp.Column)
        assert column.name == word


def test_two_fields_of_one_name_are_refused() -> None:
    with pytest.raises(UserError, match="Two fields of topic are order_id"):
        columns_of(record("one", orderId="long", order_id="long"))


def test_nothing_is_written_over_a_model_or_into_a_list_of_another_form(project: Path) -> None:
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
        files.write(project, replace(topic, topic="other"))
    assert contents(project) == written


@pytest.mark.parametrize(
    ("up_to", "behind_masks"), [(UpTo.MASKED, set()), (UpTo.MART, {"marts"}), (UpTo.EXPORT, {"marts", "exports"})]
)
def test_no_model_is_written_behind_the_last_one_that_is_asked_for(
    project: Path, up_to: UpTo, behind_masks: set[str]
) -> None:
    wrote = files.write(project, new(record("one", id="long")), up_to)
    layers = {path.parts[1] for path in wrote if path.suffix == ".sql" and path.parts[0] == "models"}
    assert layers == {"staging", "intermediate", *behind_masks}
    lists = (project / "macros" / "topics.sql").read_text()
    assert "int_product_returns_deduplicated" in lists
    assert ("fct_product_returns" in lists) == (up_to == UpTo.EXPORT)


def contents(project: Path) -> dict[Path, str]:
    return {path: path.read_text() for path in (project / "models").rglob("*") if path.is_file()}


@pytest.mark.long
def test_what_is_written_passes_lint(project: Path) -> None:
    """Topics of all types: two of one source, with and without key, time, masks and pseudonyms."""
    people = record("person", id="long", email="string", name="string", zip="string", birth="string", at=TIME)
    wrote = files.write(project, new(people, key="id"))
    plain = ("avro", "struct<`id`: bigint>", columns_of(EVERY_TYPE, a_text="none"))
    wrote += files.write(
        project, files.new_topic("every", "returns", "every_types", plain, "a_text", None), UpTo.MASKED
    )
    # Words of SQL and of YAML.
    words = random.Random(SEED).sample(sorted(columns.RESERVED | columns.KEYWORDS), 30)
    fields = dict.fromkeys([*words, "no", "y", "camelCase"], "int")
    bare = ("string", "string", columns_of(record("one", **fields)))
    wrote += files.write(project, files.new_topic("bare", "payments", "notes", bare, None, None), UpTo.MART)
    topics = {declaration.topic: declaration for declaration in read_declarations(project / "models")}
    assert {"shop.returns", "every", "bare", "payments"} <= topics.keys()
    assert topics["every"].key == "avro"
    assert fields.keys() <= children(topics["bare"].columns).keys()
    assert_lint_passes(project, [str(path) for path in wrote if path.suffix == ".sql"])


@pytest.mark.long
def test_without_the_retail_models_a_topic_passes_lint(project: Path) -> None:
    page = (PROJECT_ROOT / "docs" / "your-own-topics.md").read_text().partition("## Without the retail models")[2]
    commands = re.findall(r"^```\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)[0]
    subprocess.run(["bash", "-eu", "-c", commands], cwd=project, check=True)
    # It compiles, so nothing that is left reads what is gone.
    assert {node.name for node in compiled_manifest(project).models} == {
        "dim_dates",
        "ops_commits",
        "ops_ingest_batches",
        "ops_reconciliation",
        "ops_table_health",
        "ops_weekly_figures",
    }

    returns = record("return", id="long", email="string", sku="string", at=TIME)
    files.write(project, new(returns, key="id"))
    assert_lint_passes(project, ["models", "macros", "tests"])


def assert_lint_passes(project: Path, linted: list[str]) -> None:
    """Run the parts of `make lint` that are about the dbt project, sqlfluff on some paths."""
    programs = Path(sys.executable)
    # A stack of other tests has dbt write elsewhere.
    env = {name: value for name, value in os.environ.items() if not name.startswith("DBT_")}
    for command in (
        ("sqlfluff", "lint", "--disable-progress-bar", *linted),
        ("yamllint", "--strict", "models"),
        ("dbt", "--quiet", "--warn-error", "parse", "--no-partial-parse", "--show-all-deprecations"),
        ("dbt-bouncer", "run", "--show-all-failures"),
    ):
        program = programs.with_name(command[0])
        done = subprocess.run(
            [program, *command[1:]], cwd=project, env=env, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, re.sub(r"\x1b\S*?m", "", done.stdout + done.stderr)
    assert check.issues_of(proof.resolve(compiled_manifest(project))) == []
