"""A build of a few datasets on a fresh lake, several weeks at once, and everything broken at once.

The tests of this module run in order and share a lake of their own, with its services: what is tested is a history.
"""

import csv
import json
from email import message_from_bytes, policy
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient

from local_stack.sample_data import produced_log
from local_stack.sample_data.codec import schema_text
from local_stack.sample_data.expected.rules import week_of
from local_stack.sample_data.log import PAYMENTS, PIZZA, TRADES, Record, shop_topic
from python_common.catalog.catalog import load_catalog
from python_common.config import connections
from python_common.config.environment import home
from python_common.config.settings import Settings
from python_common.weeks import IsoWeek
from python_jobs.weekly import history
from tests.conftest import run_lakehouse
from tests.end_to_end.conftest import succeed
from tests.support.evolutions import ADDED, BEYOND_INT, cases, encode, originals

pytestmark = [pytest.mark.xdist_group("one bad thing"), pytest.mark.stack, pytest.mark.long]

DATASETS = ("order_lines", "completed_orders", "product_sales", "customer_activity", "product_demand")

SAMPLE = {"orders": 60, "seed": 7, "weeks": 3}
SIZE = [word for name, value in SAMPLE.items() for word in (f"--{name}", str(value))]
ADDRESSES, ORDERS, PRODUCTS = map(shop_topic, ("addresses", "orders", "products"))
PAYMENTS_LOST = 100
UNKNOWN_PRODUCT = 999_999


def last_week() -> IsoWeek:
    return IsoWeek.parse(json.loads((home() / "truth.json").read_text())["parameters"]["last_week"])


def versions(settings: Settings) -> set[str]:
    """Return what is published, as <dataset>/<week>/v<N>."""
    root = Path(settings.export_root)
    return {str(path.parent.relative_to(root)) for path in root.glob("*/*/v*/manifest.json")}


def test_an_export_builds_what_it_needs_on_a_fresh_lake_and_after_new_items(settings: Settings) -> None:
    """Tests of models that it does not build are not run, and the report does without tables that no build has made."""
    for wave in ("1", "2"):
        done = succeed(
            {
                "sample-data": lambda wave=wave: run_lakehouse("stack", "sample-data", *SIZE, "--wave", wave),
                "ingest": lambda: run_lakehouse("ingest", "run"),
                "export": lambda: run_lakehouse("export", "run", "--dataset", "order_lines", timeout=600),
            }
        )
        week = last_week()
        assert f"order_lines/{week}/v{wave}" in versions(settings)
        assert f"reports/{week}.html" in done["export"].stdout
    manifest = json.loads((Path(settings.export_root) / f"order_lines/{week}/v2/manifest.json").read_text())
    assert manifest["quarantined"] > 0
    assert manifest["dead_letters"] > 0


def test_several_weeks_are_published(settings: Settings) -> None:
    week = last_week()
    before = week.minus(1)
    done = succeed({"weekly": lambda: run_lakehouse("weekly", "--weeks", f"{before}..{week}", timeout=900)})
    new = {f"{dataset}/{label}/v1" for dataset in DATASETS for label in (before, week)} - {f"order_lines/{week}/v1"}
    [run] = history.runs(load_catalog(settings))
    assert (run.week, run.outcome) == (f"{before}..{week}", "published")
    assert set(run.versions.split(", ")) == new
    assert versions(settings) == new | {f"order_lines/{week}/v1", f"order_lines/{week}/v2"}
    assert "all tests passed" in done["weekly"].stdout
    for dataset in DATASETS:
        latest = json.loads((Path(settings.export_root) / dataset / "latest.json").read_text())
        assert latest["week"] == str(week)


def schema_of(settings: Settings, topic: str) -> tuple[int, dict[str, Any]]:
    """Return id and content of the newest schema of a topic's values."""
    registry = SchemaRegistryClient(connections.registry_client(settings))
    newest = registry.get_latest_version(f"{topic}-value")
    return newest.schema_id, json.loads(newest.schema.schema_str)


def register(settings: Settings, topic: str, schema: dict[str, Any]) -> int:
    registry = SchemaRegistryClient(connections.registry_client(settings))
    return registry.register_schema(f"{topic}-value", Schema(json.dumps(schema), "AVRO"))


def break_everything(settings: Settings, week: IsoWeek) -> None:
    """Produce what breaks a topic each, and delete a topic; what can be read belongs to the week or the one before."""
    log = produced_log(**SAMPLE, wave=2)
    records = originals(log, str(week))
    registry = SchemaRegistryClient(connections.registry_client(settings))
    producer = Producer(connections.kafka_client(settings))

    def encoded(subject: str, schema: Any, value: Any) -> bytes:
        return encode(schema, registry.register_schema(subject, Schema(json.dumps(schema), "AVRO")), value)

    def produce(original: Record, value: bytes, key: bytes | None = None) -> None:
        producer.produce(original.topic, value, key, original.partition, timestamp=original.timestamp_ms)

    for _ in range(PAYMENTS_LOST):
        produce(records[PAYMENTS], b"this is no payment")
    trade = encoded(f"{TRADES}-value", json.loads(schema_text("stock_trades-v1")), records[TRADES].payload)
    produce(records[ORDERS], trade)
    schemas = {side: json.loads(schema_text(f"products{side}-v1")) for side in ("", "-key")}
    unknown = dict.fromkeys(records[PRODUCTS].payload) | {"productid": UNKNOWN_PRODUCT}
    key = encoded(f"{PRODUCTS}-key", schemas["-key"], {"productid": UNKNOWN_PRODUCT})
    produce(records[PRODUCTS], encoded(f"{PRODUCTS}-value", schemas[""], unknown), key)
    late = next(
        record
        for record in log
        if record.topic == PIZZA and record.payload and week_of(record.timestamp_ms) == str(week.minus(1))
    )
    for order in (records[PIZZA], late):
        _, widened, *_ = cases(PIZZA, "pizza_orders", order)
        produce(order, encoded(f"{PIZZA}-value", widened.version.value, widened.value))
    assert producer.flush(30) == 0
    # A name of its own: what it does ends with it.
    admin = AdminClient(connections.kafka_client(settings))
    admin.delete_topics([ADDRESSES])[ADDRESSES].result(30)


def test_everything_broken_at_once_costs_only_what_comes_from_it(settings: Settings) -> None:
    """Payments are dead letters alone and addresses are gone: two datasets are withheld. The rest goes out on time.

    Product demand has suppressed groups, and has its one version of both weeks.
    """
    week = last_week()
    before = week.minus(1)
    published = versions(settings)
    break_everything(settings, week)
    weekly = run_lakehouse("weekly", "--week", str(week), timeout=900)
    assert weekly.returncode == 4, weekly.stdout[-4000:] + weekly.stderr[-2000:]
    assert versions(settings) - published == {
        f"order_lines/{week}/v3",
        f"order_lines/{before}/v2",
        *(f"customer_activity/{label}/v2" for label in (before, week)),
    }
    [file] = (Path(settings.export_root) / f"order_lines/{week}/v3").glob("order_lines_*.csv")
    assert max(int(row["quantity"]) for row in csv.DictReader(file.open())) > BEYOND_INT
    reasons = {
        "completed_orders": f"{PAYMENTS}: ",
        "product_sales": f"{ADDRESSES} could not be landed: The topic '{ADDRESSES}' does not exist",
    }
    wrong = [f"{dataset} {week} is withheld: {reason}" for dataset, reason in reasons.items()]
    wrong += [f"warning: the field {field} of {PIZZA} has no PII class" for field in ADDED]
    mail = message_from_bytes(max(home().glob("mail/*.eml")).read_bytes(), policy=policy.default)
    text = mail.get_body(("plain",)).get_content()
    for said in (weekly.stdout + weekly.stderr, text):
        for start in wrong:
            assert sum(line.startswith(start) for line in said.splitlines()) == 1, start
    foreign = load_catalog(settings).load_table("bronze.shiftleft_public_orders").scan().to_arrow().to_pylist()
    errors = [row["decode_error"] for row in foreign if row["decode_error"]]
    assert sum(f"belongs to {TRADES}-value" in error for error in errors) == 1
    assert not load_catalog(settings).load_table("ops.reconciliation").scan("difference <> 0").to_arrow()
