"""The Iceberg table ops.weekly_runs: one row per run of the weekly job, from its first moment on."""

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Annotated

from pyiceberg.catalog import Catalog

from python_common.catalog.small_table import SmallTable

RUNNING, KILLED = "running", "killed"


@dataclass(frozen=True)
class WeeklyRun:
    """A row of the history."""

    run_id: Annotated[str, "when the run started, to the microsecond"]
    week: Annotated[str, "ISO week that it was to publish, or the first and the last of several"]
    started_at: Annotated[datetime, "when it started"]
    ended_at: Annotated[datetime | None, "when it ended; null while it runs, and if it was killed"] = None
    outcome: Annotated[str, "running, published, unchanged, withheld, notification failed, failed, or killed"] = RUNNING
    failed_step: Annotated[str | None, "the step that failed"] = None
    message: Annotated[str | None, "the error of the command"] = None
    versions: Annotated[str | None, "the new versions, as <dataset>/<week>/v<N>"] = None
    withheld: Annotated[str | None, "datasets that it did not publish, each with the reason"] = None
    warnings: Annotated[str | None, "the warnings"] = None


TABLE = SmallTable("ops.weekly_runs", WeeklyRun)


def unfinished(catalog: Catalog) -> list[WeeklyRun]:
    """Return the runs that did not end: while the caller holds the lease, they were killed."""
    return [run for run in TABLE.rows(catalog).values() if run.outcome == RUNNING]


def begin(catalog: Catalog, week: str) -> WeeklyRun:
    """Add a run, and mark those that did not end as killed. The caller holds the lease."""
    now = datetime.now(UTC)
    run = WeeklyRun(f"{now:%Y-%m-%dT%H:%M:%S.%fZ}", week, now)

    def add(rows: dict[str, WeeklyRun]) -> dict[str, WeeklyRun]:
        killed = {key: replace(row, outcome=KILLED) for key, row in rows.items() if row.outcome == RUNNING}
        return {**rows, **killed, run.run_id: run}

    TABLE.change(catalog, add)
    return run


def end(catalog: Catalog, run: WeeklyRun, outcome: str, **facts: str | None) -> None:
    """Record how a run ended; `facts` are other columns."""
    ended = replace(run, ended_at=datetime.now(UTC), outcome=outcome, **facts)  # type: ignore[arg-type]
    TABLE.change(catalog, lambda rows: {**rows, run.run_id: ended})


def runs(catalog: Catalog, week: str | None = None) -> list[WeeklyRun]:
    """Return all runs, or those that were to publish a week, the newest last."""
    rows = TABLE.rows(catalog).values()
    # A label has 8 characters.
    return [run for run in rows if week is None or run.week[:8] <= week <= run.week[-8:]]
