"""One run of the weekly job: its steps in order, one run at a time, each run in the history, a failure told."""

import time
from collections.abc import Mapping

from rich.console import Console

from lakehouse.catalog import load_catalog
from lakehouse.errors import UserError
from lakehouse.lock import locked
from lakehouse.settings import Settings
from lakehouse.weeks import IsoWeek
from python_export import channels
from python_export.datasets import Project
from python_export.notify import as_user_error, tell_of_failure
from weekly_job import history
from weekly_job.steps import STEPS, Job


def run(settings: Settings, env: Mapping[str, str], project: Project, week: IsoWeek, console: Console) -> Job:
    """Run every step for a week and return what they did, with a line on the console for each.

    Raises:
        UserError: a step failed, and its line in the history says so. What it had published stays. Or a channel to the
            readers is configured wrongly, and nothing was done.
    """
    channels.from_environment(env)

    def say(line: str) -> None:
        console.print(line, markup=False)

    with locked("weekly", say):
        catalog = load_catalog(settings, create=True)
        job = Job(settings, env, project, week, catalog, say)
        this_run = history.begin(catalog, week)
        step, started = "", time.monotonic()
        try:
            for step, work in STEPS.items():
                started = time.monotonic()
                with console.status(step):
                    note = work(job)
                say(f"{step:10} {time.monotonic() - started:4.0f} s  {note}")
        except Exception as problem:
            error = as_user_error(problem, settings)
            say(f"{step:10} {time.monotonic() - started:4.0f} s  failed")
            history.end(catalog, this_run, "failed", failed_step=step, message=str(error), versions=_new(job))
            tell_of_failure(settings, env, week, UserError(f"{step}: {error.message}", error.remedy), say)
            raise error from (None if isinstance(problem, UserError) else problem)
        outcome = "not told" if job.not_told else "published" if _new(job) else "unchanged"
        history.end(catalog, this_run, outcome, versions=_new(job))
        return job


def _new(job: Job) -> str | None:
    return ", ".join(one.manifest.path for one in job.published if not one.unchanged) or None
