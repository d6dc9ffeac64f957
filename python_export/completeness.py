"""Decides whether a week may be exported: it is over, and every contributing topic has been read past its end."""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

from pyhive import hive
from pyiceberg.catalog import Catalog

from lakehouse.errors import UserError
from lakehouse.settings import Settings
from lakehouse.weeks import IsoWeek
from python_export import spark_sql
from python_export.datasets import Dataset, Topic
from python_ingest import offsets
from python_ingest.broker import Broker
from python_ingest.offsets import PositionReader

# A producer whose clock is ahead must not move the watermark; the broker itself allows an hour.
FUTURE_TOLERANCE = "interval 1 hour"
BROKER_SECONDS = 10.0
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


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


def require_complete(
    settings: Settings, cursor: hive.Cursor, catalog: Catalog, datasets: Iterable[Dataset], week: IsoWeek, now: datetime
) -> None:
    """Refuse a week of which a contributing topic may still lack records.

    A topic is complete once its watermark is not before the week's end, and each partition that is itself behind holds
    all that the broker has: a killed ingester may have left it there. With a grace (LAKEHOUSE_EXPORT_GRACE) so is a
    topic that is silent: at `now`, so long after the week's end, that holds for all its partitions.

    Raises:
        UserError: topics are not complete; all of them are named.
    """
    topics = sorted({topic for dataset in datasets for topic in dataset.topics}, key=lambda topic: topic.name)
    late = settings.export_grace is not None and now >= week.end + settings.export_grace
    behind = []
    for topic in topics:
        moments = watermarks(cursor, catalog, topic)
        newest = max(moments.values(), default=EPOCH)
        passed = {partition for partition, moment in moments.items() if moment >= week.end}
        if newest == EPOCH:
            behind.append(f"{topic.name} has landed nothing")
        elif not passed and not late:
            behind.append(f"{topic.name} at {_show(newest)}")
        elif len(passed) < len(moments) and (lacking := _not_read_to_the_end(settings, catalog, topic) - passed):
            partitions = ", ".join(map(str, sorted(lacking)))
            behind.append(f"{topic.name} at {_show(newest)} (partitions not read to their ends: {partitions})")
    if behind:
        raise UserError(
            f"{week} is not complete; it ends at {_show(week.end)} and these topics are behind: {', '.join(behind)}",
            "Run `lakehouse ingest run`, again when later records have been produced; for topics that can be silent for"
            " long, set LAKEHOUSE_EXPORT_GRACE",
        )


def watermarks(cursor: hive.Cursor, catalog: Catalog, topic: Topic) -> dict[int, datetime]:
    """Return the newest plausible Kafka timestamp of each partition in a topic's bronze table, EPOCH without one."""
    if not catalog.table_exists((topic.bronze.schema, topic.bronze.name)):
        return {}
    found = spark_sql.run(
        cursor,
        "select kafka_partition, unix_micros(max(case when"
        f" kafka_timestamp <= ingested_at + {FUTURE_TOLERANCE} then kafka_timestamp end))"
        f" from {spark_sql.relation(topic.bronze)} group by kafka_partition",
        f"read the watermark of {topic.name}",
    )
    return {partition: EPOCH + timedelta(microseconds=micros or 0) for partition, micros in found}


def _not_read_to_the_end(settings: Settings, catalog: Catalog, topic: Topic) -> set[int]:
    """Ask the broker of which partitions it has anything that the topic's bronze table lacks."""
    table = catalog.load_table((topic.bronze.schema, topic.bronze.name))
    position = PositionReader().read(table)
    state = Broker(settings, BROKER_SECONDS).describe(topic.name)
    if table.properties.get("lakehouse.topic-id") != state.topic_id:
        return set(position.next_offsets)
    return {each.partition for each in offsets.waiting(position, state)}


def _show(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M:%S} UTC"
