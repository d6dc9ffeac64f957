"""Declarations in dbt source files: what is read, and what a mistake in one is answered with."""

from pathlib import Path

import pytest

from lakehouse.errors import UserError
from python_ingest.topics import Declaration, read_declarations, select

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


def test_declarations_are_sorted_and_have_defaults(tmp_path: Path) -> None:
    assert read_declarations(written(tmp_path, GOOD)) == [
        Declaration("Till.Sales-v1", "bronze", "sales", "avro", "stop"),
        Declaration("refunds", "bronze", "refunds", "string", "dead_letter"),
    ]


def test_the_projects_own_sources_name_the_tables_that_other_tools_rely_on() -> None:
    tables = {each.topic: each.identifier for each in read_declarations()}
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
        ("sources: [", ["_till__sources.yml", "not valid YAML", "line 1"]),
        ("sources: 5", ["sources is not a list"]),
        ("sources: [{name: till, tables: 5}]", ["source till", "tables is not a list"]),
        (GOOD.replace("{topic: refunds}", "refunds"), ["table refunds", "kafka is not a mapping"]),
        (GOOD.replace("{topic: refunds}", "{key: string}"), ["table refunds", "kafka.topic is missing"]),
        (GOOD.replace("{topic: refunds}", "{topic: 7}"), ["table refunds", "kafka.topic is missing or not text"]),
        (GOOD.replace("key: avro", "key: json"), ["table sales", "kafka.key is 'json'", "string, avro, bytes"]),
        (GOOD.replace("on_error: stop", "on_error: ignore"), ["table sales", "kafka.on_error is 'ignore'"]),
        (GOOD.replace("on_error", "onerror"), ["table sales", "kafka.onerror is not a known field"]),
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
    assert [each.topic for each in chosen] == ["refunds", "Till.Sales-v1"]
    assert select(declarations, []) == declarations
    with pytest.raises(UserError, match=r"'sales'.*Choose from Till.Sales-v1, refunds"):
        select(declarations, ["sales"])
