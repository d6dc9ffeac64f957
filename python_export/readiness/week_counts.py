"""What a reader of a week's file should know is not in it, or came late: counts that the export models declare."""

from collections import Counter
from collections.abc import Callable
from datetime import datetime
from functools import partial
from typing import Any

from pyhive import hive

from python_common.errors import UserError
from python_common.spark import spark_sql
from python_common.weeks import IsoWeek
from python_export.datasets.declared import Dataset


def week_counts(cursor: hive.Cursor, dataset: Dataset, week: IsoWeek, warn: Callable[[str], None]) -> dict[str, Any]:
    """Return the fields of a manifest that count the events of a week, of each kind that a dataset declares.

    A count that fails is None, with a warning: files are published without it.
    """
    count = partial(_count, cursor, dataset, week, warn)
    quarantined, late = count(is_late=False), count(is_late=True)
    return {
        "quarantined": None if quarantined is None else sum(quarantined.values()),
        "quarantined_by_reason": quarantined or {},
        "late": None if late is None else sum(late.values()),
    }


def _count(
    cursor: hive.Cursor,
    dataset: Dataset,
    week: IsoWeek,
    warn: Callable[[str], None],
    is_late: bool,
) -> dict[str, int] | None:
    counts: Counter[str] = Counter()
    declared = [events for events in dataset.counts if bool(events.seen_at) == is_late]
    for events in declared:
        conditions = [f"{events.at} >= {_timestamp(week.start)}", f"{events.at} < {_timestamp(week.end)}"]
        conditions += [f"({events.where})"] if events.where else []
        conditions += [f"{events.seen_at} >= {_timestamp(week.end)}"] if is_late else []
        sql = (
            f"select coalesce(cast({events.by or 'null'} as string), 'other'), count(*)"
            f" from {spark_sql.relation(events.table)} where {' and '.join(conditions)} group by 1"
        )
        try:
            counts.update(dict(spark_sql.run(cursor, sql, f"count events of {events.model} in {week}")))
        except UserError as error:
            warn(f"{dataset.name} {week}: {error.message}")
            return None
    return dict(sorted(counts.items())) if declared else None


def _timestamp(moment: datetime) -> str:
    return f"timestamp '{moment:%Y-%m-%d %H:%M:%S}'"
