"""Decides whether a week may be exported: it is over, each topic has been read past its end, and could be decoded."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from pyhive import hive
from pyiceberg.catalog import Catalog

from lakehouse.errors import UserError
from lakehouse.settings import Settings
from lakehouse.weeks import IsoWeek
from python_export.datasets import spark_sql
from python_export.datasets.declared import Dataset, Topic
from python_export.datasets.withheld import Fault
from python_ingest.upkeep.progress import unread_partitions

# A producer whose clock is ahead must not move the watermark; the broker itself allows an hour.
FUTURE_TOLERANCE = "interval 1 hour"
# Of an erased record nothing is left but that it was decoded, and when it was stamped.
IS_ERASED = "startswith(decode_error, 'erased: ')"
BROKER_SECONDS = 10.0
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class TopicState:
    """What a topic's bronze table held when it was looked at.

    `watermarks` has of each partition the newest plausible Kafka timestamp of a record that could be decoded, EPOCH
    without one; `weeks` has by its first microsecond the records that are stamped in a week, and the dead letters among
    them.
    """

    watermarks: dict[int, datetime]
    weeks: dict[int, tuple[int, int]]

    def of(self, week: IsoWeek) -> tuple[int, int]:
        """Return the records and dead letters that are stamped in a week."""
        return self.weeks.get((week.start - EPOCH) // timedelta(microseconds=1), (0, 0))


def last_week(settings: Settings, now: datetime) -> IsoWeek:
    """Return the newest week that is over and has been waited for long enough."""
    return IsoWeek.last_complete(now - settings.export_delay)


def require_past(settings: Settings, week: IsoWeek, now: datetime) -> None:
    """Refuse a week that is not over, or whose late records are still waited for (LAKEHOUSE_EXPORT_DELAY).

    Raises:
        UserError: that is so at `now`.
    """
    due = week.end + settings.export_delay
    if due > now:
        waiting = f", and late records are waited for until {_show(due)}" if settings.export_delay else ""
        raise UserError(
            f"{week} is not over: it ends at {_show(week.end)}{waiting}",
            f"The last complete week is {last_week(settings, now)}",
        )


def look(cursor: hive.Cursor, catalog: Catalog, datasets: Iterable[Dataset]) -> dict[Topic, TopicState | Fault]:
    """Return how far the topics of some datasets are; a fault for one whose table cannot be read.

    To be asked before a build, so that the build reads all that is counted here.
    """
    topics = sorted({topic for dataset in datasets for topic in dataset.topics}, key=lambda topic: topic.name)
    found: dict[Topic, TopicState | Fault] = {}
    for topic in topics:
        try:
            found[topic] = _state(cursor, catalog, topic)
        except UserError as error:
            found[topic] = Fault(topic.name, error.message)
    return found


def faults(
    settings: Settings, catalog: Catalog, states: Mapping[Topic, TopicState | Fault], week: IsoWeek, now: datetime
) -> list[Fault]:
    """Return what is wrong with a week of each topic: it may lack records, or too many of them are dead letters.

    A topic is complete once its watermark is not before the week's end, and each partition that is itself behind holds
    all that the broker has: a killed ingester may have left it there. With a grace (LAKEHOUSE_EXPORT_GRACE) so is a
    topic that is silent: at `now`, so long after the week's end, that holds for all its partitions.
    """
    found = []
    for topic, state in states.items():
        if isinstance(state, Fault):
            found.append(state)
            continue
        if behind := _behind(settings, catalog, topic, state, week, now):
            found.append(Fault(topic.name, f"behind: {behind}"))
        records, dead_letters = state.of(week)
        if topic.max_dead_letters.exceeded(records, dead_letters):
            share = f"{dead_letters:,} of the {records:,} records of {week}"
            found.append(Fault(topic.name, f"{topic.name}: {share} are dead letters, more than its max_dead_letters"))
    return found


def dead_letters(states: Mapping[Topic, TopicState | Fault], dataset: Dataset, week: IsoWeek) -> int:
    """Return how many records that are stamped in a week, of the topics of a dataset, could not be decoded."""
    answered = [state for topic in dataset.topics if isinstance(state := states.get(topic), TopicState)]
    return sum(state.of(week)[1] for state in answered)


def _state(cursor: hive.Cursor, catalog: Catalog, topic: Topic) -> TopicState:
    if not catalog.table_exists((topic.bronze.schema, topic.bronze.name)):
        return TopicState({}, {})
    rows = spark_sql.run(
        cursor,
        # A record that is stamped beyond what Spark can hold has no stamp: it counts when it came.
        "select kafka_partition, unix_micros(date_trunc('week', coalesce(kafka_timestamp, ingested_at))),"
        f" count(*), count_if(decode_error is not null and not {IS_ERASED}),"
        f" unix_micros(max(case when (decode_error is null or {IS_ERASED})"
        f" and kafka_timestamp <= ingested_at + {FUTURE_TOLERANCE} then kafka_timestamp end))"
        f" from {spark_sql.relation(topic.bronze)} group by 1, 2",
        f"read how far {topic.name} is",
    )
    watermarks: dict[int, datetime] = {}
    weeks: dict[int, tuple[int, int]] = {}
    for partition, monday, records, dead, newest in rows:
        watermarks[partition] = max(watermarks.get(partition, EPOCH), EPOCH + timedelta(microseconds=newest or 0))
        records_before, dead_before = weeks.get(monday, (0, 0))
        weeks[monday] = (records_before + records, dead_before + dead)
    return TopicState(watermarks, weeks)


def _behind(
    settings: Settings, catalog: Catalog, topic: Topic, state: TopicState, week: IsoWeek, now: datetime
) -> str | None:
    """Return how far a topic is if it may still lack records of a week."""
    late = settings.export_grace is not None and now >= week.end + settings.export_grace
    newest = max(state.watermarks.values(), default=EPOCH)
    passed = {partition for partition, moment in state.watermarks.items() if moment >= week.end}
    if newest == EPOCH:
        return f"{topic.name} has landed nothing" + (" that could be decoded" if state.weeks else "")
    if not passed and not late:
        return f"{topic.name} at {_show(newest)}"
    if len(passed) == len(state.watermarks):
        return None
    try:
        bronze = (topic.bronze.schema, topic.bronze.name)
        lacking = unread_partitions(settings, catalog, topic.name, bronze, BROKER_SECONDS) - passed
    except UserError as error:
        return f"{topic.name} at {_show(newest)} ({error.message})"
    partitions = ", ".join(map(str, sorted(lacking)))
    return f"{topic.name} at {_show(newest)} (partitions not read to their ends: {partitions})" if lacking else None


def _show(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M:%S} UTC"
