"""A due dataset that is not published in time makes one alarm, for the operators, with the reason if it is withheld."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

from python_common.weeks import IsoWeek
from python_export.notify import deliver
from python_export.notify.outbox import Notice
from python_export.publishing import late
from python_export.publishing.publish import withdraw
from python_export.variables import Channels
from tests.support.notify import NEXT_WEEK, WEEK, Calls, Site
from tests.support.services.mail_server import Mailbox, text_of

# When the files of WEEK are expected.
DEADLINE = datetime(2021, 1, 4, 9, tzinfo=UTC)
SECOND = timedelta(seconds=1)
EXPECTED = {"LAKEHOUSE_EXPORT_EXPECTED_BY": "Mon 09:00", "LAKEHOUSE_ALERT_TO": "operators@example.com"}
SUBJECT = f"{WEEK}: 1 dataset not published in time"
NOT_RUN = "events 2020-W53 was expected by 2021-01-04 09:00 UTC: no run has published or withheld it"
At = Callable[..., list[str]]


@pytest.fixture
def at(site: Site, mailbox: Mailbox, exports_declared: dict[str, str]) -> At:
    """Return a function that notifies at a moment; since the week before, events are due each week."""
    late.record_due(site.catalog, site.target, IsoWeek(2020, 52), ["events"])
    site.publish("a", "2020-W52")
    deliver.notify(site.settings, exports_declared, site.catalog)

    def notify(now: datetime, *notices: Notice, **more: str) -> list[str]:
        env = mailbox.env | exports_declared | EXPECTED | more
        errors = deliver.notify(site.settings, env, site.catalog, notices, [IsoWeek.parse(WEEK)], now)
        return [str(error) for error in errors]

    return notify


def test_a_due_dataset_makes_one_alarm_from_the_expected_time_on(at: At, mailbox: Mailbox, webhook: Calls) -> None:
    assert at(DEADLINE - SECOND, LAKEHOUSE_WEBHOOK_URL=webhook.url) == []
    assert (mailbox.mails, webhook.received) == ([], [])
    # Later runs, also with another reason, send no other.
    for now in (DEADLINE, DEADLINE + SECOND):
        assert at(now, LAKEHOUSE_WEBHOOK_URL=webhook.url) == []
    late_reason = Notice(WEEK, "events", "events 2020-W53 is withheld: behind: payments")
    assert at(DEADLINE + timedelta(days=2), late_reason) == []
    assert mailbox.subjects == [SUBJECT, f"{WEEK}: 1 withheld"]
    assert mailbox.accepted_for[0] == ["operators@example.com"]
    assert NOT_RUN in text_of(mailbox.mails[0])
    [(headers, body)] = webhook.received
    assert headers["Idempotency-Key"].endswith("/2020-W53/events")
    assert (body["event"], body["week"], body["dataset"], body["text"]) == ("alarm", WEEK, "events", NOT_RUN)
    # The next week has an alarm too.
    assert at(DEADLINE + timedelta(days=7)) == []
    assert mailbox.subjects[2:] == [f"{NEXT_WEEK}: 1 dataset not published in time"]


def test_a_week_without_a_run_until_its_end_has_its_alarm_from_the_next_run(at: At, mailbox: Mailbox) -> None:
    assert at(DEADLINE + timedelta(days=3), LAKEHOUSE_EXPORT_EXPECTED_BY="Sun 20:00") == []
    assert mailbox.mails == []
    # The Monday after, the week that follows is complete, and not expected yet.
    assert at(datetime(2021, 1, 11, 3, tzinfo=UTC), LAKEHOUSE_EXPORT_EXPECTED_BY="Sun 20:00") == []
    assert mailbox.subjects == [SUBJECT]


def test_an_alarm_gives_the_reason_why_a_dataset_is_withheld(at: At, mailbox: Mailbox) -> None:
    at(DEADLINE - SECOND, Notice(WEEK, "events", "events 2020-W53 is withheld: behind: orders"))
    at(DEADLINE, Notice(WEEK, "events", "events 2020-W53 is withheld: behind: payments"))
    [alarm] = [mail for mail in mailbox.mails if mail["Subject"] == SUBJECT]
    expected = "events 2020-W53 was expected by 2021-01-04 09:00 UTC: events 2020-W53 is withheld: behind: payments"
    assert expected in text_of(alarm)


@pytest.mark.parametrize("state", ["published", "withdrawn", "skipped", "never due"])
def test_what_is_published_or_not_due_makes_no_alarm(at: At, site: Site, mailbox: Mailbox, state: str) -> None:
    week = IsoWeek.parse(WEEK)
    now = DEADLINE
    if state == "skipped":
        late.record_due(site.catalog, site.target, week, ["events"], "no data that week")
    elif state == "never due":
        now -= timedelta(weeks=2)
    else:
        site.publish("a")
        if state == "withdrawn":
            withdraw(site.target, f"events/{WEEK}/v1", "a wrong price")
    assert at(now) == []
    assert SUBJECT not in mailbox.subjects
    assert {entry.kind for entry in site.entries} <= {"version", "withdrawn"}


def test_without_a_manifest_of_dbt_the_alarm_is_a_failed_notification(
    at: At, tmp_path_factory: pytest.TempPathFactory
) -> None:
    [error] = at(DEADLINE, DBT_TARGET_PATH=str(tmp_path_factory.mktemp("empty")))
    assert "manifest" in error


@pytest.mark.parametrize(
    ("text", "expected"),
    [("Mon 09:00", timedelta(hours=9)), ("Sun 23:59", timedelta(days=6, hours=23, minutes=59))],
)
def test_a_time_of_the_week_counts_from_monday(text: str, expected: timedelta) -> None:
    assert Channels.of({"LAKEHOUSE_EXPORT_EXPECTED_BY": text}).expected_by == expected
