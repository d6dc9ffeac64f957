"""Asks whether a week is over, and how far its topics are: models/ops/ops_topic_weeks.sql decides if it is complete."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from pyhive import hive
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from python_common.catalog import property_keys
from python_common.catalog.catalog import history, load_table
from python_common.config.settings import Settings
from python_common.config.variables import seconds
from python_common.errors import UserError
from python_common.spark import spark_sql
from python_common.weeks import IsoWeek
from python_export.datasets.declared import Dataset
from python_export.readiness.decision import TopicRead
from python_ingest.bronze.positions import unread_partitions
from python_ingest.declare.topics import Declaration

# A producer whose clock is ahead must not move the watermark; the broker itself allows an hour.
FUTURE_TOLERANCE = "interval 1 hour"
# An erased record keeps only that it was decoded, and when it was stamped.
IS_ERASED = "startswith(decode_error, 'erased: ')"
BROKER_SECONDS = 10.0
# A topic whose producer sends at least daily has sent something by then; others declare `config.meta.kafka.silence`.
SILENCE = "24h"
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# A record may be stamped beyond what a time of Python can hold, in microseconds since EPOCH.
YEAR_10000 = 253_402_300_800_000_000


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


def read_topics(
    settings: Settings,
    cursor: hive.Cursor,
    catalog: Catalog,
    datasets: Iterable[Dataset],
    known: Iterable[Dataset] = (),
) -> dict[str, TopicRead]:
    """Return what is known of some datasets' topics, and of the same producers' topics in the known datasets, by name.

    Read before a build, so that the build reads all that is counted.
    """
    chosen = _topics(datasets)
    producers = {topic.producer for topic in chosen} - {None}
    related = (topic for topic in _topics(known) if topic.producer in producers)
    return {topic.topic: _read(settings, cursor, catalog, topic) for topic in dict.fromkeys([*chosen, *related])}


def without_rolled_back(catalog: Catalog, reads: Mapping[str, TopicRead]) -> dict[str, TopicRead]:
    """Return reads; that of a table which no longer comes from the snapshot that was read is an error.

    A build after a rollback lacks records that were counted before it.
    """
    return {topic: replace(read, error=read.error or _lost(catalog, read)) for topic, read in reads.items()}


def _lost(catalog: Catalog, read: TopicRead) -> str | None:
    if read.bronze_table is None or read.snapshot_id is None:
        return None
    try:
        table = load_table(catalog, read.bronze_table)
    except UserError as error:
        return error.message
    if table and any(snapshot.snapshot_id == read.snapshot_id for snapshot, _ in history(table)):
        return None
    return f"behind: {read.bronze_table} was rolled back, or created again, since {read.topic} was read"


def _topics(datasets: Iterable[Dataset]) -> list[Declaration]:
    return sorted({topic for dataset in datasets for topic in dataset.topics}, key=lambda topic: topic.topic)


def _read(settings: Settings, cursor: hive.Cursor, catalog: Catalog, topic: Declaration) -> TopicRead:
    read = TopicRead(
        topic=topic.topic,
        bronze_table=topic.identifier,
        snapshot_id=None,
        asked_at=datetime.now(UTC),
        error=None,
        broker_error=None,
        producer=topic.producer,
        silence_seconds=int(seconds(topic.silence or SILENCE)),
        max_dead_letters=topic.max_dead_letters.count,
        max_dead_letter_share=topic.max_dead_letters.share,
        partitions=[],
        weeks=[],
    )
    try:
        if (table := load_table(catalog, topic.identifier)) is None:
            return replace(read, error=f"behind: {topic.topic} has landed nothing")
        snapshot = table.current_snapshot()
        try:
            unread = unread_partitions(settings, table, topic.topic, BROKER_SECONDS)
        except UserError as unavailable:
            unread, read = set(), replace(read, broker_error=unavailable.message)
        partitions, weeks = _landed(cursor, table, topic, snapshot)
    except UserError as error:
        return replace(read, error=error.message)
    return replace(
        read,
        snapshot_id=snapshot.snapshot_id if snapshot else None,
        partitions=[
            {"kafka_partition": partition, "newest_at": partitions.get(partition), "is_unread": partition in unread}
            for partition in sorted(partitions.keys() | unread)
        ],
        weeks=[
            {"starts_at": EPOCH + timedelta(microseconds=monday), "records": records, "dead_letters": dead_letters}
            for monday, (records, dead_letters) in sorted(weeks.items())
            if 0 <= monday < YEAR_10000
        ],
    )


def _landed(
    cursor: hive.Cursor, table: Table, topic: Declaration, snapshot: Snapshot | None
) -> tuple[dict[int, datetime], dict[int, tuple[int, int]]]:
    """Return of each partition the newest plausible time of a decoded record, EPOCH without one; and counts of weeks.

    They are by the first microsecond of a week: the records that are stamped in it, and the dead letters among them.
    """
    # The log before a topic was recreated is no measure of the new one.
    generation = property_keys.generation(table.properties)
    of_topic = f" and kafka_generation = {generation}" if generation else ""
    version = f" version as of {snapshot.snapshot_id}" if snapshot else ""
    rows = spark_sql.run(
        cursor,
        # A record that is stamped beyond what Spark can hold has no stamp: it counts when it came.
        "select kafka_partition, unix_micros(date_trunc('week', coalesce(kafka_timestamp, ingested_at))),"
        f" count(*), count_if(decode_error is not null and not {IS_ERASED}),"
        f" unix_micros(max(case when (decode_error is null or {IS_ERASED})"
        f" and kafka_timestamp <= ingested_at + {FUTURE_TOLERANCE}{of_topic} then kafka_timestamp end))"
        f" from {spark_sql.relation(topic.identifier)}{version} group by 1, 2",
        f"read how far {topic.topic} is",
    )
    partitions: dict[int, datetime] = {}
    weeks: dict[int, tuple[int, int]] = {}
    for partition, monday, records, dead, newest in rows:
        partitions[partition] = max(partitions.get(partition, EPOCH), EPOCH + timedelta(microseconds=newest or 0))
        records_before, dead_before = weeks.get(monday, (0, 0))
        weeks[monday] = (records_before + records, dead_before + dead)
    return partitions, weeks


def _show(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M:%S} UTC"
