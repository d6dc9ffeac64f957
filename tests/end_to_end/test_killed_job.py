"""A job that is killed and run again: one version, one mail, a line per run in the history.

It comes before the modules that go on with the main lake. The job of that is killed once; with `-m long` one on a lake
of its own is killed in every step.
"""

import signal
from collections import Counter
from dataclasses import dataclass
from email import message_from_bytes, policy
from functools import partial

import pytest

from lakehouse.catalog import load_catalog
from lakehouse.environment import home
from lakehouse.settings import Settings
from python_export.publishing.manifest import published
from python_export.publishing.target import open_target
from python_export.telling import outbox
from tests.conftest import run_dbt
from tests.end_to_end.conftest import Lake, produce, run_killed, succeed
from tests.support.killed import POINTS
from weekly_job import history
from weekly_job.steps import STEPS


@dataclass
class Killed:
    """A lake with killed runs: how many the history has, and how often each mail of versions was sent, in order."""

    lake: Lake
    runs: int
    mails: list[int]


class KilledJob:
    """What holds whatever the job was killed in."""

    def test_each_run_is_in_the_history_and_the_last_one_has_resumed(self, killed: Killed) -> None:
        runs = history.runs(load_catalog(killed.lake.settings))
        was_killed = [("killed", True)] * killed.runs
        assert [(run.outcome, run.ended_at is None) for run in runs] == [*was_killed, ("unchanged", False)]
        assert {run.week for run in runs} == {str(killed.lake.last_week)}

    def test_each_killed_run_is_told_of_by_the_next(self, killed: Killed) -> None:
        entries = outbox.entries(load_catalog(killed.lake.settings))
        failures = [entry for entry in entries if entry.kind == outbox.FAILURE]
        assert [entry.mail for entry in failures] == ["delivered"] * killed.runs
        assert all("was killed" in entry.error for entry in failures)

    def test_every_version_is_published_once_and_told_of_once(self, killed: Killed) -> None:
        settings = killed.lake.settings
        versions = published(open_target(settings))
        assert {manifest.version for manifest in versions} == {1}
        assert len(versions) == 5
        entries = [entry for entry in outbox.entries(load_catalog(settings)) if entry.kind == outbox.VERSION]
        delivered = {(manifest.path, "delivered") for manifest in versions}
        assert {(entry.path, entry.mail) for entry in entries} == delivered
        all_mails = [message_from_bytes(path.read_bytes(), policy=policy.default) for path in home().glob("mail/*.eml")]
        # Killed between the mail and the note of it, the job sent it again: the same mail, by its id.
        mails = [mail for mail in all_mails if "published" in mail["Subject"]]
        assert sorted(Counter(mail["Message-ID"] for mail in mails).values()) == killed.mails
        text = "".join({mail["Message-ID"]: mail.get_body(("plain",)).get_content() for mail in mails}.values())
        for manifest in versions:
            assert manifest.sha256 in text
            assert f"{manifest.rows:,}" in text


class TestAfterAllSteps(KilledJob):
    @pytest.fixture
    def killed(self, lake: Lake, first_wave: object) -> Killed:
        return Killed(lake, 1, [2])


@pytest.mark.long
@pytest.mark.stack
@pytest.mark.xdist_group("killed job")
class TestInEveryStep(KilledJob):
    @pytest.fixture(scope="class")
    def killed(self, settings: Settings) -> Killed:
        """The weekly job, killed in each step, one after the other, and run again each time."""
        assert list(POINTS) == list(STEPS)
        succeed({"sample-data": lambda: produce(wave=1)})
        succeed({point: partial(run_killed, point) for point in POINTS}, code=-signal.SIGKILL)
        succeed({"weekly": lambda: run_killed("nowhere")})
        # The last of them dies while it tells of the one before, and has begun nothing yet. Two files are of a run that
        # was killed then.
        return Killed(Lake(settings), len(POINTS) - 1, [1, 2])

    def test_what_they_have_built_equals_a_full_refresh(self, killed: Killed) -> None:
        incremental = killed.lake.contents("deduplicated", "marts", "exports")
        rebuilt = run_dbt("build", "--full-refresh", "--exclude-resource-type", "test", "unit_test")
        assert rebuilt.returncode == 0, rebuilt.stdout[-3000:]
        assert killed.lake.contents("deduplicated", "marts", "exports") == incremental
