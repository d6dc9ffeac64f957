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
        (GOOD.replace("{topic: refunds}", "{key: string}"), ": table refunds: kafka.topic is not declared"),
        (GOOD.replace("{topic: refunds}", "{topic: 7}"), ": table refunds: kafka.topic is '7'. Give it as text"),
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
        ("key: json", "key is 'json'. Set it to one of string, avro, bytes"),
        ("on_error: ignore", "on_error is 'ignore'"),
        ("onerror: stop", "onerror is not a known field"),
        ("max_dead_letters: 5", "max_dead_letters is not a mapping"),
        ("max_dead_letters: {rate: 1}", "max_dead_letters.rate is not a known field. Write it as {share: 0"),
        ("max_dead_letters: {share: 5}", "max_dead_letters.share is '5'. Give a number from 0 to 1"),
        ("max_dead_letters: {share: .nan}", "max_dead_letters.share is 'nan'"),
        ("max_dead_letters: {share: }", "max_dead_letters.share is 'None'"),
        ("max_dead_letters: {count: -1}", "max_dead_letters.count is '-1'. Give a whole number"),
        ("max_dead_letters: {count: 2.5}", "max_dead_letters.count is '2.5'"),
        ("max_dead_letters: {count: yes}", "max_dead_letters.count is 'True'"),
        ("subject: till", "subject is 'till'. Set it to one of topic, record, topic_record, or"),
        ("subject: []", "subject is '[]'"),
        ("silence: a day", "silence is 'a day'. Write it like 30m, 6h or 7d"),
        ("producer: 6", "producer is '6'. Name what writes"),
        ("table_properties: zstd", "table_properties is not a mapping. Write it as {write.target-file-size-bytes:"),
        *(
            (
                f"table_properties: {{{name}: {setting}}}",
                f"table_properties is \"('{name}', '{setting}')\". Write it as",
            )
            for name, setting in (
                ("lakehouse.topic", "other"),
                ("write.metadata.path", "/tmp"),
                ("write.merge.isolation-level", "snapshot"),
                ("write.target-file-size-bytes", "512MB"),
                ("history.expire.max-snapshot-age-ms", "1d"),
            )
        ),
        ("table_properties: {owner: }", "table_properties is 'None'"),
        ("partition_spec: days(ingested_at)", "partition_spec is not a list. Write it as [days("),
        ("partition_spec: ['weeks(ingested_at)']", "partition_spec is 'weeks(ingested_at)'"),
        ("partition_spec: [bucket(kafka_key)]", "partition_spec is 'bucket(kafka_key)'"),
        ("partition_spec: ['bucket(0, kafka_key)']", "partition_spec is 'bucket(0, kafka_key)'"),
        ("partition_spec: [kafka_offset desc]", "partition_spec is 'kafka_offset desc'"),
        ("partition_spec: [store]", "partition_spec: there is no column store"),
        (
            "partition_spec: [days(kafka_offset)]",
            "partition_spec: days(kafka_offset) cannot be made of a column of type",
        ),
        ("partition_spec: [kafka_headers]", "partition_spec: kafka_headers cannot be made of a column of type list"),
        ("partition_spec: [days(ingested_at), hours(ingested_at)]", "partition_spec: hours(ingested_at) adds nothing"),
        ("key: avro, partition_spec: ['bucket(4, kafka_key)']", "partition_spec: there is no column kafka_key"),
        ("sort_order: [kafka_offset up]", "sort_order is 'kafka_offset up'. Write it as [kafka_timestamp desc nulls"),
        ("sort_order: []", "sort_order is '[]'"),
        ("sort_order: [amount]", "sort_order: there is no column amount"),
        ("sort_order: [kafka_offset, kafka_offset desc]", "sort_order: kafka_offset desc nulls last adds nothing to"),
        ("client_options: 5", "client_options is not a mapping"),
        ("client_options: {sasl.jaas.config: secret}", "client_options is 'sasl.jaas.config'. Write it as"),
        ("client_options: {isolation.level: read_uncommitted}", "client_options is 'isolation.level'"),
        ("allow: amount", "allow is not a list. Write it as [amount"),
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
        (("{customer: id}",), r"subjects\.customer\.columns is not a list. Write it as \[customerid"),
        (("{customer: []}",), r"subjects\.customer\.columns is '\[\]'"),
        (("{customer: {columns: [a], via: [t.b]}}",), r"subjects\.customer\.via is not a known field"),
        (("{customer: {through: [t1.b]}}",), r"subjects\.customer\.columns is not declared"),
        (("{customer: {columns: [a], through: [t1]}}",), r"subjects\.customer\.through is ''. Write it as"),
        (("{customer: {columns: [a], through: [t1.b]}}",), r"t0: subjects\.customer goes through t1, which does not"),
        (("{customer: {columns: [a], through: [t1.b]}}", "{user: [b]}"), r"goes through t1, which does not declare"),
    ],
)
def test_a_mistake_in_subjects_is_named(tmp_path: Path, subjects: tuple[str, ...], complaint: str) -> None:
    with pytest.raises(UserError, match=complaint):
        read_declarations(declared_persons(tmp_path, *subjects))
