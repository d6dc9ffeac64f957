"""The job around its steps: a failure is named, notified and recorded, and one run at a time holds the lock."""

import json
import re
import subprocess
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from click.testing import Result
from sqlalchemy.exc import OperationalError
from typer.testing import CliRunner

from python_common.catalog.catalog import load_catalog
from python_common.config.environment import PROJECT_ROOT
from python_common.config.settings import Settings
from python_common.errors import DeadlineError, UserError
from python_common.locks import lock
from python_common.locks.lock import locked
from python_common.weeks import IsoWeek
from python_dbt.project import Project
from python_dbt.run import build_all
from python_export.notify import deliver
from python_export.notify.exported import Exported
from python_export.publishing import late
from python_export.publishing.publish import Published
from python_export.publishing.target import open_target
from python_export.run import Run
from python_jobs.weekly import cli, history, job
from python_jobs.weekly.steps import STEPS
from tests.support.hostile_rows import draft
from tests.support.kills import POINTS, killed_at
from tests.support.notify import BEHIND
from tests.support.race import hanging_dbt, until
from tests.support.services.mail_server import dead_smtp, mail_server, text_of
from tests.support.small_project import write_manifest
from tests.support.versions import publish_content

WEEK = IsoWeek(2020, 53)


@dataclass
class Weekly:
    """The weekly job of a lake."""

    settings: Settings
    patch: pytest.MonkeyPatch

    def run(
        self, build: Callable[[Run], str], env: dict[str, str] | None = None, weeks: Sequence[IsoWeek] = (WEEK,)
    ) -> Exported:
        """Run the job with a first step that works and a given second one."""
        self.patch.setattr(job, "STEPS", {"ingest": lambda run: "3 records", "build": build})
        return job.run(self.settings, Project(Path(), env or {}), weeks)

    def kill(self) -> None:
        """Run the job until it is killed in a step."""
        killed_at("weekly run", "in a step", job.run, self.settings, Project(Path(), {}), [WEEK])

    def command(self, env: dict[str, str], *arguments: str, **steps: Callable[[Run], str]) -> Result:
        """Run `lakehouse weekly` with these steps and no others."""
        self.patch.setattr(job, "STEPS", steps)
        self.patch.setattr(cli, "from_environment", lambda env=None: self.settings)
        self.patch.setattr(cli, "environment", lambda: env)
        return CliRunner().invoke(cli.app, arguments)

    @property
    def runs(self) -> list[history.WeeklyRun]:
        return history.runs(load_catalog(self.settings, create=True))


@pytest.fixture
def weekly(offline_settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Weekly:
    monkeypatch.setenv("LAKEHOUSE_HOME", str(tmp_path))
    monkeypatch.setattr(deliver, "RETRIED_SECONDS", 0.0)
    return Weekly(offline_settings, monkeypatch)


def failing(error: Exception) -> Callable[[Run], str]:
    """Return a step that publishes a version, and fails."""

    def fail(run: Run) -> str:
        run.exported.published.append(Published(replace(draft(str(WEEK)), version=2), "", unchanged=False))
        raise error

    return fail


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (UserError("dbt could not build", "See its log"), "dbt could not build. See its log."),
        (ValueError("4111-1111-1111-1111"), "Unexpected error: ValueError. Run it again, and report it"),
        (OperationalError("", {}, Exception()), "The catalog at jdbc:sqlite:"),
    ],
)
def test_a_failure_is_recorded_and_sent_and_quotes_no_row(weekly: Weekly, error: Exception, message: str) -> None:
    with mail_server() as mailbox, pytest.raises(UserError, match="^" + message[:20]):
        weekly.run(failing(error), mailbox.env)
    [line] = weekly.runs
    assert (line.week, line.outcome, line.failed_step) == ("2020-W53", "failed", "build")
    assert line.message.startswith(message)
    assert line.versions == "events/2020-W53/v2"
    [mail] = mailbox.mails
    assert mail["Subject"] == "2020-W53: the weekly files failed"
    assert f"build: {line.message}" in text_of(mail)


def test_a_step_has_no_points_to_be_killed_at() -> None:
    """A kill in `verify` or `reconcile` leaves nothing, in `complete` whole rows, and in `build` batches to read again.

    The latter is in test_batches_that_are_read_again_change_nothing.
    """
    version = "version published, directory"
    processes = {"ingest": "ingester", "export": version, "report": version, "notify": "notify"}
    assert {*processes.values()} <= {*POINTS}
    assert [step for step in STEPS if step not in processes] == ["verify", "complete", "build", "reconcile"]


def test_the_next_run_of_any_week_alerts_of_a_killed_one_once(weekly: Weekly) -> None:
    weekly.kill()
    with mail_server() as mailbox:
        for weeks in ([WEEK.minus(1)], [WEEK.minus(1), WEEK]):
            weekly.run(lambda run: "built", mailbox.env, weeks)
    [mail] = mailbox.mails
    assert f"The weekly run for {WEEK} was killed" in text_of(mail)
    assert [line.outcome for line in weekly.runs] == ["killed", *["unchanged"] * 2]


def test_an_undelivered_alert_of_a_killed_run_is_exit_code_3(weekly: Weekly) -> None:
    weekly.kill()
    done = weekly.command(dead_smtp(), "--week", str(WEEK), build=lambda run: "built")
    assert done.exit_code == 3
    assert weekly.runs[-1].outcome == "notification failed"


def test_a_run_that_waits_in_vain_sends_an_alert_alone(weekly: Weekly) -> None:
    publish_content(open_target(weekly.settings), "the other run's")
    weekly.patch.setattr(lock, "WAIT_SECONDS", 0.3)
    with mail_server() as mailbox, locked("weekly"), pytest.raises(DeadlineError, match=r"^Another weekly has not"):
        weekly.run(lambda run: pytest.fail("built"), mailbox.env)
    [mail] = mailbox.mails
    assert "Another weekly has not ended within 1 s" in text_of(mail)


def test_a_malformed_channel_is_refused_before_the_first_step(weekly: Weekly) -> None:
    env = {"LAKEHOUSE_SMTP_HOST": "localhost"}
    with pytest.raises(UserError, match="LAKEHOUSE_SMTP_FROM is not set"):
        weekly.run(lambda run: pytest.fail("built"), env)


def warn(run: Run) -> str:
    run.exported.warnings.append("the field phone has no class")
    return "built"


def test_a_dead_mail_server_is_exit_code_3(weekly: Weekly, caplog: pytest.LogCaptureFixture) -> None:
    env = dead_smtp() | {"LAKEHOUSE_SMTP_TLS": "none"}
    steps = {"build": warn, "notify": STEPS["notify"]}
    done = weekly.command(env, "--week", str(WEEK), **steps)
    assert done.exit_code == 3
    # The steps are logged.
    assert done.stdout == "warning: the field phone has no class\n"
    assert re.fullmatch(r"build +0 s  built", caplog.messages[0])
    assert "a notification failed: " in caplog.text
    [line] = weekly.runs
    assert (line.outcome, line.warnings, line.versions) == ("notification failed", "the field phone has no class", None)


def test_a_withheld_dataset_is_exit_code_4_and_in_the_history(weekly: Weekly, tmp_path: Path) -> None:
    def withhold(run: Run) -> str:
        run.exported.withheld.append(BEHIND)
        return warn(run)

    options = ("--weeks", f"2020-W52..{WEEK}", "--metrics-file", str(tmp_path / "export.prom"))
    done = weekly.command({}, *options, "--json", build=withhold)
    assert done.exit_code == 4
    withheld = {"dataset": "orders", "week": str(WEEK), "reason": "behind: payments at 2020-12-31 00:00:00 UTC"}
    warnings = ["the field phone has no class"]
    assert json.loads(done.stdout) == {"published": [], "withheld": [withheld], "warnings": warnings}
    assert "\nlakehouse_export_withheld_datasets 1.0\n" in (tmp_path / "export.prom").read_text()
    listed = weekly.command({}, "runs").stdout
    [run] = json.loads(weekly.command({}, "runs", "--json").stdout)
    assert (run["week"], run["outcome"], run["failed_step"]) == ("2020-W52..2020-W53", "withheld", None)
    assert run["withheld"] == "orders 2020-W53 is withheld: behind: payments at 2020-12-31 00:00:00 UTC"
    assert run["started_at"] <= run["ended_at"]
    for week, count in (("2020-W51", 0), ("2020-W52", 1), ("2020-W53", 1), ("2021-W01", 0)):
        of_week = weekly.command({}, "runs", "--week", week, "--json").stdout
        assert json.loads(of_week) == [run] * count
    for text in (run["week"], run["withheld"], "warnings: the field phone has no class"):
        assert text in listed


def test_an_issue_of_no_dataset_is_exit_code_4_too(weekly: Weekly) -> None:
    def find(run: Run) -> str:
        run.exported.has_issues = True
        return "built"

    assert weekly.command({}, "--week", str(WEEK), build=find).exit_code == 4


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ((), [*STEPS]),
        (("--from", "complete"), [*STEPS][2:]),
        (("--from", "export"), []),
        (("--week", str(WEEK), "--weeks", f"{WEEK}..{WEEK}"), []),
    ],
)
def test_a_run_begins_with_the_step_it_is_asked_to(
    weekly: Weekly, arguments: tuple[str, ...], expected: list[str]
) -> None:
    """Not after the topics are read: what is published then would be decided by what an earlier run has read."""
    done: list[str] = []
    steps = {name: lambda run: done.append(run.exported.step) or "" for name in STEPS}
    assert weekly.command({}, *arguments, **steps).exit_code == (0 if expected else 2)
    assert done == expected


@pytest.mark.parametrize("arguments", [(), ("--full-refresh",)])
def test_dbt_refreshes_in_full_when_the_job_is_asked_to(weekly: Weekly, arguments: tuple[str, ...]) -> None:
    selected: list[tuple[str, ...]] = []

    def build_all(project: Project, weeks: list[IsoWeek], *selection: str) -> None:
        selected.append(selection)
        raise UserError("dbt could not build", "See its log")

    weekly.patch.setattr("python_jobs.weekly.steps.build_all", build_all)
    weekly.command({}, *arguments, build=STEPS["build"])
    assert selected == [arguments]


def test_a_dbt_that_outlives_its_run_still_holds_the_lock(weekly: Weekly, tmp_path: Path) -> None:
    """So the dbt of a killed job and that of the next one never build at the same time."""
    dbt_process = hanging_dbt(tmp_path, weekly.patch)
    weekly.patch.setattr(lock, "WAIT_SECONDS", 0.3)
    with ThreadPoolExecutor(1) as pool:
        # The end of the block closes the run's file, as its end does.
        with locked("weekly"):
            building = pool.submit(build_all, Project(tmp_path, {"PATH": "/usr/bin:/bin"}), [WEEK])
            until(dbt_process.exists)
        with pytest.raises(DeadlineError, match="Another weekly has not ended"), locked("weekly"):
            pass
        subprocess.run(["kill", dbt_process.read_text().strip()], check=True)
        assert building.exception()
    with locked("weekly"):
        pass


def test_a_week_is_due_though_its_topics_cannot_be_read(weekly: Weekly, tmp_path: Path) -> None:
    export = {"export": {"key": ["id"], "order_by": ["id"]}}
    write_manifest(tmp_path, "exports", {"exp_weekly__events": export})
    project = Project(PROJECT_ROOT, {"DBT_TARGET_PATH": str(tmp_path)})
    assert [*STEPS].index("complete") < [*STEPS].index("build")
    steps = {"complete": STEPS["complete"], "build": lambda run: pytest.fail("built")}
    weekly.patch.setattr(job, "STEPS", steps)

    # No Thrift server answers.
    with pytest.raises(UserError):
        job.run(weekly.settings, project, [WEEK])

    catalog, target = load_catalog(weekly.settings), open_target(weekly.settings)
    assert weekly.runs[0].failed_step == "complete"
    # The next run is for the next week.
    due, _ = late.weeks_to_export(catalog, target, {}, ["events"], WEEK.minus(-1), 8)
    assert ("events", WEEK) in due
