"""Every allowed evolution of every topic, and every nullable field NULL, through the weekly job without a hand.

All of it lands in the lake of test_a_fresh_lake.py, as an increment on tables that were built from the sample data.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient

from python_common.catalog.catalog import load_catalog
from python_common.config import connections
from python_common.config.settings import Settings
from python_common.spark import thrift
from python_common.weeks import IsoWeek
from python_dev.stack.sample_data import produced_log
from python_dev.stack.sample_data.log import PAYMENTS, PIZZA, TRADES, shop_topic
from python_ingest.declare.topics import read_declarations
from tests.support.commands import run_lakehouse
from tests.support.evolutions import BEYOND_INT, PRICE, Case, cases, encode, originals
from tests.support.lake import SMALL, Lake, succeed

pytestmark = [pytest.mark.xdist_group("small lake"), pytest.mark.slow]

Position = tuple[int, int]
# What holds a record of a topic after deduplication.
DEDUPLICATED = {
    PAYMENTS: "int_payments_deduplicated",
    PIZZA: "int_store_orders_deduplicated",
    TRADES: "int_trades_deduplicated",
    shop_topic("addresses"): "int_addresses_versions",
    shop_topic("customers"): "int_customers_versions",
    shop_topic("products"): "int_products_versions",
    shop_topic("orders"): "int_orders_deduplicated",
    shop_topic("order_items"): "int_order_items_deduplicated",
}


@dataclass(frozen=True)
class Evolved:
    """A lake after all evolutions, and where each record landed."""

    settings: Settings
    landed: dict[tuple[str, Position], Case]

    def of(self, topic: str) -> dict[Position, Case]:
        return {position: case for (of_topic, position), case in self.landed.items() if of_topic == topic}


def produce(settings: Settings, week: IsoWeek) -> dict[tuple[str, Position], Case]:
    """Register every version under its topic's subjects and produce every case; return where each landed."""
    registry = SchemaRegistryClient(connections.registry_client(settings))
    producer = Producer(connections.kafka_client(settings))
    records = originals(produced_log(**SMALL, last_week=week), str(week))
    landed: dict[tuple[str, Position], Case] = {}

    def register(topic: str, side: str, schema: Any) -> int:
        return registry.register_schema(f"{topic}-{side}", Schema(json.dumps(schema), "AVRO"))

    for declaration in read_declarations():
        topic, original = declaration.topic, records[declaration.topic]
        for case in cases(topic, declaration.table, original):

            def delivered(error: Any, message: Any, case: Case = case) -> None:
                assert error is None, error
                landed[case.topic, (message.partition(), message.offset())] = case

            version = case.version
            value = encode(version.value, register(topic, "value", version.value), case.value)
            key = encode(version.key, register(topic, "key", version.key), case.key) if version.key else None
            moment = original.timestamp_ms + case.number
            producer.produce(topic, value, key, original.partition, timestamp=moment, on_delivery=delivered)
    assert producer.flush(30) == 0
    return landed


@pytest.fixture(scope="module")
def evolved(small_lake: Lake, published: object) -> Evolved:
    landed = produce(small_lake.settings, small_lake.last_week)
    succeed({"weekly": lambda: run_lakehouse("weekly", "--week", str(small_lake.last_week))})
    return Evolved(small_lake.settings, landed)


def scan(evolved: Evolved, name: str) -> list[dict[str, Any]]:
    return load_catalog(evolved.settings).load_table(name).scan().to_arrow().to_pylist()


def flat(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        for part in value.values():
            yield from flat(part)
    elif isinstance(value, list):
        for part in value:
            yield from flat(part)
    else:
        yield value


def survivors(evolved: Evolved, topic: str) -> dict[Position, dict[str, Any]]:
    rows = scan(evolved, f"deduplicated.{DEDUPLICATED[topic]}")
    if "version_key" in rows[0]:
        return {tuple(map(int, row["version_key"].split("-"))): row for row in rows if row["valid_to"] is None}
    return {(row["kafka_partition"], row["kafka_offset"]): row for row in rows}


def test_a_record_stays_unless_it_has_no_key_and_those_are_counted(evolved: Evolved) -> None:
    select = "select model_name, row_count from ops.data_quality_issues where issue_type like 'missing: no model%'"
    with thrift.connect(evolved.settings) as cursor:
        counted = dict(thrift.rows(cursor, select))
    for topic in DEDUPLICATED:
        rows = survivors(evolved, topic)
        lost = {case.what for position, case in evolved.of(topic).items() if position not in rows}
        dropped = {"half of the fields dropped", "all old fields dropped"}
        if topic == PAYMENTS:
            assert lost == {"order_id is NULL", *dropped}
            assert counted["stg_payments__payments"] == len(lost)
        elif topic == PIZZA:
            assert lost == {"store_id is NULL", "store_order_id is NULL", *dropped}
            assert counted["stg_storefront__store_orders"] == len(lost)
        else:
            assert lost == set(), topic


def test_a_value_that_needs_the_wider_type_is_in_its_row(evolved: Evolved) -> None:
    for topic in DEDUPLICATED:
        rows = survivors(evolved, topic)
        [(position, case)] = [
            (position, case) for position, case in evolved.of(topic).items() if case.version.name == "types widened"
        ]
        # Times were long before: they are larger still.
        large = {
            value
            for value in flat(case.value)
            if value == PRICE or (isinstance(value, int) and BEYOND_INT < value < 2 * BEYOND_INT)
        }
        if topic == TRADES:
            large = {Decimal(value).scaleb(-2) if value == case.value["price"] else value for value in large}
        unused = {case.value.get("table_number"), case.value.get("installments")}
        values = set(flat(rows[position]))
        assert large - unused <= values, (topic, large - values)
        assert large or topic == shop_topic("addresses"), topic
