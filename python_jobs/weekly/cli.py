"""`lakehouse weekly` and `lakehouse weekly runs`."""

from datetime import UTC, datetime
from typing import Annotated, Literal

import typer

from python_common.catalog.catalog import load_catalog
from python_common.config.environment import PROJECT_ROOT, environment
from python_common.config.settings import from_environment
from python_common.output import AsJson, print_json, print_table
from python_dbt.project import Project
from python_dbt.run import parse
from python_export.cli import outcome
from python_export.notify.exported import Exported
from python_export.run import Run
from python_jobs.weekly import history, job

app = typer.Typer(invoke_without_command=True)


@app.callback()
def weekly(
    context: typer.Context,
    week: outcome.OneWeek = None,
    weeks: outcome.SeveralWeeks = None,
    full_refresh: Annotated[
        bool, typer.Option("--full-refresh", help="Build all tables again, as after `lakehouse pii rotate`.")
    ] = False,
    first_step: Annotated[
        Literal["complete"] | None,
        typer.Option("--from", help="Begin with this step, where another process lands and verifies the topics."),
    ] = None,
    dry_run: outcome.DryRun = False,
    metrics_file: outcome.MetricsFile = None,
    as_json: AsJson = False,
) -> None:
    """Ingest, verify, build, reconcile, export, notify: for one week, or `runs` to list what it did before.

    Older published weeks that late data has changed are published again.

    It can be run again at any time, also after a kill at any moment: no work and no notification is repeated. A second
    run on this machine waits for the first.

    A dataset that may be incomplete or wrong is withheld, by name and with the reason; the others are published.

    Exit codes: 0 published, or nothing new; 1 a step failed, and an alert is sent, as are the notifications of
    what was published before; 2 wrong usage; 3 published, but a notification failed: the next run tries again; 4
    something failed, and what does not come from it is published.
    """
    if context.invoked_subcommand:
        sources = map(context.get_parameter_source, context.params)
        if any(source and source.name == "COMMANDLINE" for source in sources):
            raise typer.BadParameter(f"options of `{context.invoked_subcommand}` come after it")
        return
    env = environment()
    now = datetime.now(UTC)
    settings = from_environment(env)
    chosen = outcome.chosen_weeks(settings, now, week, weeks)
    project = Project(PROJECT_ROOT, env)
    if dry_run:
        parse(project)
        run = Run(settings, load_catalog(settings), project, Exported(chosen[-1]), chosen)
        outcome.print_preview(run, (), as_json, with_due=True)
        return
    exported = job.run(settings, project, chosen, full_refresh, first_step)
    outcome.print_summary(exported, as_json)
    outcome.end_run(exported, metrics_file)


@app.command()
def runs(
    last: Annotated[int, typer.Option(min=1, help="So many of the newest runs.")] = 20,
    week: outcome.AnyWeek = None,
    as_json: AsJson = False,
) -> None:
    """List the runs of the weekly job, the newest last: ops.weekly_runs."""
    weekly_runs = history.runs(load_catalog(from_environment()), week)[-last:]
    if as_json:
        print_json(weekly_runs)
        return
    rows = []
    for run in weekly_runs:
        seconds = f"{(run.ended_at - run.started_at).total_seconds():.0f}" if run.ended_at else ""
        facts = (run.message, run.versions, run.withheld, run.warnings and f"warnings: {run.warnings}")
        what = " ".join("; ".join(filter(None, facts)).split())
        rows.append(
            (f"{run.started_at:%Y-%m-%d %H:%M:%S}", run.week, seconds, run.outcome, run.failed_step or "", what)
        )
    print_table(
        ("started", "week", "seconds", "outcome", "failed step", "message, versions, withheld or warnings"), rows
    )
