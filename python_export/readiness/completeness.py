"""Decides whether a week may be exported: it is over, each topic has passed its end, and could be decoded."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from pyhive import hive
from pyiceberg.catalog import Catalog

from python_common.catalog import property_keys
from python_common.catalog.catalog import load_table
from python_common.config.settings import Settings
from python_common.errors import Issue, UserError
from python_common.spark import spark_sql
from python_common.weeks import IsoWeek
from python_export.datasets.declared import Dataset, Topic
from python_ingest.bronze.positions import unread_partitions

# A producer whose clock is ahead must not move the watermark; the broker itself allows an hour.
FUTURE_TOLERANCE = "interval 1 hour"
# Of an erased record nothing is left but that it was decoded, and when it was stamped.
IS_ERASED = "startswith(decode_error, 'erased: ')"
BROKER_SECONDS = 10.0
# A topic whose producer sends at least daily has sent something by then; others declare `config.meta.kafka.silence`.
SILENCE = timedelta(hours=24)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class TopicProgress:
    """What a topic's bronze table contained when it was read.

    `watermarks` has of each partition the newest plausible Kafka timestamp of a record that could be decoded, EPOCH
    without one; `weeks` has by its first microsecond the records that are stamped in a week, and the dead letters among
    them. `unread` are the partitions of which the table lacked records, by the end offsets that the broker had at
    `asked_at`; `error` is why they are unknown.
    """

    watermarks: dict[int, datetime]
    weeks: dict[int, tuple[int, int]]
    asked_at: datetime
    unread: frozenset[int] = frozenset()
    error: str = ""

    def of(self, week: IsoWeek) -> tuple[int, int]:
        """Return the records and dead letters that are stamped in a week."""
        return self.weeks.get((week.start - EPOCH) // timedelta(microseconds=1), (0, 0))

    def past(self, week: IsoWeek) -> set[int]:
        """Return the partitions that hold a decoded record from after a week's end."""
        return {partition for partition, newest in self.watermarks.items() if newest >= week.end}

    def is_read(self, week: IsoWeek) -> bool:
        """Return whether each partition is past a week's end, or read to an end offset asked for after it.

        Without the broker's answer the table's partitions count alone.
        """
        past = self.past(week)
        if self.error:
            return bool(past) and len(past) == len(self.watermarks)
        return self.asked_at >= week.end and self.unread <= past


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


def read_topic_states(
    settings: Settings,
    cursor: hive.Cursor,
    catalog: Catalog,
    datasets: Iterable[Dataset],
    known: Iterable[Dataset] = (),
) -> dict[Topic, TopicProgress | Issue]:
    """Return the states of some datasets' topics, and of the same producers' topics in the known datasets.

    A topic whose table cannot be read has an issue. Read before a build, so that the build reads all that is counted.
    """
    chosen = _topics(datasets)
    producers = {topic.producer for topic in chosen} - {None}
    related = (topic for topic in _topics(known) if topic.producer in producers)
    states: dict[Topic, TopicProgress | Issue] = {}
    for topic in dict.fromkeys([*chosen, *related]):
        try:
            states[topic] = _state(settings, cursor, catalog, topic)
        except UserError as error:
            states[topic] = Issue(error.message, object=topic.name)
    return states


def _topics(datasets: Iterable[Dataset]) -> list[Topic]:
    return sorted({topic for dataset in datasets for topic in dataset.topics}, key=lambda topic: topic.name)


def check(
    states: Mapping[Topic, TopicProgress | Issue],
    datasets: Collection[Dataset],
    week: IsoWeek,
    default_silence: timedelta = SILENCE,
) -> tuple[list[Issue], list[Issue]]:
    """Return what withholds a week of some datasets, by topic, and what is a warning.

    A topic has passed the week's end if it `is_read` and (a) holds a decoded record from after the end, or (b) another
    topic of its producer does, or (c) its `silence`, else `default_silence`, has gone by. By (c) a topic passes with a
    warning, and not for datasets with suppressed groups: these have one version only. Too many dead letters withhold,
    too.
    """
    read = {topic: state for topic, state in states.items() if isinstance(state, TopicProgress) and state.is_read(week)}
    heard = {topic for topic, state in read.items() if state.past(week)}
    producers = {topic.producer for topic in heard} - {None}
    issues: list[Issue] = []
    warnings: list[Issue] = []
    for topic in _topics(datasets):
        state = states[topic]
        if isinstance(state, Issue):
            issues.append(state)
            continue
        silence = default_silence if topic.silence is None else topic.silence
        if topic not in read or not (topic in heard or topic.producer in producers):
            behind = _behind(topic, state, week)
            if topic in read and state.asked_at >= week.end + silence:
                warnings.append(Issue(f"{week} is complete by silence: {behind}", object=topic.name))
                if any(dataset.suppressed and topic in dataset.topics for dataset in datasets):
                    reason = f"behind: {behind}, and silence completes no dataset with suppressed groups"
                    issues.append(Issue(reason, of_suppressed=True, object=topic.name))
            else:
                issues.append(Issue(f"behind: {behind}", object=topic.name))
        records, dead_letters = state.of(week)
        if topic.max_dead_letters.exceeded(records, dead_letters):
            share = f"{dead_letters} of the {records} records of {week} are dead letters"
            issues.append(Issue(f"{topic.name}: {share}, more than its max_dead_letters", object=topic.name))
    return issues, warnings


def dead_letters(states: Mapping[Topic, TopicProgress | Issue], dataset: Dataset, week: IsoWeek) -> int:
    """Return how many records that are stamped in a week, of the topics of a dataset, could not be decoded."""
    answered = [state for topic in dataset.topics if isinstance(state := states.get(topic), TopicProgress)]
    return sum(state.of(week)[1] for state in answered)


def _state(settings: Settings, cursor: hive.Cursor, catalog: Catalog, topic: Topic) -> TopicProgress | Issue:
    table = load_table(catalog, topic.bronze)
    if table is None:
        return Issue(f"behind: {topic.name} has landed nothing", object=topic.name)
    asked_at = datetime.now(UTC)
    unread: set[int] = set()
    error = ""
    try:
        unread = unread_partitions(settings, table, topic.name, BROKER_SECONDS)
    except UserError as unavailable:
        error = unavailable.message
    # The log before a topic was recreated is no measure of the new one.
    generation = property_keys.generation(table.properties)
    of_topic = f" and kafka_generation = {generation}" if generation else ""
    rows = spark_sql.run(
        cursor,
        # A record that is stamped beyond what Spark can hold has no stamp: it counts when it came.
        "select kafka_partition, unix_micros(date_trunc('week', coalesce(kafka_timestamp, ingested_at))),"
        f" count(*), count_if(decode_error is not null and not {IS_ERASED}),"
        f" unix_micros(max(case when (decode_error is null or {IS_ERASED})"
        f" and kafka_timestamp <= ingested_at + {FUTURE_TOLERANCE}{of_topic} then kafka_timestamp end))"
        f" from {spark_sql.relation(topic.bronze)} group by 1, 2",
        f"read how far {topic.name} is",
    )
    watermarks: dict[int, datetime] = {}
    weeks: dict[int, tuple[int, int]] = {}
    for partition, monday, records, dead, newest in rows:
        watermarks[partition] = max(watermarks.get(partition, EPOCH), EPOCH + timedelta(microseconds=newest or 0))
        records_before, dead_before = weeks.get(monday, (0, 0))
        weeks[monday] = (records_before + records, dead_before + dead)
    return TopicProgress(watermarks, weeks, asked_at, frozenset(unread), error)


def _behind(topic: Topic, state: TopicProgress, week: IsoWeek) -> str:
    newest = max(state.watermarks.values(), default=EPOCH)
    if newest == EPOCH:
        at = f"{topic.name} has landed nothing" + (" that could be decoded" if state.weeks else "")
    else:
        at = f"{topic.name} at {_show(newest)}"
    if state.error:
        return f"{at} ({state.error})"
    lacking = ", ".join(map(str, sorted(state.unread - state.past(week))))
    return f"{at} (partitions not read to their ends: {lacking})" if lacking else at


def _show(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M:%S} UTC"
