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

COLUMNS = "columns: [{name: id, data_type: bigint}]"


def written(directory: Path, text: str, name: str = "_till__sources.yml") -> Path:
    (directory / name).write_text(text)
    return directory


def test_declarations_are_sorted_and_have_defaults(tmp_path: Path) -> None:
    assert read_declarations(written(tmp_path, GOOD)) == [
        Declaration("Till.Sales-v1", "bronze", "sales", "avro", "stop"),
        Declaration("refunds", "bronze", "refunds", "string", "dead_letter"),
    ]


def test_the_projects_own_sources_name_the_tables_that_other_tools_rely_on() -> None:
    tables = {declaration.topic: declaration.identifier for declaration in read_declarations()}
    assert tables == {
        "pizza-orders": "bronze.pizza_orders",
        "payments": "bronze.payments",
        "shiftleft.public.customers": "bronze.shiftleft_public_customers",
        "shiftleft.public.addresses": "bronze.shiftleft_public_addresses",
        "shiftleft.public.products": "bronze.shiftleft_public_products",
        "shiftleft.public.orders": "bronze.shiftleft_public_orders",
        "shiftleft.public.order_items": "bronze.shiftleft_public_order_items",
        "stock_trades": "bronze.stock_trades",
    }


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("sources: [\n", ["_till__sources.yml", "not valid YAML", "line 2"]),
        ("sources: 5", ["sources is not a list"]),
        ("sources: [{name: till, tables: 5}]", ["source till", "tables is not a list"]),
        (GOOD.replace("{topic: refunds}", "refunds"), ["table refunds", "kafka is not a mapping"]),
        (GOOD.replace("{topic: refunds}", "{key: string}"), ["table refunds", "kafka.topic is missing"]),
        (GOOD.replace("{topic: refunds}", "{topic: 7}"), ["table refunds", "kafka.topic is missing or not text"]),
        *(
            (GOOD.replace("name: refunds", f"name: {name}"), [f"{name} is not a table name of Spark", "`identifier`"])
            for name in ("re-funds", "shop.refunds", "7up", "réfunds")
        ),
        (GOOD.replace("key: avro", "key: json"), ["table sales", "kafka.key is 'json'", "string, avro, bytes"]),
        (GOOD.replace("on_error: stop", "on_error: ignore"), ["table sales", "kafka.on_error is 'ignore'"]),
        (GOOD.replace("on_error", "onerror"), ["table sales", "kafka.onerror is not a known field"]),
        *(
            (GOOD.replace("topic: refunds", f"topic: refunds, max_dead_letters: {given}"), ["table refunds", *words])
            for given, *words in (
                ("5", "kafka.max_dead_letters is not a mapping"),
                ("{rate: 1}", "kafka.max_dead_letters.rate is not a known field", "Use share, count"),
                ("{share: 5}", "kafka.max_dead_letters.share is '5'", "from 0 to 1"),
                ("{share: a lot}", "kafka.max_dead_letters.share is 'a lot'"),
                ("{share: .nan}", "kafka.max_dead_letters.share is 'nan'"),
                ("{share: }", "kafka.max_dead_letters.share is 'None'"),
                ("{count: -1}", "kafka.max_dead_letters.count is '-1'", "whole number"),
                ("{count: 2.5}", "kafka.max_dead_letters.count is '2.5'"),
                ("{count: yes}", "kafka.max_dead_letters.count is 'True'"),
            )
        ),
        (
            GOOD.replace("on_error: stop", "subject: till"),
            ["table sales", "kafka.subject is 'till'", "topic_record, or"],
        ),
        (GOOD.replace("on_error: stop", "silence: a day"), ["table sales", "kafka.silence is 'a day'", "6h or 7d"]),
        (GOOD.replace("on_error: stop", "silence: 6"), ["table sales", "kafka.silence is '6'"]),
        (GOOD.replace("on_error: stop", "producer: 6"), ["table sales", "kafka.producer is '6'", "what writes"]),
        (GOOD.replace("on_error: stop", "subject: []"), ["table sales", "kafka.subject is '[]'"]),
        (
            GOOD.replace("on_error: stop", "table_properties: zstd"),
            ["table sales", "kafka.table_properties is not a mapping", "Write it as {write.target-file-size-bytes:"],
        ),
        *(
            (
                GOOD.replace("on_error: stop", f"table_properties: {{{name}: {setting}}}"),
                [
                    "table sales",
                    f"kafka.table_properties is \"('{name}', '{setting}')\"",
                    "the names allowed begin with",
                ],
            )
            for name, setting in (
                ("lakehouse.topic", "other"),
                ("gc.enabled", "false"),
                ("write.wap.enabled", "true"),
                ("write.metadata.path", "/tmp"),
                ("write.merge.isolation-level", "snapshot"),
                ("write.target-file-size-bytes", "512MB"),
                ("history.expire.max-snapshot-age-ms", "1d"),
            )
        ),
        (
            GOOD.replace("on_error: stop", "table_properties: {owner: }"),
            ["table sales", "kafka.table_properties is 'None'"],
        ),
        *(
            (GOOD.replace("topic: refunds", f"topic: refunds, {given}"), ["table refunds: kafka.", *words])
            for given, *words in (
                (
                    "partition_spec: kafka_timestamp",
                    "partition_spec is not a list of fields",
                    "[days(kafka_timestamp)]",
                ),
                ("partition_spec: ['weeks(kafka_timestamp)']", "partition_spec is 'weeks(kafka_timestamp)'", "months"),
                ("partition_spec: [bucket(kafka_key)]", "partition_spec is 'bucket(kafka_key)'", "bucket(16, column)"),
                ("partition_spec: ['bucket(0, kafka_key)']", "partition_spec is 'bucket(0, kafka_key)'"),
                ("partition_spec: [kafka_offset desc]", "partition_spec is 'kafka_offset desc'"),
                ("partition_spec: [5]", "partition_spec is '5'"),
                ("partition_spec: [store]", "partition_spec: there is no column store", "data_type"),
                ("partition_spec: [days(kafka_offset)]", "days(kafka_offset) cannot be made of a column of type long"),
                ("partition_spec: [kafka_headers]", "kafka_headers cannot be made of a column of type list"),
                ("partition_spec: [days(ingested_at), hours(ingested_at)]", "hours(ingested_at) adds nothing to"),
                ("key: avro, partition_spec: ['bucket(4, kafka_key)']", "there is no column kafka_key"),
                ("sort_order: [kafka_offset up]", "sort_order is 'kafka_offset up'", "desc nulls last"),
                ("sort_order: []", "sort_order is", "desc nulls last"),
                ("sort_order: [amount]", "sort_order: there is no column amount"),
                ("sort_order: [kafka_offset, kafka_offset desc]", "adds nothing to another one of kafka_offset"),
                ("client_options: 5", "client_options is not a mapping"),
                ("client_options: {sasl.jaas.config: secret}", "client_options is 'sasl.jaas.config'", "are settings"),
                ("client_options: {isolation.level: read_uncommitted}", "client_options is 'isolation.level'"),
            )
        ),
        (GOOD.replace("on_error: stop", "allow: amount"), ["table sales", "kafka.allow is not a list of fields"]),
        (GOOD.replace("topic: refunds", "topic: Till.Sales-v1"), ["'Till.Sales-v1' is declared twice"]),
        (GOOD.replace("name: refunds", "name: sales"), ["'bronze.sales' is declared twice"]),
    ],
)
def test_a_mistake_is_named_with_its_place(tmp_path: Path, text: str, words: list[str]) -> None:
    with pytest.raises(UserError) as caught:
        read_declarations(written(tmp_path, text))
    assert "_till__sources.yml" in str(caught.value)
    for word in words:
        assert word in str(caught.value)


def test_two_files_must_not_name_one_topic(tmp_path: Path) -> None:
    written(tmp_path, GOOD)
    other = "sources: [{name: b, tables: [{name: other, config: {meta: {kafka: {topic: refunds}}}}]}]"
    with pytest.raises(UserError, match="'refunds' is declared twice"):
        read_declarations(written(tmp_path, other, "_b__sources.yml"))


def test_select_keeps_the_order_asked_for_and_names_what_is_not_declared(tmp_path: Path) -> None:
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
        text = GOOD.replace("topic: refunds", f"topic: refunds, max_dead_letters: {given}")
        assert read_declarations(written(tmp_path, text))[1].max_dead_letters == limit


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
    text = GOOD.replace("- name: refunds", f"- name: refunds\n        columns: {columns}")
    struct = read_declarations(written(tmp_path, text))[1].columns
    assert {field.name: in_spark(field.field_type) for field in struct.fields} == {
        "id": "bigint",
        "lines": "array<struct<`sku`: string>>",
    }


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
        read_declarations(
            written(tmp_path, GOOD.replace("- name: refunds", f"- name: refunds\n        columns: {columns}"))
        )


def test_table_properties_are_declared_as_yaml_writes_them(tmp_path: Path) -> None:
    text = GOOD.replace(
        "on_error: stop",
        "table_properties: {read.split.target-size: 5, read.parquet.vectorization.enabled: true, owner: zstd}",
    )
    assert read_declarations(written(tmp_path, text))[0].table_properties == (
        ("read.split.target-size", "5"),
        ("read.parquet.vectorization.enabled", "true"),
        ("owner", "zstd"),
    )


def test_a_layout_is_declared_as_spark_writes_it(tmp_path: Path) -> None:
    terms = ["days(kafka_timestamp)", "bucket(16, id)", "truncate(3, kafka_key)", "id"]
    order = ["hours(kafka_timestamp)", "id desc", "kafka_offset asc nulls last"]
    kafka = f"topic: refunds, partition_spec: {terms}, sort_order: {order}, client_options: {{client.rack: a, x: 5}}"
    text = GOOD.replace("topic: refunds", kafka).replace("- name: refunds", f"- name: refunds\n        {COLUMNS}")
    declaration = read_declarations(written(tmp_path, text))[1]
    assert [str(term) for term in declaration.partition_spec or ()] == terms
    assert [str(term) for term in declaration.sort_order or ()] == [
        "hours(kafka_timestamp) asc nulls first",
        "id desc nulls last",
        "kafka_offset asc nulls last",
    ]
    assert declaration.client_options == (("client.rack", "a"), ("x", "5"))


def test_the_subjects_of_a_topic_follow_what_it_declares(tmp_path: Path) -> None:
    for given, subjects in (
        ("topic", ("refunds-value",)),
        ("record", ("till.Refund",)),
        ("topic_record", ("refunds-till.Refund",)),
        ("[one, other]", ("one", "other")),
    ):
        text = GOOD.replace("topic: refunds", f"topic: refunds, subject: {given}, allow: [amount, place.zip]")
        declaration = read_declarations(written(tmp_path, text))[1]
        assert declaration.subjects("value", "till.Refund") == subjects
        assert declaration.allow == ("amount", "place.zip")
    assert read_declarations(written(tmp_path, GOOD))[0].subjects("key", "x") == ("Till.Sales-v1-key",)


def declared_persons(directory: Path, *subjects: str) -> Path:
    """Declare tables t0, t1, ... with subjects as YAML."""
    lines = ["version: 2", "sources:", "  - name: till", "    schema: bronze", "    tables:"]
    for number, text in enumerate(subjects):
        lines += [f"      - name: t{number}"]
        lines += [f"        config: {{meta: {{kafka: {{topic: topic{number}}}, subjects: {text}}}}}"]
    return written(directory, "\n".join(lines))


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
        (("{customer: id}",), r"subjects\.customer is not a list of columns"),
        (("{customer: []}",), r"subjects\.customer is not a list of columns"),
        (("{customer: {columns: [a], via: [t.b]}}",), r"subjects\.customer\.via is not a known field"),
        (("{customer: {columns: [a]}}",), r"subjects\.customer\.through is not a list of columns"),
        (
            ("{customer: {columns: [a], through: [t1]}}",),
            r"customer\.through does not name columns of tables",
        ),
        (("{customer: {columns: [a], through: [t1.b]}}",), r"t0: subjects\.customer goes through t1, which does not"),
        (("{customer: {columns: [a], through: [t1.b]}}", "{user: [b]}"), r"goes through t1, which does not declare"),
    ],
)
def test_a_mistake_in_subjects_is_named(tmp_path: Path, subjects: tuple[str, ...], complaint: str) -> None:
    with pytest.raises(UserError, match=complaint):
        read_declarations(declared_persons(tmp_path, *subjects))
