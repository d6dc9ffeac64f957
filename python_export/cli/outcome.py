"""What the commands that export share: options and their weeks, output, exit codes."""

from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer
from prometheus_client import CollectorRegistry, Gauge

from python_common import metrics_file
from python_common.config.settings import Settings
from python_common.errors import UserError
from python_common.locks.lease import alone
from python_common.log import log
from python_common.output import console, print_json, print_table
from python_common.weeks import IsoWeek, weeks_between
from python_export.notify.exported import Exported
from python_export.readiness.completeness import last_week, require_past
from python_export.run import Run

NOTIFICATION_FAILED, WITHHELD = 3, 4
Datasets = Annotated[list[str] | None, typer.Argument(help="Names of datasets; without any, all.")]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Show what is due and what withholds it; build no table, write no file.")
]


def _checked(week: str | None) -> str | None:
    return week and str(IsoWeek.parse(week))


Week = Annotated[str, typer.Option(callback=_checked, help="ISO week, for instance 2026-W47.")]
AnyWeek = Annotated[str | None, typer.Option(callback=_checked, help="Just this ISO week. Default: all.")]
OneWeek = Annotated[str | None, typer.Option(help="ISO week, for instance 2026-W47. Default: the last complete one.")]
SeveralWeeks = Annotated[str | None, typer.Option(help="Several weeks with one build: 2026-W40..2026-W46.")]
MetricsFile = Annotated[
    Path | None, typer.Option(help="Also write the newest weeks and the run here, for Prometheus' node exporter.")
]

METRICS = {
    "newest_week_timestamp_seconds": "Start of the newest published week.",
    "rows": "Rows of its current version.",
    "bytes": "Bytes of its file.",
    "published_timestamp_seconds": "When that version was published.",
}
"""Gauges of each dataset's newest published week, and their help."""


def end(undelivered: list[UserError], is_incomplete: bool = False) -> None:
    """End the command: with exit code 4 if something failed or is withheld, else with 3 if a notification failed."""
    for error in undelivered:
        log.error("a notification failed: %s", error)
    if is_incomplete:
        raise typer.Exit(WITHHELD)
    if undelivered:
        raise typer.Exit(NOTIFICATION_FAILED)


def end_run(exported: Exported, path: Path | None) -> None:
    """Write the metrics of a run, if they are wanted, and end the command."""
    if path:
        try:
            write_metrics(path, exported)
        # Its files are public: how the run ended counts more.
        except UserError as error:
            exported.undelivered.append(error)
    end(exported.undelivered, exported.is_incomplete)


def write_metrics(path: Path, exported: Exported) -> None:
    """Write metrics of a run and of the newest published weeks, atomically; a UserError if it cannot be done."""
    registry = CollectorRegistry()
    gauges = [Gauge(f"lakehouse_export_{name}", text, ["dataset"], registry=registry) for name, text in METRICS.items()]
    # The oldest first, so that each dataset keeps its newest week.
    for manifest in reversed([manifest for manifest in exported.current if not manifest.withdrawn]):
        start, published = IsoWeek.parse(manifest.week).start, datetime.fromisoformat(manifest.created_at)
        values = (start.timestamp(), manifest.rows, manifest.bytes, published.timestamp())
        for gauge, value in zip(gauges, values, strict=True):
            gauge.labels(manifest.dataset).set(value)
    datasets = Gauge("lakehouse_export_withheld_datasets", "Datasets that the last run withheld.", registry=registry)
    datasets.set(len({issue.object for issue in exported.withheld}))
    held = Gauge("lakehouse_export_held_weeks", "Weeks of datasets that it held for review.", registry=registry)
    held.set(exported.held_weeks)
    Gauge(
        "lakehouse_export_status_timestamp_seconds", "When this was written.", registry=registry
    ).set_to_current_time()
    metrics_file.write(path, registry)


def chosen_weeks(settings: Settings, now: datetime, week: str | None, weeks: str | None) -> list[IsoWeek]:
    """Return the weeks that options name, by default the last complete one.

    Raises:
        UserError: the week does not exist or is not complete. This sends no alert.
    """
    if week and weeks:
        raise typer.BadParameter("give --week or --weeks, not both")
    chosen = weeks_between(weeks) if weeks else [IsoWeek.parse(week) if week else last_week(settings, now)]
    for chosen_week in chosen:
        require_past(settings, chosen_week, now)
    return chosen


def print_preview(run: Run, datasets: Iterable[str], as_json: bool, with_due: bool = False) -> None:
    """Print what a run would export, a line per dataset and week, and log its warnings."""
    # What it records of the topics must not meet a run that decides.
    with alone(run.catalog, "weekly", "a dry run"):
        rows = run.preview(datasets, with_due)
    print_table(("dataset", "week", "due because", "withheld by"), rows, as_json)
    for warning in run.exported.warnings:
        log.warning(warning)


def print_summary(exported: Exported, as_json: bool = False) -> None:
    """Print a line per version that is public now, per withheld dataset, and per warning; or all of it as JSON."""
    if as_json:
        versions = [
            {
                name: getattr(version.manifest, name)
                for name in ("dataset", "week", "version", "rows", "bytes", "sha256")
            }
            | {"path": version.file, "unchanged": version.unchanged}
            for version in exported.published
        ]
        withheld = [
            {"dataset": issue.object, "week": issue.week, "reason": issue.message} for issue in exported.withheld
        ]
        print_json({"published": versions, "withheld": withheld, "warnings": exported.warnings})
        return
    rows = [
        (
            version.manifest.dataset,
            version.manifest.week,
            f"v{version.manifest.version}" + (" unchanged" if version.unchanged else ""),
            version.manifest.rows,
            version.manifest.bytes,
            version.manifest.sha256[:12],
        )
        for version in exported.published
    ]
    if rows:
        print_table(("dataset", "week", "version", "rows", "bytes", "sha256"), rows)
    for notice in exported.notices():
        console.print(notice.message)
