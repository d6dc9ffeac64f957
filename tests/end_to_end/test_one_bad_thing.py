"""Everything broken at once, on the lake of test_a_fresh_lake.py. Its topic of addresses is gone afterwards."""

import json
from email import message_from_bytes, policy
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient

from python_common.catalog.catalog import load_catalog
from python_common.config import connections
from python_common.config.environment import home
from python_common.config.settings import Settings
from python_common.weeks import IsoWeek
from python_dev.stack.sample_data import produced_log
from python_dev.stack.sample_data.codec import schema_text
from python_dev.stack.sample_data.expected.rules import week_of
from python_dev.stack.sample_data.log import PAYMENTS, PIZZA, TRADES, Record, shop_topic
from tests.support.commands import run_lakehouse
from tests.support.lake import SMALL, Lake
from tests.support.registry_avro import encode

pytestmark = [pytest.mark.xdist_group("small lake"), pytest.mark.slow]

ADDRESSES, ORDERS, PRODUCTS = map(shop_topic, ("addresses", "orders", "products"))
PAYMENTS_LOST = 100
UNKNOWN_PRODUCT = 999_999
LATE_ORDER = 1_000_000
# Fields that no version of the store orders has, and no source declares.
ADDED = {"added_text": "string", "added_number": "float"}


def next_version(published: set[str], dataset: str, week: IsoWeek) -> str:
    prefix = f"{dataset}/{week}/v"
    return f"{prefix}{1 + max(int(path.removeprefix(prefix)) for path in published if path.startswith(prefix))}"


def break_everything(settings: Settings, week: IsoWeek) -> None:
    """Produce what breaks a topic each, and delete a topic; what can be read belongs to the week or the one before."""
    log = produced_log(**SMALL, last_week=week)

    def one_of(topic: str, its_week: IsoWeek = week) -> Record:
        of_topic = (record for record in log if record.topic == topic and record.payload)
        return next(record for record in of_topic if week_of(record.timestamp_ms) == str(its_week))

    registry = SchemaRegistryClient(connections.registry_client(settings))
    producer = Producer(connections.kafka_client(settings))

    def encoded(subject: str, schema: Any, value: Any) -> bytes:
        return encode(schema, registry.register_schema(subject, Schema(json.dumps(schema), "AVRO")), value)

    def send(original: Record, value: bytes, key: bytes | None = None) -> None:
        producer.produce(original.topic, value, key, original.partition, timestamp=original.timestamp_ms)

    payment, product = one_of(PAYMENTS), one_of(PRODUCTS)
    for _ in range(PAYMENTS_LOST):
        send(payment, b"this is no payment")
    trade = encoded(f"{TRADES}-value", json.loads(schema_text("stock_trades-v1")), one_of(TRADES).payload)
    send(one_of(ORDERS), trade)
    schemas = {side: json.loads(schema_text(f"products{side}-v1")) for side in ("", "-key")}
    unknown = dict.fromkeys(product.payload) | {"productid": UNKNOWN_PRODUCT}
    key = encoded(f"{PRODUCTS}-key", schemas["-key"], {"productid": UNKNOWN_PRODUCT})
    send(product, encoded(f"{PRODUCTS}-value", schemas[""], unknown), key)
    orders = json.loads(schema_text("pizza-orders-v2"))
    orders["fields"] += [{"name": name, "type": ["null", kind], "default": None} for name, kind in ADDED.items()]
    for number, order in enumerate((one_of(PIZZA), one_of(PIZZA, week.minus(1))), LATE_ORDER):
        value = order.payload | {"store_order_id": number, "added_text": "m", "added_number": 0.5}
        send(order, encoded(f"{PIZZA}-value", orders, value))
    assert producer.flush(30) == 0
    # A separate name: what it does ends with it.
    admin = AdminClient(connections.kafka_client(settings))
    admin.delete_topics([ADDRESSES])[ADDRESSES].result(30)


def test_everything_broken_at_once_costs_only_what_comes_from_it(small_lake: Lake, published: object) -> None:
    """Payments are dead letters alone and addresses are gone: two datasets are withheld. The rest goes out on time.

    Product demand has suppressed groups, and has its one version of both weeks.
    """
    settings, week = small_lake.settings, small_lake.last_week
    before = small_lake.versions()
    break_everything(settings, week)
    weekly = run_lakehouse("weekly", "--week", str(week))
    assert weekly.returncode == 4, weekly.stdout[-4000:] + weekly.stderr[-2000:]
    assert small_lake.versions() - before == {
        next_version(before, dataset, label)
        for dataset in ("order_lines", "customer_activity")
        for label in (week.minus(1), week)
    }
    [file] = (Path(settings.export_root) / next_version(before, "order_lines", week)).glob("*/order_lines_*.csv")
    assert f"-{LATE_ORDER}-" in file.read_text()
    reasons = {
        "completed_orders": f"{PAYMENTS}: ",
        "product_sales": f"{ADDRESSES} could not be landed: The topic '{ADDRESSES}' does not exist",
    }
    decided = small_lake.reasons(week)
    assert {dataset for dataset, withheld_by in decided.items() if withheld_by} == reasons.keys()
    wrong = []
    for dataset, reason in reasons.items():
        line = next(line for line in weekly.stdout.splitlines() if line.startswith(f"{dataset} {week} is withheld: "))
        assert {*line.partition("withheld: ")[2].split("; ")} == {*decided[dataset]}, line
        assert any(one.startswith(reason) for one in decided[dataset])
        wrong.append(line)
    wrong += [f"warning: the field {field} of {PIZZA} has no PII class" for field in ADDED]
    mails = (message_from_bytes(path.read_bytes(), policy=policy.default) for path in home().glob("mail/*.eml"))
    text = "".join(mail.get_body(("plain",)).get_content() for mail in mails)
    for output in (weekly.stdout + weekly.stderr, text):
        for start in wrong:
            assert sum(line.startswith(start) for line in output.splitlines()) == 1, start
    foreign = load_catalog(settings).load_table("bronze.shiftleft_public_orders").scan().to_arrow().to_pylist()
    errors = [row["decode_error"] for row in foreign if row["decode_error"]]
    assert sum(f"belongs to {TRADES}-value" in error for error in errors) == 1
    assert not load_catalog(settings).load_table("ops.reconciliation").scan("difference <> 0").to_arrow()
