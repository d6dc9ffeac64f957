"""What a reader of a week's file should know is not in it, or came late: counts that the export models declare."""

from collections.abc import Iterable

from pyhive import hive

from lakehouse.weeks import IsoWeek
from python_export.datasets import spark_sql
from python_export.datasets.declared import Dataset, Events


def week_counts(cursor: hive.Cursor, datasets: Iterable[Dataset], week: IsoWeek) -> dict[Events, int]:
    """Return how many events of a week there are of each declared kind.

    Quarantined are those that meet a condition, late those whose Kafka timestamp is not before the week's end.
    """
    start, end = (f"timestamp '{moment:%Y-%m-%d %H:%M:%S}'" for moment in (week.start, week.end))
    kinds = list(dict.fromkeys(events for dataset in datasets for events in dataset.counted))
    selects = [
        f"select {number}, count(*) from {spark_sql.relation(events.table)} where {events.at} >= {start}"
        f" and {events.at} < {end} and {events.where or f'kafka_timestamp >= {end}'}"
        for number, events in enumerate(kinds)
    ]
    if not selects:
        return {}
    rows = spark_sql.run(cursor, " union all ".join(selects), f"count the late and quarantined events of {week}")
    return {kinds[number]: count for number, count in rows}
