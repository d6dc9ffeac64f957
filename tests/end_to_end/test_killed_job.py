"""A job that is killed and run again: one version, one mail, a line per run in the history.

It comes before the modules that go on with the main lake. The job of that is killed once; `make test-slow` kills
one on a separate lake in every step.
"""

import signal
from collections import Counter
from dataclasses import dataclass
from email import message_from_bytes, policy
from email.message import EmailMessage
from functools import partial

import pytest

from python_common.catalog.catalog import load_catalog
from python_common.config.environment import home
from python_common.config.settings import Settings
from python_export.notify import outbox
from python_export.publishing.manifest import published
from python_export.publishing.target import open_target
from python_jobs.weekly import history
from python_jobs.weekly.steps import STEPS
from tests.support.killed import POINTS
from tests.support.lake import Lake, produce, run_killed, succeed


@dataclass
class Killed:
    """A lake with killed runs: how many the history has, and how often each mail of versions was sent, in order."""

    lake: Lake
    runs: int
    mails: list[int]


def mails(subject: str) -> list[EmailMessage]:
    """Return the mails whose subject contains a text."""
    parsed = [message_from_bytes(path.read_bytes(), policy=policy.default) for path in home().glob("mail/*.eml")]
    return [mail for mail in parsed if subject in mail["Subject"]]


class KilledJob:
    """What holds whatever the job was killed in."""

    def test_each_run_is_in_the_history_and_the_last_one_has_resumed(self, killed: Killed) -> None:
        runs = history.runs(load_catalog(killed.lake.settings))
        was_killed = [("killed", True)] * killed.runs
        assert [(run.outcome, run.ended_at is None) for run in runs] == [*was_killed, ("unchanged", False)]
        assert {run.week for run in runs} == {str(killed.lake.last_week)}

    def test_the_next_run_alerts_of_each_killed_one(self, killed: Killed) -> None:
        alerts = [mail.get_body(("plain",)).get_content() for mail in mails("the weekly files failed")]
        assert len(alerts) == killed.runs
        assert all(f"The weekly run for {killed.lake.last_week} was killed" in alert for alert in alerts)

    def test_every_version_is_published_once_and_announced_once(self, killed: Killed) -> None:
        settings = killed.lake.settings
        versions = published(open_target(settings))
        assert {manifest.version for manifest in versions} == {1}
        assert len(versions) == 5
        entries = [entry for entry in outbox.entries(load_catalog(settings)) if entry.kind == outbox.VERSION]
        delivered = {(manifest.path, "delivered") for manifest in versions}
        assert {(entry.path, entry.mail) for entry in entries} == delivered
        # Killed between the mail and the note of it, the job sent it again: the same mail, by its id.
        published_mails = mails("published")
        assert sorted(Counter(mail["Message-ID"] for mail in published_mails).values()) == killed.mails
        bodies = {mail["Message-ID"]: mail.get_body(("plain",)).get_content() for mail in published_mails}
        text = "".join(bodies.values())
        for manifest in versions:
            assert manifest.sha256 in text
            assert f"{manifest.rows:,}" in text


class TestAfterAllSteps(KilledJob):
    @pytest.fixture
    def killed(self, lake: Lake, first_wave: object) -> Killed:
        return Killed(lake, 1, [2])


@pytest.mark.slow
@pytest.mark.stack
@pytest.mark.xdist_group("killed job")
class TestInEveryStep(KilledJob):
    @pytest.fixture(scope="class")
    def killed(self, settings: Settings) -> Killed:
        """The weekly job, killed in each step, one after the other, and run again each time."""
        succeed({"sample-data": lambda: produce(wave=1)})
        succeed({point: partial(run_killed, point) for point in POINTS}, code=-signal.SIGKILL)
        succeed({"weekly": lambda: run_killed("nowhere")})
        # One mail has all files, those of a killed run too.
        return Killed(Lake(settings), len(POINTS), [2])


@pytest.mark.unit
def test_each_step_has_a_point_to_be_killed_at() -> None:
    assert list(POINTS) == list(STEPS)
