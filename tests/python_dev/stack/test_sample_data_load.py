"""Loading the sample data into a separate broker and registry: the topics have fixed names."""

import json
from collections import Counter
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer

from python_common.config.settings import Settings
from python_common.errors import UserError
from python_common.weeks import IsoWeek
from python_dev.stack.sample_data import load, produced_log
from python_dev.stack.temporary import running

pytestmark = pytest.mark.stack

ARGUMENTS = {"orders": 60, "seed": 3, "weeks": 2, "last_week": IsoWeek.parse("2026-W30")}


@pytest.fixture(scope="module")
def empty_stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Settings]:
    """Kafka and registry without a record, in a separate home."""
    with running(tmp_path_factory.mktemp("sample-data"), "kafka", "registry") as (settings, _):
        yield settings


@pytest.mark.slow
def test_each_wave_is_produced_once(empty_stack):
    alone = load(empty_stack, **ARGUMENTS, topics=["stock_trades"])
    assert {topic for topic, records in alone.records.items() if records} == {"stock_trades"}
    held_back = load(empty_stack, **ARGUMENTS, behind="payments")
    missing = Counter(record.topic for record in produced_log(**ARGUMENTS)) - Counter(held_back.records)
    assert missing.keys() == {"payments"}
    for unknown in ({"behind": "payment"}, {"topics": ["payment"]}):
        with pytest.raises(UserError, match="There is no topic payment"):
            load(empty_stack, **ARGUMENTS, **unknown)
    with pytest.raises(UserError, match="Topic payments is not among the topics to produce"):
        load(empty_stack, **ARGUMENTS, topics=["pizza-orders"], behind="payments")
    for wave in (1, 2):
        for is_new in (True, False):
            report = load(empty_stack, **ARGUMENTS, wave=wave)
            assert report.produced == is_new
            assert report.records == Counter(record.topic for record in produced_log(**ARGUMENTS, wave=wave))
        written = json.loads(report.expected_path.read_text())
        assert written["parameters"]["wave"] == wave
    with pytest.raises(UserError, match="lakehouse stack down --wipe"):
        load(empty_stack, **{**ARGUMENTS, "seed": 4})
    producer = Producer({"bootstrap.servers": empty_stack.kafka_bootstrap_servers})
    producer.produce("stock_trades", value=b"stranger", partition=0)
    producer.flush()
    with pytest.raises(UserError, match="Topic stock_trades holds records that are not"):
        load(empty_stack, **ARGUMENTS, wave=2)
