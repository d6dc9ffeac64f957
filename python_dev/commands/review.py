"""`lakehouse review`: what a change of the dbt project does, for who reviews it."""

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from python_common import private_files
from python_common.config.environment import PROJECT_ROOT, changed_environment, environment
from python_common.errors import UserError
from python_common.output import console
from python_dbt.compile import cached_manifest
from python_dbt.manifest import DbtManifest
from python_dbt.project import Project

app = typer.Typer(invoke_without_command=True)
SAMPLE = PROJECT_ROOT / "target" / "sample"
"""The landed sample data: `<schema>.<table>.parquet` for each bronze table, and `weeks`, comma separated."""


@app.callback()
def review(
    base: Annotated[
        str, typer.Option(help="The branch that the change is for; with --quick also '': none, and all is new.")
    ] = "origin/main",
    static: Annotated[bool, typer.Option(help="Compare code alone: no Spark, no data.")] = False,
    quick: Annotated[
        bool, typer.Option(help="Run both sides in DuckDB on landed sample data: no Spark, seconds.")
    ] = False,
    from_lake: Annotated[
        bool, typer.Option("--from-lake", help="With --quick: on the newest landed rows of the lake; not in CI.")
    ] = False,
    weeks: Annotated[int, typer.Option(min=1, help="How many of the newest weeks of exported tables to compare.")] = 4,
    samples: Annotated[bool, typer.Option(help="Show rows that differ in review.html, without personal data.")] = False,
    cost: Annotated[bool, typer.Option(help="Build both sides in full, and compare what each node costs.")] = False,
    accept: Annotated[
        typer.FileText | None,
        typer.Option(help="The text of the pull request; its lines `review-accept:` accept changes of rows."),
    ] = None,
) -> None:
    """Show what a change of the dbt project does to code, contracts, tables and weekly files.

    This checkout is the change, uncommitted edits included. Exit codes: 0 clean, 10 look, 11 breaking, 12 undecided.
    """
    if quick and (static or samples or cost):
        raise typer.BadParameter("--quick has no --static, --samples or --cost")
    if not quick and (from_lake or not base):
        raise typer.BadParameter("--from-lake and a --base of '' are for --quick")
    env, directory = environment(), PROJECT_ROOT / "target" / "review"
    # A command that fails leaves no report of an earlier change.
    private_files.delete(directory)
    project, lake = Project(PROJECT_ROOT, env), None
    rows: AbstractContextManager[Path | None] = nullcontext(SAMPLE if quick else None)
    # Importing takes seconds, in which dbt compiles; what needs a lake is not imported for others.
    if from_lake or not (static or quick):
        from python_common.config.settings import from_environment  # noqa: PLC0415

        lake = from_environment(env)
    if from_lake and lake:
        from python_dev.review.sample import of_lake  # noqa: PLC0415

        rows = of_lake(lake, weeks)
    with rows as landed, _compiling(project, landed) if landed else nullcontext() as compiling:
        from python_dev.review import report, run  # noqa: PLC0415
        from python_dev.review.quick import of_all  # noqa: PLC0415

        accepted = report.acceptances(accept.read()) if accept else []
        if landed and compiling and not base:
            result: report.Review = of_all(compiling.result(), project, landed)
        else:
            result = run.review(None if quick else lake, project, base, weeks, samples, cost, landed, compiling)
    result = replace(result, acceptances=accepted)
    path = report.write(result, directory)
    console.print(path.read_text())
    console.print(f"review: {result.verdict}; written to {path}, {path.with_name('review.html')} and review.json")
    # What a quick review calls nothing found is no verdict.
    raise typer.Exit(report.EXIT_CODES.get(result.verdict, 0))


@contextmanager
def _compiling(project: Project, landed: Path) -> Iterator[Future[DbtManifest]]:
    """Compile the project for the weeks of landed rows, meanwhile and on another core."""
    try:
        weeks = (landed / "weeks").read_text()
    except FileNotFoundError:
        raise UserError("There is no landed sample data", "Run `make sample`, which lands it once") from None
    with changed_environment({"LAKEHOUSE_WEEKS": weeks}), ThreadPoolExecutor() as pool:
        yield pool.submit(cached_manifest, project.directory)
