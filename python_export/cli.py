"""`lakehouse export`: the weekly CSV files."""

import json
from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from lakehouse.catalog import load_catalog
from lakehouse.errors import UserError
from lakehouse.pii.check import require_classified
from lakehouse.settings import PROJECT_ROOT, Settings, environment, from_environment
from lakehouse.weeks import IsoWeek
from python_export import channels, datasets, report
from python_export.cli_versions import diff, reproduce, verify
from python_export.completeness import last_week
from python_export.datasets import Project
from python_export.manifest import published
from python_export.notify import as_user_error, notify, tell_of_failure
from python_export.publish import Published
from python_export.run import run as run_export
from python_export.target import open_target

app = typer.Typer(no_args_is_help=True, help="Weekly CSV files: unload, verify with a second engine, publish.")
console = Console(highlight=False, soft_wrap=True, markup=False)
errors = Console(stderr=True, highlight=False, soft_wrap=True, markup=False)
NOT_TOLD = 3


@app.command()
def run(
    week: Annotated[
        str | None, typer.Option(help="ISO week, for instance 2026-W47. Default: the last complete one.")
    ] = None,
    dataset: Annotated[list[str] | None, typer.Option(help="Just this dataset; repeatable. Default: all.")] = None,
    build: Annotated[
        bool, typer.Option(help="Have dbt build and test the export tables first; otherwise they must hold the week.")
    ] = True,
) -> None:
    """Export a week: check that it is complete, build, unload, verify, publish, notify.

    Same content is no new version, and nobody is told of it.

    Exit codes: 1 something failed, and the readers are told, of what was published before it too; 3 published, but not
    everybody is told.
    """
    env = environment()
    settings = from_environment(env)
    # What cannot work is to be known now, not when the files are published.
    channels.from_environment(env)
    chosen = IsoWeek.parse(week) if week else last_week(settings, datetime.now(UTC))
    project = Project(PROJECT_ROOT, env)
    catalog = load_catalog(settings)
    require_classified(project.manifest(), catalog)
    datasets.choose(datasets.load(project), dataset or ())
    try:
        print_summary(
            run_export(settings, catalog, project, chosen, dataset or (), with_build=build, say=console.print)
        )
        console.print(f"report: {report.write(settings, chosen)}")
    except Exception as problem:
        error = as_user_error(problem, settings)
        tell_of_failure(settings, env, chosen, error, console.print)
        raise error from (None if isinstance(problem, UserError) else problem)
    _notify(settings, env)


@app.command("notify")
def notify_readers() -> None:
    """Tell of every published version that its readers have not been told of yet: mail and webhook.

    Exit code 3: not everybody is told; run it again.
    """
    env = environment()
    _notify(from_environment(env), env)


@app.command("list")
def list_versions(
    dataset: Annotated[list[str] | None, typer.Option(help="Just this dataset; repeatable. Default: all.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")] = False,
) -> None:
    """List what is published: every version of every week, the newest of a week last."""
    target = open_target(from_environment())
    found = [one for one in published(target) if not dataset or one.dataset in dataset]
    for name in {*(dataset or ())} - {one.dataset for one in found}:
        raise UserError(
            f"Nothing of {name} is published under {target.address('')}", "See all with `lakehouse export list`"
        )
    if as_json:
        typer.echo(json.dumps([asdict(one) for one in found], indent=2))
        return
    superseded = {(one.dataset, one.week, one.supersedes): f"v{one.version}" for one in found}
    table = wide_table("dataset", "week", "version", "rows", "published", "superseded by", "sha256")
    for one in found:
        by = superseded.get((one.dataset, one.week, one.version), "")
        table.add_row(one.dataset, one.week, f"v{one.version}", f"{one.rows:,}", one.created_at, by, one.sha256[:12])
    print_wide(table)


def _notify(settings: Settings, env: Mapping[str, str]) -> None:
    exit_if_not_told(notify(settings, env, load_catalog(settings), console.print))


def exit_if_not_told(problems: list[UserError]) -> None:
    """End the command with exit code 3 and a line per problem, if there is any."""
    for problem in problems:
        errors.print(f"error: published, but not everybody is told: {problem}")
    if problems:
        raise typer.Exit(NOT_TOLD)


def wide_table(*headings: str) -> Table:
    """Return a table for `print_wide`."""
    table = Table(box=None, pad_edge=False)
    for heading in headings:
        table.add_column(heading, justify="right" if heading in {"rows", "bytes"} else "left", no_wrap=True)
    return table


def print_wide(table: Table) -> None:
    """Print a table as wide as its content: a path that is cut cannot be copied, a message that is cut says little."""
    Console(width=10_000, markup=False).print(table)


def print_summary(exported: list[Published]) -> None:
    """Print what is public now, a line per version."""
    table = wide_table("dataset", "week", "version", "rows", "bytes", "sha256", "path")
    for one in exported:
        manifest = one.manifest
        table.add_row(
            manifest.dataset,
            manifest.week,
            f"v{manifest.version}" + (" unchanged" if one.unchanged else ""),
            f"{manifest.rows:,}",
            f"{manifest.bytes:,}",
            manifest.sha256[:12],
            one.file,
        )
    print_wide(table)


for command in (verify, diff, reproduce):
    app.command()(command)
