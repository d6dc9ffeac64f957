"""`lakehouse export`: the weekly CSV files."""

from datetime import UTC, datetime
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from lakehouse.catalog import load_catalog
from lakehouse.pii.check import require_classified
from lakehouse.settings import PROJECT_ROOT, environment, from_environment
from lakehouse.weeks import IsoWeek
from python_export.datasets import Project
from python_export.publish import Published
from python_export.run import run as run_export

app = typer.Typer(no_args_is_help=True, help="Weekly CSV files: unload, verify with a second engine, publish.")
console = Console(highlight=False, soft_wrap=True)


@app.callback()
def main() -> None:
    """Keep `run` a sub-command while it is the only one."""


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
    """Export a week: check that it is complete, build, unload, verify, publish. Same content is no new version."""
    env = environment()
    settings = from_environment(env)
    chosen = IsoWeek.parse(week) if week else IsoWeek.last_complete(datetime.now(UTC))
    project = Project(PROJECT_ROOT, env)
    require_classified(project.manifest(), load_catalog(settings))
    published = run_export(settings, project, chosen, dataset or (), with_build=build, say=console.print)
    _print_summary(published)


def _print_summary(published: list[Published]) -> None:
    table = Table(box=None, pad_edge=False)
    for heading in ("dataset", "week", "version", "rows", "bytes", "sha256", "path"):
        table.add_column(heading, justify="right" if heading in {"rows", "bytes"} else "left", no_wrap=True)
    for one in published:
        manifest = one.manifest
        table.add_row(
            manifest.dataset,
            manifest.week,
            f"v{manifest.version}" + (" unchanged" if one.unchanged else ""),
            f"{manifest.rows:,}",
            f"{manifest.bytes:,}",
            manifest.sha256[:12],
            str(one.file),
        )
    # As wide as its content: a path that is cut cannot be copied.
    Console(width=10_000).print(table)
