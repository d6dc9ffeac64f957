"""A job that is killed in every step and run again: one version, one mail, a line per run in the history.

It comes before the modules that go on with the same lake.
"""

from email import message_from_bytes, policy

from lakehouse.catalog import load_catalog
from lakehouse.settings import home
from python_export import outbox
from python_export.manifest import published
from python_export.target import open_target
from tests.end_to_end.conftest import Lake
from weekly_job import history


def test_each_run_is_in_the_history_and_the_last_one_has_resumed(lake: Lake, first_wave: object) -> None:
    runs = history.runs(load_catalog(lake.settings))
    assert [(run.outcome, run.ended_at is None) for run in runs] == [*[("killed", True)] * 3, ("unchanged", False)]
    assert {run.week for run in runs} == {str(lake.last_week)}


def test_every_version_is_published_once_and_told_of_once(lake: Lake, first_wave: object) -> None:
    versions = published(open_target(lake.settings))
    assert {one.version for one in versions} == {1}
    assert len(versions) == 5
    entries = outbox.entries(load_catalog(lake.settings))
    assert {(one.idempotency_key, one.mail) for one in entries} == {(one.path, "delivered") for one in versions}
    # Killed between the mail and the note of it, the job sent it again: the same mail, by its id.
    mails = [message_from_bytes(path.read_bytes(), policy=policy.default) for path in home().glob("mail/*.eml")]
    assert len(mails) == 2
    assert len({mail["Message-ID"] for mail in mails}) == 1
    text = mails[0].get_body(("plain",)).get_content()
    for one in versions:
        assert one.sha256 in text
        assert f"{one.rows:,}" in text
