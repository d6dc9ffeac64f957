"""One run of the weekly job: its steps in order, one run at a time, each run in the history, a failure told."""

import time
from collections.abc import Mapping

from rich.console import Console

from lakehouse.catalog import load_catalog, require_views
from lakehouse.deadline import step_within
from lakehouse.errors import UserError
from lakehouse.failure import to_user_error
from lakehouse.lease import leased
from lakehouse.lock import locked
from lakehouse.settings import Settings
from lakehouse.weeks import IsoWeek, weeks_label
from python_export.datasets.project import Project
from python_export.telling.deliver import alert_of_failure, alert_of_killed
from python_export.telling.exported import Exported
from python_export.variables import Channels
from weekly_job import history
from weekly_job.steps import STEPS, Job


def run(
    settings: Settings,
    env: Mapping[str, str],
    project: Project,
    weeks: list[IsoWeek],
    console: Console,
    full_refresh: bool = False,
) -> Job:
    """Run every step for some weeks, the newest last, and return what they did, with a line on the console for each.

    Raises:
        UserError: a step failed as a whole, and its line in the history says so. What it had published stays. Or a
            setting is missing, or a channel to the readers is configured wrongly, and nothing was done.
    """
    Channels.of(env)
    for field in ("export_root", "pii_key_file"):
        settings.needed(field)
    week = weeks[-1]

    def say(line: str) -> None:
        console.print(line, markup=False)

    with locked("weekly"):
        catalog = load_catalog(settings, create=True)
        require_views(catalog, settings)
        with leased(catalog, "weekly", f"weekly run for {weeks_label(weeks)}", reports_if_killed=True) as lease:
            job = Job(settings, env, project, catalog, say, weeks, Exported(week), full_refresh, require=lease.require)
            job.not_told += alert_of_killed(env, week, lease.left, say)
            _run_steps(job, console)
            return job


def _run_steps(job: Job, console: Console) -> None:
    this_run = history.begin(job.catalog, weeks_label(job.weeks))
    step, started = "", time.monotonic()
    try:
        for step, work in STEPS.items():
            started = time.monotonic()
            job.require()
            with console.status(step), step_within(job.env, step):
                note = work(job)
            job.say(f"{step:10} {time.monotonic() - started:4.0f} s  {note}")
    except Exception as problem:
        error = to_user_error(problem, job.settings)
        job.say(f"{step:10} {time.monotonic() - started:4.0f} s  failed")
        # First of all: what has failed may be what the history is written to.
        failure = UserError(f"{step}: {error.message}", error.remedy)
        alert_of_failure(job.settings, job.env, job.weeks[-1], failure, job.say, job.exported.notices())
        try:
            history.end(job.catalog, this_run, "failed", failed_step=step, message=str(error), **_facts(job))
        except Exception as second:
            why = to_user_error(second, job.settings).message
            job.say(f"{history.TABLE.identifier} will say that this run was killed: {why}")
        raise error from (None if isinstance(problem, UserError) else problem)
    history.end(job.catalog, this_run, _outcome(job), **_facts(job))


def _outcome(job: Job) -> str:
    if job.exported.withheld:
        return "withheld"
    if job.not_told:
        return "not told"
    return "unchanged" if all(file.unchanged for file in job.exported.published) else "published"


def _facts(job: Job) -> dict[str, str | None]:
    new = [file.manifest.path for file in job.exported.published if not file.unchanged]
    return {
        "versions": ", ".join(new) or None,
        "withheld": "; ".join(map(str, job.exported.withheld)) or None,
        "warnings": "; ".join(job.exported.warnings) or None,
    }
