"""`lakehouse review`: what a change of the dbt project does, for who reviews it."""

from dataclasses import replace
from typing import Annotated

import typer

from python_common import private_files
from python_common.config.environment import PROJECT_ROOT, environment
from python_common.config.settings import from_environment
from python_common.output import console
from python_dbt.project import Project
from python_dev.review import report
from python_dev.review.run import review as run_review

app = typer.Typer(invoke_without_command=True)


@app.callback()
def review(
    base: Annotated[str, typer.Option(help="The branch that the change is for.")] = "origin/main",
    static: Annotated[bool, typer.Option(help="Compare code alone: no Spark, no data.")] = False,
    quick: Annotated[
        bool, typer.Option(help="Run both sides in DuckDB on landed sample data: no Spark, seconds.")
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
    env, directory = environment(), PROJECT_ROOT / "target" / "review"
    # A command that fails leaves no report of an earlier change.
    private_files.delete(directory)
    accepted = report.acceptances(accept.read()) if accept else []
    settings, project = None if static or quick else from_environment(env), Project(PROJECT_ROOT, env)
    result = run_review(settings, project, base, weeks, static, samples, cost, quick)
    result = replace(result, acceptances=accepted)
    path = report.write(result, directory)
    console.print(path.read_text())
    console.print(f"review: {result.verdict}; written to {path}, {path.with_name('review.html')} and review.json")
    # What a quick review calls nothing found is no verdict.
    raise typer.Exit(report.EXIT_CODES.get(result.verdict, 0))
