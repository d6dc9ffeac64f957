"""Delivery on a real mail server and a real HTTP server: channels that fail, alerts of failed runs, alarms.

An alert reaches the operators whatever else is broken, and it quotes no row. A due dataset that is not published in
time makes one alarm, with the reason if it is withheld.
"""

import json
import sqlite3
import ssl
from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from aiosmtpd.smtp import AuthResult, LoginPassword
from click.testing import Result

from python_common.errors import Issue, UserError
from python_common.locks import lease
from python_common.weeks import IsoWeek
from python_export.cli import run as cli
from python_export.notify import deliver, outbox
from python_export.publishing import late
from python_export.publishing.publish import withdraw
from python_export.run import Run
from python_export.variables import Channels
from tests.support.disk import no_room_beyond
from tests.support.hostile_rows import failing
from tests.support.in_process import Command
from tests.support.notify import BEHIND, NEXT_WEEK, WEEK, Calls, Site, withheld
from tests.support.services.mail_server import Mailbox, MailServer, dead_smtp, smtp_at, text_of
from tests.support.services.secured import Authority
from tests.support.versions import without_folders

# When the files of WEEK are expected.
DEADLINE = datetime(2021, 1, 4, 9, 30, tzinfo=UTC)
SECOND = timedelta(seconds=1)
EXPECTED = {"LAKEHOUSE_EXPORT_EXPECTED_BY": "Mon 09:30", "LAKEHOUSE_ALERT_TO": "operators@example.com"}
SUBJECT = f"{WEEK}: 1 dataset not published in time"
NOT_RUN = "events 2020-W53 was expected by 2021-01-04 09:30 UTC: no run has published or withheld it"
At = Callable[..., list[str]]
LOGIN = {"LAKEHOUSE_SMTP_USER": "u", "LAKEHOUSE_SMTP_PASSWORD": "top-secret"}
HOOK = {"LAKEHOUSE_WEBHOOK_URL": "https://hooks.example/secret", "LAKEHOUSE_WEBHOOK_TOKEN": "secret"}


def test_a_refused_message_does_not_hold_up_the_next(site: Site, mailbox: Mailbox, webhook: Calls) -> None:
    hook = {"LAKEHOUSE_WEBHOOK_URL": f"{webhook.url}/secret-path", "LAKEHOUSE_WEBHOOK_TOKEN": "secret-token"}
    for week in (WEEK, NEXT_WEEK):
        site.publish("a", week)
    mailbox.refused_week = webhook.refused = WEEK
    mail, call = site.notify(mailbox.env | hook)
    assert "did not take the mail (SMTPDataError 552)" in mail
    assert call.startswith("The webhook at http://127.0.0.1 answered 400")
    assert "secret" not in call
    assert mailbox.subjects == [f"{NEXT_WEEK}: 1 file published"]
    [(headers, body)] = webhook.received
    assert (headers["Authorization"], body["week"]) == ("Bearer secret-token", NEXT_WEEK)
    refused, delivered = site.entries
    assert (refused.mail, refused.webhook) == ("pending", "pending")
    assert (delivered.mail, delivered.webhook) == ("delivered", "delivered")


def test_a_partly_refused_mail_is_not_sent_again(
    site: Site, mailbox: Mailbox, caplog: pytest.LogCaptureFixture
) -> None:
    site.publish("a")
    [error] = site.notify(mailbox.env | {"LAKEHOUSE_SMTP_TO": "gone@example.com"})
    assert "did not take the mail (SMTPRecipientsRefused 550)" in error
    for _ in range(2):
        assert site.notify(mailbox.env | {"LAKEHOUSE_SMTP_TO": "a@example.com, gone@example.com"}) == []
    assert mailbox.accepted_for == [["a@example.com"]]
    server = f"{mailbox.env['LAKEHOUSE_SMTP_HOST']}:{mailbox.env['LAKEHOUSE_SMTP_PORT']}"
    assert [message for message in caplog.messages if message.startswith("the mail server")] == [
        f"the mail server at {server} refused 1 of the recipients; the others have the mail"
    ]


def test_a_deferred_message_is_sent_again_whole(
    site: Site, mailbox: Mailbox, webhook: Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the run while there is time, else by the next one."""
    env = mailbox.env | {"LAKEHOUSE_SMTP_TO": "later@example.com", "LAKEHOUSE_WEBHOOK_URL": webhook.url}
    for content, retried, errors in (("a", 60.0, 0), ("b", 0.0, 2)):
        monkeypatch.setattr(deliver, "RETRIED_SECONDS", retried)
        site.publish(content)
        mailbox.later = webhook.busy = 1
        assert len(site.notify(env)) == errors
    assert [(entry.mail, entry.webhook) for entry in site.entries] == [("delivered",) * 2, ("pending",) * 2]
    assert site.notify(env) == []
    assert (len(mailbox.mails), len(webhook.received), webhook.asked) == (2, 2, 4)


def test_a_channel_that_is_away_or_gone_keeps_its_messages(
    site: Site, mailbox: Mailbox, webhook: Calls, export: Command, caplog: pytest.LogCaptureFixture
) -> None:
    site.publish("a")
    env = mailbox.env | {"LAKEHOUSE_WEBHOOK_URL": webhook.url}
    webhook.status = 0
    assert export(site.settings, "notify", env=env | dead_smtp()).exit_code == 3
    assert "a notification failed: The mail server at 127.0.0.1:1 does not answer (Connection refused)" in caplog.text
    assert "does not answer (RemoteProtocolError)" in caplog.text
    give_up = "`update ops.export_outbox set {0} = 'no channel' where {0} = 'pending'`"
    assert site.notify({}) == [
        f"1 messages wait for a {name} that is no longer configured. Configure it, or give them up: {give_up}."
        for name, give_up in ((name, give_up.format(name)) for name in ("mail", "webhook"))
    ]
    webhook.status = 200
    assert site.notify(env) == []
    assert len(mailbox.mails) == len(webhook.received) == 1


def test_a_mail_server_with_tls_and_a_login(site: Site, tmp_path: Path) -> None:
    authority = Authority(tmp_path / "ca")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*authority.issue("mail"))

    def login(server: Any, session: Any, envelope: Any, mechanism: str, data: LoginPassword) -> AuthResult:
        return AuthResult(success=(data.login, data.password) == (b"lake", b"secret-word"), handled=False)

    env = {"LAKEHOUSE_SMTP_USER": "lake", "LAKEHOUSE_SMTP_PASSWORD": "secret-word"}
    box = Mailbox(env)
    server = MailServer(box, tls_context=context, authenticator=login, auth_required=True)
    server.start()
    env |= smtp_at(server.port)
    site.publish("a")
    try:
        [untrusted] = site.notify(env)
        env["LAKEHOUSE_SMTP_CA_LOCATION"] = str(authority.ca)
        [refused] = site.notify(env | {"LAKEHOUSE_SMTP_PASSWORD": "secret-guess"})
        assert site.notify(env) == []
    finally:
        server.stop()
    assert "_CA_LOCATION" in untrusted
    assert "SMTPAuthenticationError 535" in refused
    assert "secret" not in untrusted + refused
    assert len(box.mails) == 1


@pytest.mark.parametrize(
    ("env", "words"),
    [
        ({"LAKEHOUSE_SMTP_FROM": "lake"}, "LAKEHOUSE_SMTP_FROM holds no mail address"),
        ({"LAKEHOUSE_SMTP_USER": "u"}, "LAKEHOUSE_SMTP_PASSWORD is not set"),
        ({**LOGIN, "LAKEHOUSE_SMTP_TLS": "none"}, "LAKEHOUSE_SMTP_PASSWORD would be sent in the clear"),
        ({**LOGIN, "LAKEHOUSE_SMTP_PASSWORD": "pä"}, "LAKEHOUSE_SMTP_PASSWORD holds characters that cannot be sent"),
        ({"LAKEHOUSE_SMTP_HOST": f"{'a' * 64}.example.com"}, "LAKEHOUSE_SMTP_HOST is not a host name"),
        ({"LAKEHOUSE_WEBHOOK_URL": "https://host:port/x"}, "LAKEHOUSE_WEBHOOK_URL is not a URL"),
        ({**HOOK, "LAKEHOUSE_WEBHOOK_TOKEN": "one\n"}, "LAKEHOUSE_WEBHOOK_TOKEN holds characters that cannot be sent"),
        ({"LAKEHOUSE_EXPORT_EXPECTED_BY": "Mon 24:00"}, "EXPECTED_BY is 'Mon 24:00', which is not a time of the week"),
    ],
)
def test_a_channel_that_cannot_work_is_refused(env: dict[str, str], words: str) -> None:
    with pytest.raises(UserError, match=words):
        Channels.of({**smtp_at(25), **env})


def test_channels_do_not_print_their_secrets() -> None:
    channels = Channels.of({**smtp_at(25), **LOGIN, **HOOK})
    assert "user='u'" in repr(channels)
    assert "secret" not in repr(channels)


@pytest.fixture
def export_run(site: Site, export: Command, monkeypatch: pytest.MonkeyPatch) -> Command:
    """Return a function that runs `export run` without a dbt project, with a step in the place of the export itself."""

    def run(env: dict[str, str], step: Callable[..., None], week: str = WEEK, *options: str) -> Result:
        monkeypatch.setattr(Run, "export", step)
        monkeypatch.setattr(cli, "parse", lambda project: None)
        monkeypatch.setattr(cli.declared, "load", lambda project: {})
        return export(site.settings, "run", "--week", week, *options, env=env)

    return run


def test_an_alert_that_no_channel_takes_is_logged(
    site: Site, mailbox: Mailbox, webhook: Calls, caplog: pytest.LogCaptureFixture
) -> None:
    error = UserError("2020-W53 is not complete; behind: <payments>", "Run again")
    site.alert(mailbox.env | smtp_at(1) | {"LAKEHOUSE_WEBHOOK_URL": webhook.url}, error)
    assert "not delivered: The mail server at 127.0.0.1:1 does not answer" in caplog.text
    [(headers, body)] = webhook.received
    assert headers["Idempotency-Key"].startswith("failure/2020-W53/")
    assert (body["event"], body["week"], body["error"]) == ("failed", "2020-W53", str(error))
    site.alert(mailbox.env, error)
    [mail] = mailbox.mails
    assert mail["Subject"] == "2020-W53: the weekly files failed"
    assert mail["X-Idempotency-Key"].startswith("failure/2020-W53/")
    assert text_of(mail).count(str(error)) == 1
    assert "behind: &lt;payments&gt;" in text_of(mail, "html")
    # Nothing waits in the outbox, which holds versions and notices alone.
    assert site.entries == []


@pytest.mark.parametrize(
    ("broken", "reason"),
    [
        ("catalog locked", "is locked by another program"),
        ("home not writable", "cannot be written"),
        ("disk full", "cannot be used (EFBIG)"),
    ],
)
def test_an_alert_is_sent_where_nothing_can_be_written(
    site: Site,
    mailbox: Mailbox,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    broken: str,
    reason: str,
) -> None:
    # Its outbox is there, as after every run.
    site.publish("a")
    site.notify({})
    impatient = site.settings.changed(catalog_uri=f"{site.settings.catalog_uri}?busy_timeout=100")
    database = Path(site.settings.catalog_uri.removeprefix("jdbc:sqlite:"))
    with ExitStack() as stack:
        if broken == "catalog locked":
            other = stack.enter_context(closing(sqlite3.connect(database)))
            other.execute("begin exclusive")
        elif broken == "home not writable":
            (tmp_path / "file").write_text("")
            monkeypatch.setenv("LAKEHOUSE_HOME", str(tmp_path / "file"))
        else:
            # As on a full disk, no file can become longer, and the system reports it.
            stack.enter_context(no_room_beyond(0))
        replace(site, settings=impatient).alert(mailbox.env)
    [mail] = mailbox.mails
    assert "no. Run again." in text_of(mail)
    assert f"mail: sent 1 failure of {WEEK}" in caplog.messages
    assert caplog.messages[-1].startswith("not delivered: ")
    assert reason in caplog.messages[-1]


def test_failures_go_to_those_who_can_mend_them(site: Site, mailbox: Mailbox, export_run: Command) -> None:
    """What was published before the report failed is announced to its readers."""

    def publish_and_withhold(run: Run, *_: Any) -> None:
        exported = run.exported
        exported.published.append(site.publish("a"))
        exported.withheld.append(BEHIND)

    done = export_run(mailbox.env | {"LAKEHOUSE_ALERT_TO": "operator@example.com"}, publish_and_withhold)
    assert (done.exit_code, type(done.exception)) == (1, UserError)
    assert "Thrift server at 127.0.0.1:1 does not answer" in str(done.exception)
    assert "events   2020-W53  v1" in done.stdout
    assert [(mail["To"], mail["Subject"]) for mail in mailbox.mails] == [
        ("operator@example.com", f"{WEEK}: the weekly files failed"),
        ("a@example.com, b@example.com", f"{WEEK}: 1 file published, 1 withheld"),
    ]


def test_a_failed_run_leaves_the_metrics_of_the_last(
    site: Site, export_run: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def publish(run: Run, *_: Any) -> None:
        run.exported.published.append(site.publish("a"))

    monkeypatch.setattr(cli.page, "write", lambda *_: "")
    file = tmp_path / "export.prom"
    done = export_run({}, publish, WEEK, "--metrics-file", str(file), "--json")
    assert done.exit_code == 0
    [version] = json.loads(done.stdout)["published"]
    assert (version["dataset"], version["version"], version["rows"], version["unchanged"]) == ("events", 1, 1, False)
    [path] = without_folders([version["path"]])
    assert path.endswith("/events/2020-W53/v1/events_2020-W53_v1.csv")
    written = file.read_text()
    assert '\nlakehouse_export_rows{dataset="events"} 1.0\n' in written
    assert export_run({}, failing, WEEK, "--metrics-file", str(file)).exit_code == 1
    assert file.read_text() == written


def test_a_mistake_of_the_caller_exports_and_sends_nothing(mailbox: Mailbox, export_run: Command) -> None:
    done = export_run(mailbox.env, failing, "2999-W01")
    assert str(done.exception).startswith("2999-W01 is not over")
    done = export_run(mailbox.env | {"LAKEHOUSE_SMTP_TO": "a"}, failing)
    assert "LAKEHOUSE_SMTP_TO holds no mail address" in str(done.exception)
    assert mailbox.mails == []


def test_an_export_that_has_lost_its_lease_ends(site: Site, mailbox: Mailbox, export_run: Command) -> None:
    def lose_it(run: Run, *_: Any) -> None:
        lease.TABLE.change(site.catalog, lambda rows: {"weekly": replace(rows["weekly"], holder="elsewhere")})
        run.require()

    done = export_run(mailbox.env, lose_it)
    assert "and elsewhere " in str(done.exception)
    assert len(mailbox.mails) == 1


@pytest.fixture
def at(site: Site, mailbox: Mailbox, exports_declared: dict[str, str]) -> At:
    """Return a function that notifies at a moment; since the week before, events are due each week."""
    late.record_due(site.catalog, site.target, IsoWeek(2020, 52), ["events"])
    site.publish("a", "2020-W52")
    deliver.notify(site.settings, exports_declared, site.catalog)

    def notify(now: datetime, *notices: Issue, **more: str) -> list[str]:
        env = mailbox.env | exports_declared | EXPECTED | more
        errors = deliver.notify(site.settings, env, site.catalog, notices, [IsoWeek.parse(WEEK)], now)
        return [str(error) for error in errors]

    return notify


def test_a_due_dataset_makes_one_alarm_after_its_deadline(at: At, mailbox: Mailbox, webhook: Calls) -> None:
    assert at(DEADLINE - SECOND, LAKEHOUSE_WEBHOOK_URL=webhook.url) == []
    assert (mailbox.mails, webhook.received) == ([], [])
    # Later runs, also with another reason, send no other.
    for now in (DEADLINE, DEADLINE + SECOND):
        assert at(now, LAKEHOUSE_WEBHOOK_URL=webhook.url) == []
    late_reason = withheld("events")
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


def test_a_week_without_a_run_has_its_alarm_later(at: At, mailbox: Mailbox) -> None:
    assert at(DEADLINE + timedelta(days=3), LAKEHOUSE_EXPORT_EXPECTED_BY="Sun 20:00") == []
    assert mailbox.mails == []
    # The Monday after, the week that follows is complete, and not expected yet.
    assert at(datetime(2021, 1, 11, 3, tzinfo=UTC), LAKEHOUSE_EXPORT_EXPECTED_BY="Sun 20:00") == []
    assert mailbox.subjects == [SUBJECT]


def test_an_alarm_gives_the_reason_of_a_withheld_dataset(at: At, mailbox: Mailbox) -> None:
    at(DEADLINE - SECOND, withheld("events", "behind: orders"))
    at(DEADLINE, withheld("events"))
    [alarm] = [mail for mail in mailbox.mails if mail["Subject"] == SUBJECT]
    expected = "events 2020-W53 was expected by 2021-01-04 09:30 UTC: events 2020-W53 is withheld: behind: payments"
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


def test_a_manifest_of_dbt_that_is_cut_off_stops_no_mail(
    site: Site, at: At, mailbox: Mailbox, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Without it no alarm is possible, which is a failed notification."""
    (tmp_path / "manifest.json").write_text('{"nodes": {')
    site.publish("a")
    assert at(DEADLINE, DBT_TARGET_PATH=str(tmp_path), LAKEHOUSE_EXPORT_EXPECTED_BY="") == []
    assert mailbox.subjects == [f"{WEEK}: 1 file published"]
    assert "messages have no figures" in caplog.text
    [error] = at(DEADLINE, DBT_TARGET_PATH=str(tmp_path))
    assert "manifest" in error


def test_a_run_that_lost_its_lease_sends_nothing_more(
    site: Site, webhook: Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    for week in (WEEK, NEXT_WEEK):
        site.publish("a", week)
    env, mark_delivered = {"LAKEHOUSE_WEBHOOK_URL": webhook.url}, outbox.mark_delivered

    def mark_and_lose(*arguments: Any) -> None:
        mark_delivered(*arguments)
        row = replace(lease.TABLE.rows(site.catalog)["notify"], holder="elsewhere", expires_at=datetime.now(UTC))
        lease.TABLE.change(site.catalog, lambda rows: rows | {"notify": row})

    with monkeypatch.context() as other_machine, pytest.raises(lease.LeaseLostError):
        other_machine.setattr(outbox, "mark_delivered", mark_and_lose)
        site.notify(env)
    assert [body["week"] for _, body in webhook.received] == [WEEK]
    assert site.notify(env) == []
    assert [body["week"] for _, body in webhook.received] == [WEEK, NEXT_WEEK]
