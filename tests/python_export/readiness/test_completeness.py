"""When a week may be exported: it is over, late records were waited for, and no topic is behind."""

import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import product
from pathlib import Path

import pyarrow as pa
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from python_common.catalog import property_keys
from python_common.catalog.catalog import _in_file, load_catalog, make_namespace
from python_common.config import connections
from python_common.config.settings import Settings
from python_common.errors import Issue, UserError
from python_common.spark import thrift
from python_common.weeks import IsoWeek
from python_export.datasets.declared import Dataset, Topic
from python_export.readiness.completeness import (
    EPOCH,
    TopicProgress,
    check,
    dead_letters,
    last_week,
    read_topic_states,
    require_past,
)
from python_export.readiness.issues import withhold, withholds
from python_ingest.declare.topics import DeadLetterLimit
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


QUIET = Topic("shop.addresses", "bronze.addresses", producer="shop")
OTHER = Topic("shop.orders", "bronze.orders", producer="shop")
FOREIGN = Topic("till.orders", "bronze.till", producer="till")
ALONE = Topic("payments", "bronze.payments")
GRACE = timedelta(hours=24)
# Of partition 0 and 1 of a table: no row, none that could be decoded, one from before the end, one from after it.
NEWEST = (None, EPOCH, END - INSTANT, END)


def states() -> Iterator[TopicProgress]:
    """Yield what a table of two partitions may hold, and what the broker, which knows a third one, may have more."""
    moments = (END - INSTANT, END, END + GRACE - INSTANT, END + GRACE)
    unread = (frozenset(partitions) for partitions in ((), (0,), (1,), (2,), (0, 1)))
    for (*newest, asked_at), lacking in product(product(NEWEST, NEWEST, moments), [*unread]):
        watermarks = {partition: moment for partition, moment in enumerate(newest) if moment}
        yield TopicProgress(watermarks, {}, asked_at, lacking)


def dataset(name: str, topics: tuple[Topic, ...], suppressed: str | None = None) -> Dataset:
    lineage = frozenset(topic.name for topic in topics)
    return replace(DATASET, name=name, topics=topics, lineage=lineage, suppressed=suppressed)


def test_a_week_is_complete_by_record_producer_or_silence_of_what_was_read_to_its_end() -> None:
    """Every combination of two partitions, end offsets, times of asking, silences and another topic."""
    heard = TopicProgress({0: END}, {}, END + GRACE)
    others: dict[str, tuple[Topic, TopicProgress | Issue]] = {
        "heard": (OTHER, heard),
        "heard, unread elsewhere": (OTHER, replace(heard, watermarks={0: END, 1: EPOCH}, unread=frozenset({1}))),
        "silent": (OTHER, replace(heard, watermarks={0: EPOCH})),
        "unreadable": (OTHER, Issue("Spark failed", object=OTHER.name)),
        "of another producer": (FOREIGN, heard),
        "of a topic without one": (ALONE, heard),
    }
    seen = set()
    for state, (kind, (other, its)), silence in product(states(), others.items(), (None, GRACE / 2, GRACE * 2)):
        quiet = replace(QUIET, silence=silence)
        plain, small = dataset("plain", (quiet,)), dataset("small", (quiet,), "is_suppressed")
        issues, warnings = check({quiet: state, other: its}, [plain, small], WEEK, GRACE)

        is_past = [state.watermarks.get(partition, EPOCH) >= END for partition in (0, 1, 2)]
        is_read = all(past or partition not in state.unread for partition, past in enumerate(is_past))
        is_read = is_read and state.asked_at >= END
        by_record = is_read and (any(is_past) or kind == "heard")
        by_silence = is_read and not by_record and state.asked_at - END >= (GRACE if silence is None else silence)

        case = f"{state} {kind} {silence}"
        complete = [it.name for it in withhold([plain, small], issues, WEEK)[0]]
        assert complete == (["plain", "small"] if by_record else ["plain"] if by_silence else []), case
        assert [warning.object for warning in warnings] == ([quiet.name] if by_silence else []), case
        assert all(withholds(warning, plain) and withholds(warning, small) for warning in warnings)
        seen.add((by_record, by_silence))
    assert seen == {(True, False), (False, True), (False, False)}


def test_silence_of_one_topic_completes_no_other_of_its_producer() -> None:
    """By silence a topic passes with less than a record: the next one of its producer has another grace."""
    early, late = replace(QUIET, silence=GRACE / 2), OTHER
    state = TopicProgress({0: END - INSTANT}, {}, END + GRACE / 2)
    issues, warnings = check({early: state, late: state}, [dataset("both", (early, late))], WEEK, GRACE)
    assert [issue.message for issue in issues] == [f"behind: {late.name} at 2021-01-03 23:59:59 UTC"]
    assert [warning.object for warning in warnings] == [early.name]


def test_without_the_broker_a_week_is_complete_if_all_partitions_are_past_its_end() -> None:
    for newest in product(NEWEST, NEWEST):
        watermarks = {partition: moment for partition, moment in enumerate(newest) if moment}
        state = TopicProgress(watermarks, {}, END + GRACE, error="localhost:9092 is away")
        issues, warnings = check({QUIET: state}, [dataset("plain", (QUIET,))], WEEK, GRACE)
        assert bool(issues) is (not watermarks or min(watermarks.values()) < END), watermarks
        assert not warnings
        assert all("localhost:9092 is away" in issue.message for issue in issues)


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
    """A separate topic on the broker."""
    name = f"idle_{uuid.uuid4().hex[:8]}"
    admin = AdminClient(connections.kafka_client(stack))
    admin.create_topics([NewTopic(name, 2, 1)])[name].result()
    return Topic(name, f"bronze_tests.{name}")


def test_a_topic_is_read_to_its_end_by_what_broker_and_table_hold(
    stack: Settings, topic: Topic, produce: Callable[..., None]
) -> None:
    """An empty topic, records that have not landed, a killed ingester, dead letters, a recreated topic."""
    patient, impatient = timedelta(days=365_000), timedelta(0)
    catalog = load_catalog(stack)
    make_namespace(catalog, "bronze_tests")
    topic_id = Broker(stack, 10).describe(topic.name).topic_id
    of_topic = dataset("one", (topic,))
    row = {"kafka_partition": 0, "kafka_offset": 0, "ingest_batch": 1, "kafka_timestamp": END - INSTANT}
    with thrift.connect(stack) as cursor:

        def reported(grace: timedelta, *others: Topic) -> list[str]:
            states = read_topic_states(stack, cursor, catalog, [of_topic], [dataset("other", others)])
            return [issue.message for issue in check(states, [of_topic], WEEK, grace)[0]]

        nothing = f"behind: {topic.name} has landed nothing"
        assert reported(impatient) == [nothing]
        table = catalog.create_table(
            ("bronze_tests", topic.name), BRONZE, properties={"lakehouse.topic-id": topic_id, "lakehouse.key": "string"}
        )
        assert reported(patient) == [nothing]
        assert reported(impatient) == []
        produce()
        assert reported(impatient) == [f"{nothing} (partitions not read to their ends: 0)"]
        table.append(pa.Table.from_pylist([row | {"ingested_at": END}], BRONZE))
        behind = f"behind: {topic.name} at 2021-01-03 23:59:59 UTC"
        assert reported(patient) == [behind]
        assert reported(impatient) == []
        # A record that has not landed may be of the week.
        produce()
        assert reported(impatient) == [f"{behind} (partitions not read to their ends: 0)"]
        table.append(pa.Table.from_pylist([row | {"kafka_offset": 1, "ingested_at": END}], BRONZE))
        assert reported(impatient) == []
        # An ingester that is killed between two batches leaves partition 1 behind.
        for partition in (0, 1, 1, 0):
            produce(partition)
        slow = row | {"kafka_partition": 1, "ingested_at": END}
        ahead = row | {"kafka_offset": 2, "kafka_timestamp": END, "ingested_at": END}
        table.append(pa.Table.from_pylist([ahead | {"decode_error": "unknown schema id 7"}], BRONZE))
        table.append(pa.Table.from_pylist([slow], BRONZE))
        # What cannot be decoded may be of any time: the watermark stays where it was.
        assert reported(patient) == [f"{behind} (partitions not read to their ends: 0, 1)"]
        table.append(pa.Table.from_pylist([ahead | {"kafka_offset": 3}], BRONZE))
        at_the_end = f"behind: {topic.name} at 2021-01-04 00:00:00 UTC (partitions not read to their ends: 1)"
        assert reported(patient) == [at_the_end]
        table.append(pa.Table.from_pylist([slow | {"kafka_offset": 1}], BRONZE))
        assert reported(patient) == []
        # A recreated topic does not count for the old one.
        with table.transaction() as change:
            change.set_properties({"lakehouse.topic-id": "another"})
        assert reported(impatient) == [at_the_end]
        catalog.create_table(("bronze_tests", "gone"), BRONZE)
        gone = dataset("gone", (Topic("gone", "bronze_tests.gone"),))
        [issue] = check(read_topic_states(stack, cursor, catalog, [gone]), [gone], WEEK, impatient)[0]
        assert issue.message.startswith("behind: gone has landed nothing (The topic 'gone' does not exist")


def test_records_of_a_former_generation_do_not_pass_a_weeks_end(stack: Settings, topic: Topic) -> None:
    catalog = load_catalog(stack)
    make_namespace(catalog, "bronze_tests")
    properties = {
        property_keys.TOPIC_ID: Broker(stack, 10).describe(topic.name).topic_id,
        property_keys.GENERATION: "1",
    }
    schema = BRONZE.append(pa.field("kafka_generation", pa.int32()))
    table = catalog.create_table(topic.bronze, schema, properties=properties)
    row = {"kafka_partition": 0, "kafka_offset": 0, "ingest_batch": 1, "kafka_timestamp": END, "ingested_at": END}
    with thrift.connect(stack) as cursor:
        for generation, behind in ((None, [topic.name]), (1, [])):
            table.append(pa.Table.from_pylist([row | {"kafka_generation": generation}], schema))
            states = read_topic_states(stack, cursor, catalog, [dataset("one", (topic,))])
            issues, _ = check(states, [dataset("one", (topic,))], WEEK, timedelta(days=365_000))
            assert [issue.object for issue in issues] == behind


def test_another_topic_of_the_producer_is_read_for_a_dataset_that_does_not_come_from_it(
    stack: Settings, topic: Topic
) -> None:
    catalog = load_catalog(stack)
    make_namespace(catalog, "bronze_tests")
    topic = replace(topic, producer="shop")
    heard, unheard = (Topic(f"{topic.name}{end}", f"bronze_tests.{topic.name}{end}") for end in "ab")
    for it, rows in ((topic, []), (heard, [END])):
        properties = {"lakehouse.topic-id": Broker(stack, 10).describe(topic.name).topic_id}
        table = catalog.create_table(it.bronze, BRONZE, properties=properties)
        row = {"kafka_partition": 0, "kafka_offset": 0, "ingest_batch": 1, "ingested_at": END}
        table.append(pa.Table.from_pylist([row | {"kafka_timestamp": stamp} for stamp in rows], BRONZE))
    with thrift.connect(stack) as cursor:
        for producer, expected in (("shop", []), ("till", [topic.name])):
            known = [dataset("known", (topic, replace(heard, producer=producer), replace(unheard, producer="till")))]
            states = read_topic_states(stack, cursor, catalog, [dataset("one", (topic,))], known)
            assert len(states) == (2 if producer == "shop" else 1)
            issues, _ = check(states, [dataset("one", (topic,))], WEEK, timedelta(days=365_000))
            assert [issue.object for issue in issues] == expected


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
    topic = Topic(name, f"bronze_tests.{name}")
    with thrift.connect(stack) as cursor:

        def reported(limit: DeadLetterLimit) -> list[str]:
            limited = replace(DATASET, topics=(replace(topic, max_dead_letters=limit),))
            states = read_topic_states(stack, cursor, catalog, [limited])
            assert dead_letters(states, limited, WEEK) == 30
            return [issue.message for issue in check(states, [limited], WEEK, GRACE)[0]]

        too_many = f"{name}: 30 of the 100 records of 2020-W53 are dead letters, more than its max_dead_letters"
        assert reported(DeadLetterLimit()) == [too_many]
        assert reported(DeadLetterLimit(share=0.29, count=29)) == [too_many]
        assert reported(DeadLetterLimit(share=0.3)) == []
        assert reported(DeadLetterLimit(count=30)) == []


def test_a_topic_whose_table_cannot_be_read_is_the_only_issue(stack: Settings) -> None:
    catalog = load_catalog(stack)
    make_namespace(catalog, "bronze_tests")
    names = [f"{name}_{uuid.uuid4().hex[:8]}" for name in ("absent", "foreign", "damaged", "good")]
    absent, foreign, damaged, good = (Topic(name, f"bronze_tests.{name}") for name in names)
    catalog.create_table(("bronze_tests", foreign.name), pa.schema([("other", pa.string())]))
    metadata = catalog.create_table(("bronze_tests", damaged.name), BRONZE).metadata_location
    Path(metadata.removeprefix("file://")).write_text("{")
    # As in a process that starts: the catalog has what it created in memory.
    _in_file.cache_clear()
    catalog = load_catalog(stack)
    table = catalog.create_table(("bronze_tests", good.name), BRONZE)
    row = {"kafka_partition": 0, "kafka_offset": 0, "ingest_batch": 1, "kafka_timestamp": END, "ingested_at": END}
    table.append(pa.Table.from_pylist([row], BRONZE))
    with thrift.connect(stack) as cursor:
        datasets = [replace(DATASET, topics=(absent, foreign, damaged, good))]
        states = read_topic_states(stack, cursor, catalog, datasets)
    first, second, third = check(states, datasets, WEEK, GRACE)[0]
    assert (first.object, first.message) == (absent.name, f"behind: {absent.name} has landed nothing")
    assert second.object == damaged.name
    assert f"the metadata of bronze_tests.{damaged.name}, is missing or damaged" in second.message
    assert third.object == foreign.name
    assert third.message.startswith(f"Spark failed to read how far {foreign.name} is: ")
