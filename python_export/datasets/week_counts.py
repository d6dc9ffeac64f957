"""What a reader of a week's file should know is not in it, or came late: counts that the export models declare."""

from collections.abc import Callable

from pyhive import hive

from lakehouse.errors import UserError
from lakehouse.weeks import IsoWeek
from python_export.datasets import spark_sql
from python_export.datasets.declared import Dataset, Events


def week_counts(
    cursor: hive.Cursor, dataset: Dataset, week: IsoWeek, warn: Callable[[str], None]
) -> dict[Events, int | None]:
    """Return how many events of a week there are of each kind that a dataset declares.

    Quarantined are those that meet a condition, late those whose Kafka timestamp is not before the week's end. A count
    that fails is None, with a warning: files are published without it.
    """
    start, end = (f"timestamp '{moment:%Y-%m-%d %H:%M:%S}'" for moment in (week.start, week.end))
    counts: dict[Events, int | None] = {}
    for events in dataset.counted:
        sql = (
            f"select count(*) from {spark_sql.relation(events.table)} where {events.at} >= {start}"
            f" and {events.at} < {end} and ({events.where or f'kafka_timestamp >= {end}'})"
        )
        try:
            [[counts[events]]] = spark_sql.run(cursor, sql, f"count events of {events.model} in {week}")
        except UserError as error:
            counts[events] = None
            warn(f"{dataset.name} {week}: {error.message}")
    return counts
