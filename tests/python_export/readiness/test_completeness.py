"""Whether a week is over, and what is read of its topics."""

import uuid
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from python_common.catalog import property_keys
from python_common.catalog.catalog import _in_file, load_catalog, make_namespace
from python_common.config import connections
from python_common.config.settings import Settings
from python_common.errors import UserError
from python_common.spark import thrift
from python_common.weeks import IsoWeek
from python_export.datasets.declared import Dataset
from python_export.readiness.completeness import EPOCH, last_week, read_topics, require_past, without_rolled_back
from python_export.readiness.decision import TopicRead
from python_ingest.declare.topics import DeadLetterLimit, Declaration
from python_ingest.kafka.admin import Broker
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


READ = TopicRead(
    topic="events",
    bronze_table="bronze.events",
    snapshot_id=None,
    asked_at=END,
    error=None,
    broker_error=None,
    producer=None,
    silence_seconds=0,
    max_dead_letters=0,
    max_dead_letter_share=0.0,
    partitions=[],
    weeks=[],
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


def of(*topics: Declaration) -> Dataset:
    return replace(DATASET, topics=topics)


@pytest.fixture
def produce(stack: Settings, topic: Declaration) -> Callable[..., None]:
    """Add a record to the topic, to its first partition or another one."""
    producer = Producer(connections.kafka_client(stack))

    def add(partition: int = 0) -> None:
        producer.produce(topic.topic, b"x", partition=partition)
        assert producer.flush(10) == 0

    return add


@pytest.fixture
def topic(stack: Settings) -> Declaration:
    """A separate topic on the broker."""
    name = f"idle_{uuid.uuid4().hex[:8]}"
    admin = AdminClient(connections.kafka_client(stack))
    admin.create_topics([NewTopic(name, 2, 1)])[name].result()
    return Declaration(name, "bronze_tests", name)


def partitions(read: TopicRead) -> dict[int, tuple[datetime | None, bool]]:
    return {one["kafka_partition"]: (one["newest_at"], one["is_unread"]) for one in read.partitions}


def test_partitions_are_read_by_what_broker_and_table_hold(
    stack: Settings, topic: Declaration, produce: Callable[..., None]
) -> None:
    """An empty topic, records that have not landed, a killed ingester, dead letters, a recreated topic."""
    catalog = load_catalog(stack)
    make_namespace(catalog, "bronze_tests")
    topic_id = Broker(stack, 10).describe(topic.topic).topic_id
    row = {"kafka_partition": 0, "kafka_offset": 0, "ingest_batch": 1, "kafka_timestamp": END - INSTANT}
    before = END - INSTANT
    with thrift.connect(stack) as cursor:

        def read() -> TopicRead:
            return read_topics(stack, cursor, catalog, [of(topic)])[topic.topic]

        assert read().error == f"behind: {topic.topic} has landed nothing"
        properties = {"lakehouse.topic-id": topic_id, "lakehouse.key": "string"}
        table = catalog.create_table(topic.identifier, BRONZE, properties=properties)
        assert (read().error, read().broker_error, partitions(read())) == (None, None, {})
        produce()
        assert partitions(read()) == {0: (None, True)}
        table.append(pa.Table.from_pylist([row | {"ingested_at": END}], BRONZE))
        assert partitions(read()) == {0: (before, False)}
        # A record that has not landed may be of the week.
        produce()
        assert partitions(read()) == {0: (before, True)}
        table.append(pa.Table.from_pylist([row | {"kafka_offset": 1, "ingested_at": END}], BRONZE))
        assert partitions(read()) == {0: (before, False)}
        # An ingester that is killed between two batches leaves partition 1 behind.
        for partition in (0, 1, 1, 0):
            produce(partition)
        slow = row | {"kafka_partition": 1, "ingested_at": END}
        ahead = row | {"kafka_offset": 2, "kafka_timestamp": END, "ingested_at": END}
        table.append(pa.Table.from_pylist([ahead | {"decode_error": "unknown schema id 7"}], BRONZE))
        table.append(pa.Table.from_pylist([slow], BRONZE))
        # What cannot be decoded may be of any time: the watermark stays where it was.
        assert partitions(read()) == {0: (before, True), 1: (before, True)}
        table.append(pa.Table.from_pylist([ahead | {"kafka_offset": 3}], BRONZE))
        assert partitions(read()) == {0: (END, False), 1: (before, True)}
        # A clock that is ahead completes no week.
        fast = {"kafka_offset": 1, "kafka_timestamp": END, "ingested_at": END - timedelta(hours=2)}
        table.append(pa.Table.from_pylist([slow | fast], BRONZE))
        assert partitions(read()) == {0: (END, False), 1: (before, False)}
        # A recreated topic does not count for the old one.
        with table.transaction() as change:
            change.set_properties({"lakehouse.topic-id": "another"})
        assert partitions(read()) == {0: (END, True), 1: (before, True)}
        catalog.create_table(("bronze_tests", "gone"), BRONZE)
        gone = Declaration("gone", "bronze_tests", "gone")
        assert read_topics(stack, cursor, catalog, [of(gone)])["gone"].broker_error.startswith(
            "The topic 'gone' does not exist"
        )


def test_records_of_a_former_generation_move_no_watermark(stack: Settings, topic: Declaration) -> None:
    catalog = load_catalog(stack)
    make_namespace(catalog, "bronze_tests")
    properties = {
        property_keys.TOPIC_ID: Broker(stack, 10).describe(topic.topic).topic_id,
        property_keys.GENERATION: "1",
    }
    schema = BRONZE.append(pa.field("kafka_generation", pa.int32()))
    table = catalog.create_table(topic.identifier, schema, properties=properties)
    row = {"kafka_partition": 0, "kafka_offset": 0, "ingest_batch": 1, "kafka_timestamp": END, "ingested_at": END}
    with thrift.connect(stack) as cursor:
        for generation, newest in ((None, EPOCH), (1, END)):
            table.append(pa.Table.from_pylist([row | {"kafka_generation": generation}], schema))
            read = read_topics(stack, cursor, catalog, [of(topic)])[topic.topic]
            assert partitions(read) == {0: (newest, False)}


def test_other_topics_of_the_producer_are_read_too(stack: Settings, topic: Declaration) -> None:
    catalog = load_catalog(stack)
    make_namespace(catalog, "bronze_tests")
    chosen = replace(topic, producer="shop")
    same = Declaration("same", "bronze_tests", "same", producer="shop")
    known = of(chosen, same, Declaration("other", "bronze_tests", "other"))
    with thrift.connect(stack) as cursor:
        assert read_topics(stack, cursor, catalog, [of(chosen)], [known]).keys() == {topic.topic, "same"}
        assert read_topics(stack, cursor, catalog, [of(topic)], [known]).keys() == {topic.topic}


def test_stamped_records_are_counted_by_week(stack: Settings) -> None:
    """A record is of the week from its first to its last instant; without a stamp it counts when it came."""
    catalog = load_catalog(stack)
    make_namespace(catalog, "bronze_tests")
    name = f"broken_{uuid.uuid4().hex[:8]}"
    table = catalog.create_table(("bronze_tests", name), BRONZE)
    row = {"kafka_partition": 0, "ingest_batch": 1, "ingested_at": END}
    stamps = [WEEK.start - INSTANT] * 50 + [WEEK.start] * 3 + [END - INSTANT] * 27 + [END] * 40
    letters = [row | {"kafka_timestamp": stamp, "decode_error": "truncated"} for stamp in stamps]
    decoded = [row | {"kafka_timestamp": stamp} for stamp in [WEEK.start] * 70 + [None]]
    table.append(pa.Table.from_pylist(letters + decoded, BRONZE))
    limit = DeadLetterLimit(share=0.29, count=29)
    topic = Declaration(name, "bronze_tests", name, max_dead_letters=limit, silence="2h")
    with thrift.connect(stack) as cursor:
        read = read_topics(stack, cursor, catalog, [of(topic)])[name]
    counted = {one["starts_at"]: (one["records"], one["dead_letters"]) for one in read.weeks}
    assert counted == {WEEK.minus(1).start: (50, 50), WEEK.start: (100, 30), END: (41, 40)}
    assert read.dead_letters(WEEK) == 30
    assert (read.max_dead_letters, read.max_dead_letter_share, read.silence_seconds) == (29, 0.29, 7200)


def test_a_table_rolled_back_after_its_read_is_behind(offline_settings: Settings) -> None:
    """What a build reads then lacks records that were counted; what comes on top of the read is no loss."""
    catalog = load_catalog(offline_settings, create=True)
    catalog.create_namespace("bronze")
    table = catalog.create_table("bronze.events", BRONZE)
    row = {"kafka_partition": 0, "kafka_offset": 0, "ingest_batch": 1, "ingested_at": END}

    def land() -> int:
        table.append(pa.Table.from_pylist([row], BRONZE))
        return table.current_snapshot().snapshot_id

    def error_of(snapshot: int | None) -> str | None:
        read = replace(READ, bronze_table="bronze.events", snapshot_id=snapshot)
        return without_rolled_back(catalog, {"events": read})["events"].error

    first, second = land(), land()
    assert [error_of(snapshot) for snapshot in (None, first, second)] == [None] * 3
    with table.manage_snapshots() as rolled_back:
        rolled_back.rollback_to_snapshot(first)
    lost = "behind: bronze.events was rolled back, or created again, since events was read"
    assert [error_of(snapshot) for snapshot in (first, second)] == [None, lost]
    # The records that land next are others.
    land()
    assert [error_of(snapshot) for snapshot in (None, first, second)] == [None, None, lost]
    catalog.drop_table("bronze.events")
    assert error_of(first) == lost
    table = catalog.create_table("bronze.events", BRONZE)
    land()
    assert error_of(first) == lost


def test_a_topic_is_read_as_of_one_snapshot(stack: Settings, topic: Declaration) -> None:
    catalog = load_catalog(stack)
    make_namespace(catalog, "bronze_tests")
    table = catalog.create_table(topic.identifier, BRONZE)
    row = {"kafka_partition": 0, "kafka_offset": 0, "ingest_batch": 1, "kafka_timestamp": END, "ingested_at": END}
    with thrift.connect(stack) as cursor:
        assert read_topics(stack, cursor, catalog, [of(topic)])[topic.topic].snapshot_id is None
        table.append(pa.Table.from_pylist([row], BRONZE))
        read = read_topics(stack, cursor, catalog, [of(topic)])[topic.topic]
    assert (read.bronze_table, read.snapshot_id) == (topic.identifier, table.current_snapshot().snapshot_id)


def test_a_table_that_cannot_be_read_is_an_error_of_its_topic(stack: Settings) -> None:
    catalog = load_catalog(stack)
    make_namespace(catalog, "bronze_tests")
    names = [f"{name}_{uuid.uuid4().hex[:8]}" for name in ("absent", "foreign", "damaged", "good")]
    absent, foreign, damaged, good = (Declaration(name, "bronze_tests", name) for name in names)
    catalog.create_table(("bronze_tests", foreign.topic), pa.schema([("other", pa.string())]))
    metadata = catalog.create_table(("bronze_tests", damaged.topic), BRONZE).metadata_location
    Path(metadata.removeprefix("file://")).write_text("{")
    # As in a process that starts: the catalog has what it created in memory.
    _in_file.cache_clear()
    catalog = load_catalog(stack)
    catalog.create_table(("bronze_tests", good.topic), BRONZE)
    with thrift.connect(stack) as cursor:
        reads = read_topics(stack, cursor, catalog, [of(absent, foreign, damaged, good)])
    errors = {topic.topic: reads[topic.topic].error for topic in (absent, foreign, damaged, good)}
    assert errors[absent.topic] == f"behind: {absent.topic} has landed nothing"
    assert f"the metadata of bronze_tests.{damaged.topic}, is missing or damaged" in errors[damaged.topic]
    assert errors[foreign.topic].startswith(f"Spark failed to read how far {foreign.topic} is: ")
    assert errors[good.topic] is None
