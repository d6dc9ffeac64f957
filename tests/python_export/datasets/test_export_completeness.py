"""When a week may be exported: it is over, late records were waited for, and no topic is behind."""

import uuid
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from lakehouse import connections, thrift
from lakehouse.catalog import load_catalog, make_namespace
from lakehouse.errors import UserError
from lakehouse.settings import Settings
from lakehouse.weeks import IsoWeek
from python_export.datasets.completeness import dead_letters, faults, last_week, look, require_past
from python_export.datasets.declared import Table, Topic
from python_ingest.kafka.broker import Broker
from python_ingest.topics import DeadLetterLimit
from tests.support.hostile_rows import DATASET

WEEK = IsoWeek(2020, 53)
END = datetime(2021, 1, 4, tzinfo=UTC)
INSTANT = timedelta(microseconds=1)
BRONZE = pa.schema(
    [
        ("kafka_partition", pa.int32()),
        ("kafka_offset", pa.int64()),
        ("ingest_batch", pa.int64()),
        ("kafka_timestamp", pa.timestamp("us", "UTC")),
        ("ingested_at", pa.timestamp("us", "UTC")),
        ("decode_error", pa.string()),
    ]
)


def test_a_week_is_over_at_its_end(offline_settings: Settings) -> None:
    require_past(offline_settings, WEEK, END)
    with pytest.raises(UserError, match=r"2020-W53 is not over: .* 2021-01-04 .* last complete week is 2020-W52"):
        require_past(offline_settings, WEEK, END - INSTANT)


def test_late_records_are_waited_for(offline_settings: Settings) -> None:
    patient = offline_settings.changed(export_delay=timedelta(hours=6))
    due = END + timedelta(hours=6)
    require_past(patient, WEEK, due)
    assert last_week(patient, due) == WEEK
    assert last_week(patient, due - INSTANT) == WEEK.minus(1)
    with pytest.raises(UserError, match=r"until 2021-01-04 06:00:00 UTC\. The last complete week is 2020-W52"):
        require_past(patient, WEEK, due - INSTANT)


@pytest.fixture
def produce(stack: Settings, topic: Topic) -> Callable[..., None]:
    """Add a record to the topic, to its first partition or another one."""
    producer = Producer(connections.kafka_client(stack))

    def add(partition: int = 0) -> None:
        producer.produce(topic.name, b"x", partition=partition)
        assert producer.flush(10) == 0

    return add


@pytest.fixture
def topic(stack: Settings) -> Topic:
    """A topic of its own on the broker."""
    name = f"idle_{uuid.uuid4().hex[:8]}"
    admin = AdminClient(connections.kafka_client(stack))
    admin.create_topics([NewTopic(name, 2, 1)])[name].result()
    return Topic(name, Table("bronze_tests", name))


def test_a_silent_topic_is_complete_after_the_grace_if_it_is_read_to_the_end(
    stack: Settings, topic: Topic, produce: Callable[..., None]
) -> None:
    """So is, without a grace, a partition of a topic whose other ones are past the week's end."""
    patient = stack.changed(export_grace=timedelta(hours=24))
    due = END + timedelta(hours=24)
    catalog = load_catalog(stack)
    make_namespace(catalog, "bronze_tests")
    topic_id = Broker(stack, 10).describe(topic.name).topic_id
    table = catalog.create_table(
        ("bronze_tests", topic.name), BRONZE, properties={"lakehouse.topic-id": topic_id, "lakehouse.key": "string"}
    )
    produce()
    with thrift.connect(stack) as cursor:

        def found(settings: Settings, now: datetime) -> list[str]:
            states = look(cursor, catalog, [replace(DATASET, topics=(topic,))])
            return [fault.reason for fault in faults(settings, catalog, states, WEEK, now)]

        assert found(patient, due) == [f"behind: {topic.name} has landed nothing"]
        row = {"kafka_partition": 0, "kafka_offset": 0, "ingest_batch": 1, "kafka_timestamp": END - INSTANT}
        table.append(pa.Table.from_pylist([row | {"ingested_at": END}], BRONZE))
        behind = f"behind: {topic.name} at 2021-01-03 23:59:59 UTC"
        assert found(stack, due) == [behind]
        assert found(patient, due - INSTANT) == [behind]
        assert found(patient, due) == []
        # A record that has not landed may be of the week.
        produce()
        assert found(stack, due) == [behind]
        assert found(patient, due) == [f"{behind} (partitions not read to their ends: 0)"]
        table.append(pa.Table.from_pylist([row | {"kafka_offset": 1, "ingested_at": END}], BRONZE))
        assert found(patient, due) == []
        # An ingester that is killed between two batches leaves partition 1 behind.
        for partition in (0, 1, 1, 0):
            produce(partition)
        slow = row | {"kafka_partition": 1, "ingested_at": END}
        ahead = row | {"kafka_offset": 2, "kafka_timestamp": END, "ingested_at": END}
        table.append(pa.Table.from_pylist([ahead | {"decode_error": "unknown schema id 7"}], BRONZE))
        table.append(pa.Table.from_pylist([slow], BRONZE))
        # What cannot be decoded may be of any time: the watermark stays where it was.
        assert found(stack, END) == [behind]
        table.append(pa.Table.from_pylist([ahead | {"kafka_offset": 3}], BRONZE))
        at_the_end = f"behind: {topic.name} at 2021-01-04 00:00:00 UTC (partitions not read to their ends: 1)"
        assert found(stack, END) == [at_the_end]
        table.append(pa.Table.from_pylist([slow | {"kafka_offset": 1}], BRONZE))
        assert found(stack, END) == []
        # A topic that was created anew says nothing about the old one.
        with table.transaction() as change:
            change.set_properties({"lakehouse.topic-id": "another"})
        assert found(patient, due) == [at_the_end]


def test_a_topic_with_too_many_dead_letters_in_the_week_is_not_taken_for_complete(stack: Settings) -> None:
    """Those of other weeks do not count, and what is declared as usual is not too many."""
    catalog = load_catalog(stack)
    make_namespace(catalog, "bronze_tests")
    name = f"broken_{uuid.uuid4().hex[:8]}"
    table = catalog.create_table(("bronze_tests", name), BRONZE)
    row = {"kafka_partition": 0, "ingest_batch": 1, "ingested_at": END}
    stamps = [WEEK.start - INSTANT] * 50 + [WEEK.start] * 3 + [END - INSTANT] * 27 + [END] * 40
    letters = [row | {"kafka_timestamp": stamp, "decode_error": "truncated"} for stamp in stamps]
    decoded = [row | {"kafka_timestamp": stamp} for stamp in [WEEK.start] * 70 + [END]]
    table.append(pa.Table.from_pylist(letters + decoded, BRONZE))
    topic = Topic(name, Table("bronze_tests", name))
    with thrift.connect(stack) as cursor:

        def found(limit: DeadLetterLimit) -> list[str]:
            dataset = replace(DATASET, topics=(replace(topic, max_dead_letters=limit),))
            states = look(cursor, catalog, [dataset])
            assert dead_letters(states, dataset, WEEK) == 30
            return [fault.reason for fault in faults(stack, catalog, states, WEEK, END)]

        too_many = f"{name}: 30 of the 100 records of 2020-W53 are dead letters, more than its max_dead_letters"
        assert found(DeadLetterLimit()) == [too_many]
        assert found(DeadLetterLimit(share=0.29, count=29)) == [too_many]
        assert found(DeadLetterLimit(share=0.3)) == []
        assert found(DeadLetterLimit(count=30)) == []


def test_a_topic_whose_table_cannot_be_read_is_at_fault_alone(stack: Settings) -> None:
    catalog = load_catalog(stack)
    make_namespace(catalog, "bronze_tests")
    names = [f"{name}_{uuid.uuid4().hex[:8]}" for name in ("absent", "foreign", "good")]
    absent, foreign, good = (Topic(name, Table("bronze_tests", name)) for name in names)
    catalog.create_table(("bronze_tests", foreign.name), pa.schema([("other", pa.string())]))
    table = catalog.create_table(("bronze_tests", good.name), BRONZE)
    row = {"kafka_partition": 0, "kafka_offset": 0, "ingest_batch": 1, "kafka_timestamp": END, "ingested_at": END}
    table.append(pa.Table.from_pylist([row], BRONZE))
    with thrift.connect(stack) as cursor:
        states = look(cursor, catalog, [replace(DATASET, topics=(absent, foreign, good))])
    first, second = faults(stack, catalog, states, WEEK, END)
    assert (first.place, first.reason) == (absent.name, f"behind: {absent.name} has landed nothing")
    assert second.place == foreign.name
    assert second.reason.startswith(f"Spark failed to read how far {foreign.name} is: ")
