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

    A topic is complete once its watermark is not before the week's end. With a grace (LAKEHOUSE_EXPORT_GRACE) so is
    one that is silent: at `now`, so long after the week's end, the table holds all that the broker has.

    Raises:
        UserError: topics are not complete; all of them are named.
    """
    topics = sorted({topic for dataset in datasets for topic in dataset.topics}, key=lambda topic: topic.name)
    late = settings.export_grace is not None and now >= week.end + settings.export_grace
    behind = []
    for topic in topics:
        moment = watermark(cursor, catalog, topic)
        if moment is None:
            behind.append(f"{topic.name} has landed nothing")
        elif moment < week.end and not (late and _is_read_to_the_end(settings, catalog, topic)):
            behind.append(f"{topic.name} at {_show(moment)}")
    if behind:
        raise UserError(
            f"{week} is not complete; it ends at {_show(week.end)} and these topics are behind: {', '.join(behind)}",
            "Run `lakehouse ingest run` when later records have been produced; for topics that can be silent for long,"
            " set LAKEHOUSE_EXPORT_GRACE",
        )


def watermark(cursor: hive.Cursor, catalog: Catalog, topic: Topic) -> datetime | None:
    """Return the newest plausible Kafka timestamp in a topic's bronze table, or None when there is none."""
    if not catalog.table_exists((topic.bronze.schema, topic.bronze.name)):
        return None
    [(micros,)] = spark_sql.run(
        cursor,
        f"select unix_micros(max(kafka_timestamp)) from {spark_sql.relation(topic.bronze)} "
        f"where kafka_timestamp <= ingested_at + {FUTURE_TOLERANCE}",
        f"read the watermark of {topic.name}",
    )
    return None if micros is None else EPOCH + timedelta(microseconds=micros)


def _is_read_to_the_end(settings: Settings, catalog: Catalog, topic: Topic) -> bool:
    """Ask the broker whether it has anything that the topic's bronze table lacks."""
    table = catalog.load_table((topic.bronze.schema, topic.bronze.name))
    state = Broker(settings, BROKER_SECONDS).describe(topic.name)
    same = table.properties.get("lakehouse.topic-id") == state.topic_id
    return same and not offsets.waiting(PositionReader().read(table), state)


def _show(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M:%S} UTC"
