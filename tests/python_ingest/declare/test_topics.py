"""Declarations in dbt source files: what is read, and what a mistake in one is answered with."""

from dataclasses import replace
from pathlib import Path

import pytest

from python_common.errors import UserError
from python_ingest.declare.persons import Subject
from python_ingest.declare.spark_types import in_spark
from python_ingest.declare.topics import DeadLetterLimit, Declaration, read_declarations, select
from python_ingest.maintenance import erase
from python_ingest.maintenance.erase import Person

GOOD = """
version: 2
sources:
  - name: till
    schema: bronze
    tables:
      - name: not_from_kafka
      - name: sales
        config: {meta: {kafka: {topic: Till.Sales-v1, key: avro, on_error: stop}}}
      - name: refunds
        config: {meta: {kafka: {topic: refunds}}}
"""


def written(directory: Path, text: str, name: str = "_till__sources.yml") -> Path:
    (directory / name).write_text(text)
    return directory


def declared(directory: Path, kafka: str, columns: str = "[]") -> Declaration:
    """Return the declaration of a topic with columns and these fields of `kafka`, all as YAML."""
    text = GOOD.replace("topic: refunds", f"topic: refunds, {kafka}")
    return read_declarations(
        written(directory, text.replace("name: refunds", f"name: refunds\n        columns: {columns}"))
    )[1]


def test_declarations_are_sorted_and_have_defaults(tmp_path: Path) -> None:
    assert read_declarations(written(tmp_path, GOOD)) == [
        Declaration("Till.Sales-v1", "bronze", "sales", "avro", "stop"),
        Declaration("refunds", "bronze", "refunds", "string", "dead_letter"),
    ]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("sources: [\n", " is not valid YAML in line 2"),
        ("sources: 5", ": sources is not a list"),
        ("sources: [{name: till, tables: 5}]", ": source till: tables is not a list"),
        (GOOD.replace("{topic: refunds}", "refunds"), ": table refunds: kafka is not a mapping"),
        (GOOD.replace("{topic: refunds}", "{key: string}"), ": table refunds: kafka.topic: Field required"),
        (
            GOOD.replace("{topic: refunds}", "{topic: 7}"),
            ": table refunds: kafka.topic: Input should be",
        ),
        *(
            (GOOD.replace("name: refunds", f"name: {name}"), f": table {name}: {name} is not a table name of Spark")
            for name in ("re-funds", "shop.refunds", "7up", "réfunds")
        ),
        (GOOD.replace("name: refunds", "name: sales"), ": 'bronze.sales' is declared twice"),
    ],
)
def test_a_mistake_is_named_with_its_place(tmp_path: Path, text: str, complaint: str) -> None:
    with pytest.raises(UserError) as caught:
        read_declarations(written(tmp_path, text))
    assert f"_till__sources.yml{complaint}" in str(caught.value)


@pytest.mark.parametrize(
    ("kafka", "complaint"),
    [
        ("key: json", "key: Input should be 'string', 'avro' or 'bytes'. See models/meta.schema.json"),
        ("on_error: ignore", "on_error: Input should be"),
        ("onerror: stop", "onerror is not a known field. Use topic, key, on_error"),
        ("max_dead_letters: 5", "max_dead_letters: Input should be a dictionary"),
        ("max_dead_letters: {rate: 1}", "max_dead_letters.rate: Unexpected keyword"),
        ("max_dead_letters: {share: 5}", "max_dead_letters.share: Input should be less than or equal to 1"),
        ("max_dead_letters: {share: .nan}", "max_dead_letters.share: "),
        ("max_dead_letters: {share: }", "max_dead_letters.share: "),
        ("max_dead_letters: {count: -1}", "max_dead_letters.count: Input should be greater than or equal to 0"),
        ("max_dead_letters: {count: 2.5}", "max_dead_letters.count: "),
        ("max_dead_letters: {count: yes}", "max_dead_letters.count: "),
        ("subject: till", "subject: Input should be 'topic', 'record' or 'topic_record'"),
        ("subject: []", "subject: "),
        ("silence: a day", "silence: 'a day' is not a duration"),
        ("producer: 6", "producer: Input should be a valid string"),
        ("table_properties: zstd", "table_properties: write it as a mapping"),
        ("table_properties: {lakehouse.topic: other}", "table_properties: lakehouse.topic may not be declared"),
        ("table_properties: {write.metadata.path: /tmp}", "table_properties: write.metadata.path may not be"),
        (
            "table_properties: {write.merge.isolation-level: snapshot}",
            "table_properties: write.merge",
        ),
        (
            "table_properties: {read.split.target-size-bytes: 5MB}",
            "table_properties: read.split.target-size-bytes is",
        ),
        ("table_properties: {history.expire.max-snapshot-age-ms: 1d}", "table_properties: history.expire.max-snapshot"),
        ("table_properties: {owner: }", "table_properties: "),
        ("partition_spec: days(ingested_at)", "partition_spec: "),
        ("partition_spec: ['weeks(ingested_at)']", "partition_spec: weeks(ingested_at) is not a term, such as days("),
        ("partition_spec: [bucket(kafka_key)]", "partition_spec: bucket(kafka_key) is not a term"),
        ("partition_spec: ['bucket(0, kafka_key)']", "partition_spec: bucket(0, kafka_key) is not a term"),
        ("partition_spec: [kafka_offset desc]", "partition_spec: kafka_offset desc has a direction"),
        ("partition_spec: [store]", "partition_spec: there is no column store"),
        (
            "partition_spec: [days(kafka_offset)]",
            "partition_spec: days(kafka_offset) cannot be made of a column of type",
        ),
        ("partition_spec: [kafka_headers]", "partition_spec: kafka_headers cannot be made of a column of type list"),
        ("partition_spec: [days(ingested_at), hours(ingested_at)]", "partition_spec: hours(ingested_at) adds nothing"),
        ("key: avro, partition_spec: ['bucket(4, kafka_key)']", "partition_spec: there is no column kafka_key"),
        ("sort_order: [kafka_offset up]", "sort_order: kafka_offset up is not a term"),
        ("sort_order: []", "sort_order: "),
        ("sort_order: [amount]", "sort_order: there is no column amount"),
        ("sort_order: [kafka_offset, kafka_offset desc]", "sort_order: kafka_offset desc nulls last adds nothing to"),
        ("client_options: 5", "client_options: write it as a mapping"),
        ("client_options: {sasl.jaas.config: secret}", "client_options: sasl.jaas.config is a setting or fixed"),
        ("client_options: {isolation.level: read_uncommitted}", "client_options: isolation.level is a setting"),
        ("allow: amount", "allow: "),
    ],
)
def test_a_mistake_in_a_field_of_kafka_is_named(tmp_path: Path, kafka: str, complaint: str) -> None:
    with pytest.raises(UserError) as caught:
        declared(tmp_path, kafka)
    assert f"_till__sources.yml: table refunds: kafka.{complaint}" in str(caught.value)


def test_two_files_must_not_name_one_topic(tmp_path: Path) -> None:
    written(tmp_path, GOOD)
    other = "sources: [{name: b, tables: [{name: other, config: {meta: {kafka: {topic: refunds}}}}]}]"
    with pytest.raises(UserError, match="'refunds' is declared twice"):
        read_declarations(written(tmp_path, other, "_b__sources.yml"))


def test_select_names_what_is_not_declared(tmp_path: Path) -> None:
    declarations = read_declarations(written(tmp_path, GOOD))
    chosen = select(declarations, ["refunds", "Till.Sales-v1", "refunds"])
    assert [declaration.topic for declaration in chosen] == ["refunds", "Till.Sales-v1"]
    assert select(declarations, []) == declarations
    with pytest.raises(UserError, match=r"'sales'.*Choose from Till.Sales-v1, refunds"):
        select(declarations, ["sales"])
    many = [Declaration(f"shop.topic-{number}", "s", f"t{number}") for number in range(60)]
    with pytest.raises(
        UserError, match=r"Choose from shop.topic-4\d?, (shop.topic-\d+, ){3}shop.topic-\d+ and 55 others"
    ):
        select(many, ["shop.topc-4"])


def test_a_limit_of_dead_letters_is_declared_in_full_or_in_part(tmp_path: Path) -> None:
    for given, limit in (
        ("{share: 0.5, count: 3}", DeadLetterLimit(0.5, 3)),
        ("{share: 1}", DeadLetterLimit(share=1)),
        ("{count: 0}", DeadLetterLimit(count=0)),
        ("", DeadLetterLimit()),
    ):
        assert declared(tmp_path, f"max_dead_letters: {given}").max_dead_letters == limit


def test_a_limit_is_exceeded_beyond_both_its_share_and_its_count() -> None:
    limit = DeadLetterLimit(share=0.25, count=10)
    assert not limit.exceeded(records=1_000, dead_letters=250)
    assert limit.exceeded(records=1_000, dead_letters=251)
    assert not limit.exceeded(records=10, dead_letters=10)
    assert limit.exceeded(records=11, dead_letters=11)
    assert not DeadLetterLimit(0, 0).exceeded(records=0, dead_letters=0)
    assert DeadLetterLimit(0, 0).exceeded(records=1_000, dead_letters=1)
    assert not DeadLetterLimit(1, 0).exceeded(records=5, dead_letters=5)


def test_declared_columns_have_the_type_that_their_source_gives(tmp_path: Path) -> None:
    columns = "[{name: id, data_type: bigint}, {name: lines, data_type: 'array<struct<sku: string>>'}, {name: untyped}]"
    struct = declared(tmp_path, "key: bytes", columns).columns
    types = {field.name: in_spark(field.field_type) for field in struct.fields}
    assert types == {"id": "bigint", "lines": "array<struct<`sku`: string>>"}


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ("[{name: id, data_type: varchar(5)}]", r"table refunds: data_type of id: 'varchar\(5\)' is not a type"),
        ("[{name: id, data_type: }]", "table refunds: data_type of id: 'None' is not a type"),
        ("[{name: id, data_type: int}, {name: ID, data_type: int}]", "table refunds: column ID is declared twice"),
    ],
)
def test_a_column_that_cannot_be_is_named(tmp_path: Path, columns: str, words: str) -> None:
    with pytest.raises(UserError, match=words):
        declared(tmp_path, "key: bytes", columns)


def test_tables_and_clients_are_declared_as_yaml_writes_them(tmp_path: Path) -> None:
    terms = ["days(kafka_timestamp)", "bucket(16, id)", "truncate(3, kafka_key)", "id"]
    order = ["hours(kafka_timestamp)", "id desc", "kafka_offset asc nulls last"]
    options = "client_options: {client.rack: a, x: 5}, allow: [amount, place.zip]"
    properties = "table_properties: {read.split.target-size: 5, read.parquet.vectorization.enabled: true, owner: z}"
    kafka = f"partition_spec: {terms}, sort_order: {order}, {options}, {properties}"
    declaration = declared(tmp_path, kafka, "[{name: id, data_type: bigint}]")
    assert [str(term) for term in declaration.partition_spec or ()] == terms
    assert [str(term) for term in declaration.sort_order or ()] == [
        "hours(kafka_timestamp) asc nulls first",
        "id desc nulls last",
        "kafka_offset asc nulls last",
    ]
    assert (declaration.client_options, declaration.allow) == (
        (("client.rack", "a"), ("x", "5")),
        ("amount", "place.zip"),
    )
    assert declaration.table_properties == (
        ("read.split.target-size", "5"),
        ("read.parquet.vectorization.enabled", "true"),
        ("owner", "z"),
    )


def test_the_subjects_of_a_topic_follow_what_it_declares(tmp_path: Path) -> None:
    for given, subjects in (
        ("topic", ("refunds-value",)),
        ("record", ("till.Refund",)),
        ("topic_record", ("refunds-till.Refund",)),
        ("[one, other]", ("one", "other")),
    ):
        assert declared(tmp_path, f"subject: {given}").subjects("value", "till.Refund") == subjects
    assert declared(tmp_path, "key: avro").subjects("key", "x") == ("refunds-key",)


def declared_persons(directory: Path, *subjects: str) -> Path:
    """Declare tables t0, t1, ... with subjects as YAML."""
    tables = [
        f"{{name: t{number}, config: {{meta: {{kafka: {{topic: topic{number}}}, subjects: {text}}}}}}}"
        for number, text in enumerate(subjects)
    ]
    return written(directory, f"sources: [{{name: till, schema: bronze, tables: [{', '.join(tables)}]}}]")


def test_subjects_name_where_a_persons_rows_are(tmp_path: Path) -> None:
    through = "{customer: {columns: [place], through: [t0.home, t0.work.place]}}"
    first, second = read_declarations(declared_persons(tmp_path, "{customer: [id, key.id], user: [name]}", through))
    assert first.persons == (Subject("till.customer", ("id", "key.id")), Subject("till.user", ("name",)))
    assert second.persons == (Subject("till.customer", ("place",), (("t0", "home"), ("t0", "work.place"))),)


def test_a_person_is_one_of_a_source(tmp_path: Path) -> None:
    till = read_declarations(declared_persons(tmp_path, "{customer: [id], user: [name]}"))
    both = [*till, replace(till[0], topic="shop", table="shop", persons=(Subject("shop.user", ("name",)),))]
    customer, user = Person("customer", "42"), Person("user", "42")
    assert erase.of_sources(both, [customer, Person("shop.user", "42")]) == (
        Person("till.customer", "42"),
        Person("shop.user", "42"),
    )
    assert erase.of_sources(till, [user]) == (Person("till.user", "42"),)
    with pytest.raises(UserError, match=r"user is a kind of person in 2 sources.* Name one of shop\.user, till\.user"):
        erase.of_sources(both, [user])
    with pytest.raises(
        UserError, match=r"kind of person of a --subject\. Choose from shop\.user, till\.customer, till\.u"
    ):
        erase.of_sources(both, [Person("shop.customer", "42")])


@pytest.mark.parametrize(
    ("subjects", "complaint"),
    [
        (("[customer]",), r"table t0: subjects is not a mapping"),
        (("{customer: id}",), r"subjects\.customer\.columns: "),
        (("{customer: []}",), r"subjects\.customer\.columns: "),
        (("{customer: {columns: [a], via: [t.b]}}",), r"subjects\.customer\.via is not a known field"),
        (("{customer: {through: [t1.b]}}",), r"subjects\.customer\.columns: Field required"),
        (("{customer: {columns: [a], through: [t1]}}",), r"subjects\.customer\.through: "),
        (("{customer: {columns: [a], through: [t1.b]}}",), r"t0: subjects\.customer goes through t1, which does not"),
        (("{customer: {columns: [a], through: [t1.b]}}", "{user: [b]}"), r"goes through t1, which does not declare"),
    ],
)
def test_a_mistake_in_subjects_is_named(tmp_path: Path, subjects: tuple[str, ...], complaint: str) -> None:
    with pytest.raises(UserError, match=complaint):
        read_declarations(declared_persons(tmp_path, *subjects))
