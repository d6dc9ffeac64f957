"""Loading the sample data into a separate broker and registry: the topics have fixed names."""

import json
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource
from confluent_kafka.schema_registry import SchemaRegistryClient

from python_common.config.settings import Settings
from python_common.errors import UserError
from python_common.weeks import IsoWeek
from python_dev.stack.sample_data import load, produced_log
from python_dev.stack.sample_data.codec import schema_text
from python_dev.stack.sample_data.log import TOPICS, Log
from python_dev.stack.temporary import running

pytestmark = pytest.mark.stack

ARGUMENTS = {"orders": 60, "seed": 3, "weeks": 2, "last_week": IsoWeek.parse("2026-W30")}


@pytest.fixture(scope="module")
def empty_stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Settings]:
    """Kafka and registry without a record, in a separate home."""
    with running(tmp_path_factory.mktemp("sample-data"), "kafka", "registry") as (settings, _):
        yield settings


def landed(settings: Settings, count: int) -> dict[tuple[str, int, int], tuple]:
    """Return `count` records as Kafka holds them, by topic, partition and offset."""
    consumer = Consumer({"bootstrap.servers": settings.kafka_bootstrap_servers, "group.id": "test"})
    consumer.assign([TopicPartition(topic, partition, 0) for topic in TOPICS for partition in range(3)])
    by_position = {}
    try:
        while len(by_position) < count:
            message = consumer.poll(20)
            assert message is not None, f"{len(by_position)} of {count} records"
            assert message.error() is None
            position = (message.topic(), message.partition(), message.offset())
            headers = tuple(message.headers() or ())
            by_position[position] = (message.timestamp()[1], message.key(), message.value(), headers)
    finally:
        consumer.close()
    return by_position


def schema_ids(settings: Settings) -> dict[str, int]:
    """Return the ids that the registry gave, looked up by the text of the schemas."""
    client = SchemaRegistryClient({"url": settings.schema_registry_url})
    ids = {}
    for subject in client.get_subjects():
        for version in client.get_versions(subject):
            registered = client.get_version(subject, version)
            name, side = subject.removeprefix("shiftleft.public.").rsplit("-", 1)
            schema = f"{name}{'-key' if side == 'key' else ''}-v{version}"
            assert json.loads(registered.schema.schema_str) == json.loads(schema_text(schema))
            ids[schema] = registered.schema_id
    return ids


def assert_holds(settings: Settings, log: Log) -> None:
    ids = schema_ids(settings)
    expected = {
        (record.topic, record.partition, record.offset): (
            record.timestamp_ms,
            record.key and record.key.to_bytes(ids),
            record.value and record.value.to_bytes(ids),
            record.headers,
        )
        for record in log
    }
    assert landed(settings, len(log)) == expected


@pytest.mark.slow
def test_both_waves_land_as_in_the_log_and_only_once(empty_stack):
    full = produced_log(**ARGUMENTS)
    alone = load(empty_stack, **ARGUMENTS, topics=["stock_trades"])
    assert {topic for topic, records in alone.records.items() if records} == {"stock_trades"}
    report = load(empty_stack, **ARGUMENTS, behind="payments")
    by_position = landed(empty_stack, sum(report.records.values()))
    assert {record.topic for record in full if (record.topic, record.partition, record.offset) not in by_position} == {
        "payments"
    }
    last_day = (ARGUMENTS["last_week"].end - timedelta(days=1)).timestamp() * 1000
    assert all(stamp < last_day for (topic, *_), (stamp, *_) in by_position.items() if topic == "payments")
    for unknown in ({"behind": "payment"}, {"topics": ["payment"]}):
        with pytest.raises(UserError, match="There is no topic payment"):
            load(empty_stack, **ARGUMENTS, **unknown)
    with pytest.raises(UserError, match="Topic payments is not among the topics to produce"):
        load(empty_stack, **ARGUMENTS, topics=["pizza-orders"], behind="payments")

    newest = {name: value for name, value in ARGUMENTS.items() if name != "last_week"}
    for wave in (1, 2):
        if wave == 2:
            first, second = (Counter(record.topic for record in produced_log(**ARGUMENTS, wave=of)) for of in (1, 2))
            part = load(empty_stack, **ARGUMENTS, wave=2, topics=["pizza-orders"])
            assert part.records == {**first, "pizza-orders": second["pizza-orders"]} != first
            again = load(empty_stack, **newest)
            assert not again.produced
            assert again.records == part.records
            written = json.loads(again.expected_path.read_text())
            assert written["topics"]["payments"]["records"] == first["payments"]

        log = produced_log(**ARGUMENTS, wave=wave)
        report = load(empty_stack, **ARGUMENTS, wave=wave)
        assert report.produced
        assert sum(report.records.values()) == len(log)
        assert_holds(empty_stack, log)

        again = load(empty_stack, **ARGUMENTS, wave=wave)
        assert not again.produced
        assert again.records == report.records
        assert_holds(empty_stack, log)

        written = json.loads(report.expected_path.read_text())
        assert written["parameters"]["wave"] == wave
        assert {topic: figures["records"] for topic, figures in written["topics"].items()} == report.records

    again = load(empty_stack, **newest, behind="payments")
    assert not again.produced
    assert again.records == report.records

    admin = AdminClient({"bootstrap.servers": empty_stack.kafka_bootstrap_servers})
    (config,) = admin.describe_configs([ConfigResource(ConfigResource.Type.TOPIC, "payments")]).values()
    assert config.result()["retention.ms"].value == "-1"

    with pytest.raises(UserError, match="lakehouse stack down --wipe"):
        load(empty_stack, **{**ARGUMENTS, "seed": 4})

    producer = Producer({"bootstrap.servers": empty_stack.kafka_bootstrap_servers})
    producer.produce("stock_trades", value=b"stranger", partition=0)
    producer.flush()
    with pytest.raises(UserError, match="Topic stock_trades holds records that are not"):
        load(empty_stack, **ARGUMENTS, wave=2)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("kafka_bootstrap_servers", "Kafka does not answer at 127.0.0.1:1"),
        ("schema_registry_url", "schema registry does not answer at http://127.0.0.1:1"),
    ],
)
def test_a_service_that_is_down_is_named(empty_stack, address, message):
    broken = "127.0.0.1:1" if address == "kafka_bootstrap_servers" else "http://127.0.0.1:1"
    with pytest.raises(UserError, match=message):
        load(empty_stack.changed(**{address: broken}), **ARGUMENTS)
