"""The Iceberg table ops.weekly_runs: one row per run of the weekly job, from its first moment on."""

from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime

from pyiceberg.catalog import Catalog
from pyiceberg.types import StringType, TimestamptzType

from lakehouse.small_table import Rows, SmallTable

RUNNING, KILLED = "running", "killed"

TABLE = SmallTable(
    "ops.weekly_runs",
    (
        ("run_id", StringType(), "when the run started, to the microsecond"),
        ("week", StringType(), "ISO week that it was to publish, or the first and the last of several"),
        ("started_at", TimestamptzType(), "when it started"),
        ("ended_at", TimestamptzType(), "when it ended; null while it runs, and if it was killed"),
        ("outcome", StringType(), "running, published, unchanged, withheld, not told, failed, or killed"),
        ("failed_step", StringType(), "the step that failed"),
        ("message", StringType(), "why, as the command said it"),
        ("versions", StringType(), "what it published anew, as <dataset>/<week>/v<N>"),
        ("withheld", StringType(), "datasets that it did not publish, each with the reason"),
        ("warnings", StringType(), "what else was not as usual"),
    ),
)


@dataclass(frozen=True)
class Run:
    """A row of the history; the columns are described in TABLE."""

    run_id: str
    week: str
    started_at: datetime
    ended_at: datetime | None = None
    outcome: str = RUNNING
    failed_step: str | None = None
    message: str | None = None
    versions: str | None = None
    withheld: str | None = None
    warnings: str | None = None


def killed(catalog: Catalog) -> list[Run]:
    """Return the runs that were killed and are not called so yet. The caller holds the job's lock: none is running."""
    return [run for run in runs(catalog) if run.outcome == RUNNING]


def begin(catalog: Catalog, week: str) -> Run:
    """Add a run, and call those killed that were. The caller holds the job's lock."""
    now = datetime.now(UTC)
    run = Run(f"{now:%Y-%m-%dT%H:%M:%S.%fZ}", week, now)

    def add(rows: Rows) -> Rows:
        killed = {key: {**row, "outcome": KILLED} for key, row in rows.items() if row["outcome"] == RUNNING}
        return {**rows, **killed, run.run_id: asdict(run)}

    TABLE.change(catalog, add)
    return run


def end(
    catalog: Catalog,
    run: Run,
    outcome: str,
    *,
    failed_step: str | None = None,
    message: str | None = None,
    versions: str | None,
    withheld: str | None,
    warnings: str | None,
) -> None:
    """Write down how a run ended."""
    ended = replace(
        run,
        ended_at=datetime.now(UTC),
        outcome=outcome,
        failed_step=failed_step,
        message=message,
        versions=versions,
        withheld=withheld,
        warnings=warnings,
    )
    TABLE.change(catalog, lambda rows: {**rows, run.run_id: asdict(ended)})


def runs(catalog: Catalog) -> list[Run]:
    """Return all runs, the newest last."""
    return [Run(**row) for row in TABLE.rows(catalog).values()]
