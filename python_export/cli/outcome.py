"""What an export comes to, for the commands that make one: the weeks they are given, what they print, exit codes."""

from datetime import datetime

import typer
from rich.console import Console
from rich.table import Table

from lakehouse.errors import UserError
from lakehouse.settings import Settings
from lakehouse.weeks import IsoWeek, weeks_between
from python_export.datasets.completeness import last_week, require_past
from python_export.telling.exported import Exported

console = Console(highlight=False, soft_wrap=True, markup=False)
errors = Console(stderr=True, highlight=False, soft_wrap=True, markup=False)
NOT_TOLD, WITHHELD = 3, 4


def end(exported: Exported | None, not_told: list[UserError]) -> None:
    """End the command: with exit code 4 if something failed or is withheld, else with 3 if not everybody is told."""
    for problem in not_told:
        errors.print(f"error: published, but not everybody is told: {problem}")
    if exported and (exported.withheld or exported.has_faults):
        raise typer.Exit(WITHHELD)
    if not_told:
        raise typer.Exit(NOT_TOLD)


def chosen_weeks(settings: Settings, now: datetime, week: str | None, weeks: str | None) -> list[IsoWeek]:
    """Return the weeks that options name, by default the last complete one.

    Raises:
        UserError: there is no such week, or it is not over. That is the caller's to know, and nobody else's.
    """
    if week and weeks:
        raise typer.BadParameter("give --week or --weeks, not both")
    chosen = weeks_between(weeks) if weeks else [IsoWeek.parse(week) if week else last_week(settings, now)]
    for chosen_week in chosen:
        require_past(settings, chosen_week, now)
    return chosen


def print_summary(exported: Exported) -> None:
    """Print what is public now, a line per version, and what is withheld or to be known, in a line each."""
    table = wide_table("dataset", "week", "version", "rows", "bytes", "sha256", "path")
    for version in exported.published:
        manifest = version.manifest
        table.add_row(
            manifest.dataset,
            manifest.week,
            f"v{manifest.version}" + (" unchanged" if version.unchanged else ""),
            f"{manifest.rows:,}",
            f"{manifest.bytes:,}",
            manifest.sha256[:12],
            version.file,
        )
    if exported.published:
        print_wide(table)
    for notice in exported.notices():
        console.print(notice.text)


def wide_table(*headings: str) -> Table:
    """Return a table for `print_wide`."""
    table = Table(box=None, pad_edge=False)
    for heading in headings:
        table.add_column(heading, justify="right" if heading in {"rows", "bytes"} else "left", no_wrap=True)
    return table


def print_wide(table: Table) -> None:
    """Print a table as wide as its content: a path that is cut cannot be copied, a message that is cut says little."""
    Console(width=10_000, markup=False).print(table)
