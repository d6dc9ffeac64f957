"""One run of the weekly job: its steps in order, one run at a time, each run in the history, an alert of a failure."""

import time
from itertools import dropwhile

from pyiceberg.catalog import Catalog

from python_common.catalog.catalog import load_catalog, require_views
from python_common.config.settings import Settings
from python_common.deadline import step_within
from python_common.errors import UserError
from python_common.failure import to_user_error
from python_common.log import log
from python_common.weeks import IsoWeek, weeks_label
from python_dbt.project import Project
from python_export.notify.deliver import alert, only_run
from python_export.notify.exported import Exported
from python_export.run import Run
from python_export.variables import Channels
from python_jobs.weekly import history
from python_jobs.weekly.steps import STEPS


def run(
    settings: Settings,
    project: Project,
    weeks: list[IsoWeek],
    full_refresh: bool = False,
    first_step: str | None = None,
) -> Exported:
    """Run the steps, all or from one on, for some weeks, the newest last; log each, and return what they did.

    Raises:
        UserError: a step failed as a whole, and its line in the history states so. What it had published stays. Or a
            setting is missing, or a channel to the readers is configured wrongly, and nothing was done.
    """
    Channels.of(project.env)
    for field in ("export_root", "pii_key_file"):
        settings.needed(field)

    exported = Exported(weeks[-1])
    catalog = load_catalog(settings, create=True)
    with only_run(settings, project.env, catalog, exported, f"weekly run for {weeks_label(weeks)}") as lease:
        exported.undelivered += _alert_of_killed_runs(settings, project, catalog, exported.week)
        require_views(catalog, settings)
        run = Run(settings, catalog, project, exported, weeks, lease.require, full_refresh=full_refresh)
        this_run = history.begin(catalog, weeks_label(weeks))
        try:
            _run_steps(run, first_step)
        except Exception as cause:
            error = to_user_error(cause, settings)
            try:
                history.end(
                    catalog, this_run, "failed", failed_step=exported.step, message=str(error), **_facts(exported)
                )
            except Exception as second:
                why = to_user_error(second, settings).message
                log.warning("%s will have this run as killed: %s", history.TABLE.identifier, why)
            raise error from (None if error is cause else cause)
        # What fails now is no longer this step.
        exported.step = ""
        history.end(catalog, this_run, _outcome(exported), **_facts(exported))
        return exported


def _alert_of_killed_runs(settings: Settings, project: Project, catalog: Catalog, week: IsoWeek) -> list[UserError]:
    """Send an alert of each run that did not end, before `begin` marks them, and return what was not delivered."""
    undelivered: list[UserError] = []
    for killed in history.unfinished(catalog):
        error = UserError(f"The weekly run for {killed.week} was killed", "What it has published is complete")
        try:
            undelivered += alert(project.env, week, error, killed.started_at)
        except Exception as cause:  # the run itself must not end for it
            undelivered.append(to_user_error(cause, settings))
    return undelivered


def _run_steps(run: Run, first_step: str | None) -> None:
    for step, work in dropwhile(lambda step: first_step not in (None, step[0]), STEPS.items()):
        run.exported.step, started, note = step, time.monotonic(), "failed"
        try:
            run.require()
            with step_within(step):
                note = work(run)
        finally:
            log.info(f"{step:10} {time.monotonic() - started:4.0f} s  {note}")


def _outcome(exported: Exported) -> str:
    if exported.withheld:
        return "withheld"
    if exported.undelivered:
        return "notification failed"
    return "unchanged" if all(file.unchanged for file in exported.published) else "published"


def _facts(exported: Exported) -> dict[str, str | None]:
    new = [file.manifest.path for file in exported.published if not file.unchanged]
    return {
        "versions": ", ".join(new) or None,
        "withheld": "; ".join(notice.message for notice in exported.notices() if notice.object) or None,
        "warnings": "; ".join(exported.warnings) or None,
    }
