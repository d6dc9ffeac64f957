"""Decides whether a week may be exported: it is over, and every topic that contributes has moved past its end."""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

from pyhive import hive
from pyiceberg.catalog import Catalog

from lakehouse.errors import UserError
from lakehouse.weeks import IsoWeek
from python_export import spark_sql
from python_export.datasets import Dataset, Topic

# A producer whose clock is ahead must not move the watermark; the broker itself allows an hour.
FUTURE_TOLERANCE = "interval 1 hour"
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def require_past(week: IsoWeek, now: datetime) -> None:
    """Refuse a week that is not over.

    Raises:
        UserError: the week ends after `now`.
    """
    if week.end > now:
        raise UserError(
            f"{week} is not over: it ends at {_show(week.end)}",
            f"The last complete week is {IsoWeek.last_complete(now)}",
        )


def require_complete(cursor: hive.Cursor, catalog: Catalog, datasets: Iterable[Dataset], week: IsoWeek) -> None:
    """Refuse a week whose end is not behind the watermark of every contributing topic.

    Raises:
        UserError: a topic has landed nothing, or its watermark is before the week's end. All such topics are named.
    """
    topics = sorted({topic for dataset in datasets for topic in dataset.topics}, key=lambda topic: topic.name)
    behind = []
    for topic in topics:
        moment = watermark(cursor, catalog, topic)
        if moment is None:
            behind.append(f"{topic.name} has landed nothing")
        elif moment < week.end:
            behind.append(f"{topic.name} at {_show(moment)}")
    if behind:
        raise UserError(
            f"{week} is not complete; it ends at {_show(week.end)} and these topics are behind: {', '.join(behind)}",
            "Run `lakehouse ingest run` when later records have been produced",
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


def _show(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M:%S} UTC"
