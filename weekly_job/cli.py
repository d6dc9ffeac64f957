"""`lakehouse weekly` and `lakehouse weekly runs`."""

import json
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Annotated

import typer
from rich.console import Console

from lakehouse.catalog import load_catalog
from lakehouse.settings import PROJECT_ROOT, environment, from_environment
from lakehouse.weeks import IsoWeek
from python_export.cli import exit_if_not_told, print_summary, print_wide, wide_table
from python_export.completeness import last_week, require_past
from python_export.datasets import Project
from weekly_job import history, job

app = typer.Typer(invoke_without_command=True)
console = Console(highlight=False, soft_wrap=True)


@app.callback()
def weekly(
    context: typer.Context,
    week: Annotated[
        str | None, typer.Option(help="ISO week, for instance 2026-W47. Default: the last complete one.")
    ] = None,
) -> None:
    """Ingest, verify, build, reconcile, export, notify: for one week, or `runs` to list what it did before.

    It can be run again at any time, also after a kill at any moment: what is done is not done twice, and nobody is
    told twice. A second run on this machine waits for the first.

    Exit codes: 0 published, or nothing new; 1 a step failed, and the readers are told, of what was published before
    it too; 2 wrong usage; 3 published, but not everybody is told: the next run tries again.
    """
    if context.invoked_subcommand:
        return
    env = environment()
    now = datetime.now(UTC)
    settings = from_environment(env)
    chosen = IsoWeek.parse(week) if week else last_week(settings, now)
    require_past(settings, chosen, now)
    done = job.run(settings, env, Project(PROJECT_ROOT, env), chosen, console)
    console.print()
    print_summary(done.published)
    exit_if_not_told(done.not_told)


@app.command()
def runs(
    last: Annotated[int, typer.Option(min=1, help="So many of the newest runs.")] = 20,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")] = False,
) -> None:
    """List the runs of the weekly job, the newest last: ops.weekly_runs."""
    found = history.runs(load_catalog(from_environment()))[-last:]
    if as_json:
        typer.echo(json.dumps([asdict(one) for one in found], indent=2, default=str))
        return
    table = wide_table("started", "week", "seconds", "outcome", "failed step", "message or versions")
    for one in found:
        seconds = f"{(one.ended_at - one.started_at).total_seconds():.0f}" if one.ended_at else ""
        what = " ".join(f"{one.message or ''} {one.versions or ''}".split())
        table.add_row(
            f"{one.started_at:%Y-%m-%d %H:%M:%S}", one.week, seconds, one.outcome, one.failed_step or "", what
        )
    print_wide(table)
