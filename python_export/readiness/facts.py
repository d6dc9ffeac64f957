"""What the last run asked and found, for the model ops_export_weeks: the tables ops.topic_reads and ops.issues."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

from pyiceberg.catalog import Catalog
from pyiceberg.types import (
    BooleanType,
    DoubleType,
    IntegerType,
    ListType,
    LongType,
    NestedField,
    StructType,
    TimestamptzType,
)

from python_common.catalog.small_table import SmallTable
from python_common.errors import Issue
from python_common.weeks import IsoWeek
from python_export.datasets.declared import Topic
from python_export.readiness.completeness import EPOCH, SILENCE, TopicProgress

PARTITIONS = ListType(
    element_id=101,
    element=StructType(
        NestedField(102, "kafka_partition", IntegerType()),
        NestedField(103, "newest_at", TimestamptzType()),
        NestedField(104, "is_unread", BooleanType()),
    ),
)
WEEKS = ListType(
    element_id=111,
    element=StructType(
        NestedField(112, "starts_at", TimestamptzType()),
        NestedField(113, "records", LongType()),
        NestedField(114, "dead_letters", LongType()),
    ),
)


@dataclass(frozen=True)
class TopicRead:
    """What broker and bronze table of a topic had when they were asked."""

    topic: Annotated[str, "name of the Kafka topic"]
    asked_at: Annotated[datetime, "when they were asked"]
    error: Annotated[str | None, "why the table could not be read"]
    broker_error: Annotated[str | None, "why the broker's end offsets are unknown"]
    producer: Annotated[str | None, "what writes the topic"]
    silence_seconds: Annotated[int, "how long after a week's end the topic may have no record", LongType()]
    max_dead_letters: Annotated[int, "how many dead letters of a week are the usual few", LongType()]
    max_dead_letter_share: Annotated[float, "which share of a week's records may be dead letters", DoubleType()]
    partitions: Annotated[list[dict[str, Any]], "of each partition the newest time, and if it is unread", PARTITIONS]
    weeks: Annotated[list[dict[str, Any]], "of each week the records and the dead letters among them", WEEKS]


@dataclass(frozen=True)
class FoundIssue:
    """An issue of a run."""

    issue_id: Annotated[str, "time of the run and number of the issue"]
    origin: Annotated[str, "topic, dataset or unique id of a dbt node that is not to be trusted"]
    week_label: Annotated[str | None, "the week that it counts for; null for every week"]
    message: Annotated[str, "what is wrong, without data"]
    of_suppressed: Annotated[bool, "whether it is wrong for datasets with suppressed groups alone", BooleanType()]


READS, ISSUES = SmallTable("ops.topic_reads", TopicRead), SmallTable("ops.issues", FoundIssue)


def record_reads(catalog: Catalog, states: Mapping[Topic, TopicProgress | Issue]) -> None:
    """Record the states of topics, in the place of earlier ones."""
    reads = {topic.name: _read(topic, state) for topic, state in states.items()}
    READS.change(catalog, lambda before: {**before, **reads})


def record_issues(catalog: Catalog, found: Collection[tuple[IsoWeek | None, Issue]]) -> None:
    """Record the issues of a run, each of one week or of all, in the place of those of the run before."""
    at = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"
    rows = [
        FoundIssue(f"{at}/{number:04}", issue.object, str(week) if week else None, issue.message, issue.of_suppressed)
        for number, (week, issue) in enumerate(dict.fromkeys(found))
    ]
    ISSUES.change(catalog, lambda _: {row.issue_id: row for row in rows})


def _read(topic: Topic, state: TopicProgress | Issue) -> TopicRead:
    silence = SILENCE if topic.silence is None else topic.silence
    if isinstance(state, Issue):
        error, state = state.message, TopicProgress({}, {}, datetime.now(UTC))
    else:
        error = None
    return TopicRead(
        topic=topic.name,
        asked_at=state.asked_at,
        error=error,
        broker_error=state.error or None,
        producer=topic.producer,
        silence_seconds=int(silence.total_seconds()),
        max_dead_letters=topic.max_dead_letters.count,
        max_dead_letter_share=topic.max_dead_letters.share,
        partitions=_partitions(state),
        weeks=list(_weeks(state)),
    )


def _partitions(state: TopicProgress) -> list[dict[str, Any]]:
    return [
        {
            "kafka_partition": partition,
            "newest_at": state.watermarks.get(partition),
            "is_unread": partition in state.unread,
        }
        for partition in sorted(state.watermarks.keys() | state.unread)
    ]


def _weeks(state: TopicProgress) -> Iterable[dict[str, Any]]:
    for monday, (records, dead_letters) in sorted(state.weeks.items()):
        # A record may be stamped beyond what a time of Python can hold.
        if 0 <= monday < 253_402_300_800_000_000:
            starts_at = EPOCH + timedelta(microseconds=monday)
            yield {"starts_at": starts_at, "records": records, "dead_letters": dead_letters}
