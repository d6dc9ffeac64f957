"""A job that is killed and run again: one version, one mail, a line per run in the history.

It comes before the modules that go on with the main lake, whose job is killed once.
"""

from collections import Counter
from email import message_from_bytes, policy
from email.message import EmailMessage

from python_common.catalog.catalog import load_catalog
from python_common.config.environment import home
from python_export.notify import outbox
from python_export.publishing.manifest import published
from python_export.publishing.target import open_target
from python_jobs.weekly import history
from tests.support.lake import Lake


def mails(subject: str) -> list[EmailMessage]:
    """Return the mails whose subject contains a text."""
    parsed = [message_from_bytes(path.read_bytes(), policy=policy.default) for path in home().glob("mail/*.eml")]
    return [mail for mail in parsed if subject in mail["Subject"]]


def test_each_run_is_in_the_history_and_the_last_one_has_resumed(lake: Lake, first_wave: object) -> None:
    runs = history.runs(load_catalog(lake.settings))
    assert [(run.outcome, run.ended_at is None) for run in runs] == [("killed", True), ("unchanged", False)]
    assert {run.week for run in runs} == {str(lake.last_week)}


def test_the_next_run_alerts_of_each_killed_one(lake: Lake, first_wave: object) -> None:
    [alert] = [mail.get_body(("plain",)).get_content() for mail in mails("the weekly files failed")]
    assert f"The weekly run for {lake.last_week} was killed" in alert


def test_every_version_is_published_once_and_announced_once(lake: Lake, first_wave: object) -> None:
    versions = published(open_target(lake.settings))
    assert {manifest.version for manifest in versions} == {1}
    assert len(versions) == 5
    entries = [entry for entry in outbox.entries(load_catalog(lake.settings)) if entry.kind == outbox.VERSION]
    delivered = {(manifest.path, "delivered") for manifest in versions}
    assert {(entry.path, entry.mail) for entry in entries} == delivered
    # Killed between the mail and the note of it, the job sent it again: the same mail, by its id.
    sent = Counter(mail["Message-ID"] for mail in mails("published"))
    assert [*sent.values()] == [2]
    text = mails("published")[0].get_body(("plain",)).get_content()
    for manifest in versions:
        assert manifest.sha256 in text
        assert f"{manifest.rows:,}" in text
