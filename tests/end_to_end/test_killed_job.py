"""A job that is killed in every step and run again: one version, one mail, a line per run in the history.

It comes before the modules that go on with the same lake.
"""

from collections import Counter
from email import message_from_bytes, policy
from email.message import EmailMessage

from lakehouse.catalog import load_catalog
from lakehouse.environment import home
from python_export.publishing.manifest import published
from python_export.publishing.target import open_target
from python_export.telling import outbox
from tests.end_to_end.conftest import Lake
from tests.support.killed import POINTS
from weekly_job import history
from weekly_job.steps import STEPS

KILLED = len(POINTS)


def test_each_run_is_in_the_history_and_the_last_one_has_resumed(lake: Lake, first_wave: object) -> None:
    runs = history.runs(load_catalog(lake.settings))
    killed = [("killed", True)] * KILLED
    assert [(run.outcome, run.ended_at is None) for run in runs] == [*killed, ("unchanged", False)]
    assert list(POINTS) == list(STEPS)
    assert {run.week for run in runs} == {str(lake.last_week)}


def mails(subject: str) -> list[EmailMessage]:
    """Return the mails whose subject contains a text."""
    found = [message_from_bytes(path.read_bytes(), policy=policy.default) for path in home().glob("mail/*.eml")]
    return [mail for mail in found if subject in mail["Subject"]]


def test_the_next_run_alerts_of_each_killed_one(lake: Lake, first_wave: object) -> None:
    alerts = [mail.get_body(("plain",)).get_content() for mail in mails("the weekly files failed")]
    assert len(alerts) == KILLED
    assert all(f"The weekly run for {lake.last_week} was killed" in alert for alert in alerts)


def test_every_version_is_published_once_and_told_of_once(lake: Lake, first_wave: object) -> None:
    versions = published(open_target(lake.settings))
    assert {manifest.version for manifest in versions} == {1}
    assert len(versions) == 5
    entries = [entry for entry in outbox.entries(load_catalog(lake.settings)) if entry.kind == outbox.VERSION]
    assert {(entry.path, entry.mail) for entry in entries} == {(manifest.path, "delivered") for manifest in versions}
    # Two files of a run that was killed then, and the others. Killed between the mail and the note of it, the job sent
    # it again: the same mail, by its id.
    published_mails = mails("published")
    assert sorted(Counter(mail["Message-ID"] for mail in published_mails).values()) == [1, 2]
    bodies = {mail["Message-ID"]: mail.get_body(("plain",)).get_content() for mail in published_mails}
    text = "".join(bodies.values())
    for manifest in versions:
        assert manifest.sha256 in text
        assert f"{manifest.rows:,}" in text
