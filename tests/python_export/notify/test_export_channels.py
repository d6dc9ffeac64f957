"""Channels that refuse, are away, are busy or are configured wrongly: on a real mail server and a real HTTP server."""

import ssl
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import pytest
from aiosmtpd.smtp import AuthResult, LoginPassword

from python_common.errors import UserError
from python_export.variables import Channels
from tests.python_export.conftest import Command
from tests.python_export.notify.conftest import (
    NEXT_WEEK,
    NO_TIME,
    WEEK,
    Calls,
    Mailbox,
    MailServer,
    Site,
    dead_smtp,
    smtp_at,
)
from tests.support.services.secured import Authority


def test_a_refused_message_does_not_hold_up_the_next(site: Site, mailbox: Mailbox, webhook: Calls) -> None:
    env = mailbox.env | {"LAKEHOUSE_WEBHOOK_URL": webhook.url}
    for week in (WEEK, NEXT_WEEK):
        site.publish("a", week)
    mailbox.refused_week = webhook.refused = WEEK
    mail, call = site.notify(env)
    assert "did not take the mail (SMTPDataError 552)" in mail
    assert "answered 400" in call
    assert mailbox.subjects == [f"{NEXT_WEEK}: 1 file published"]
    assert [body["week"] for _, body in webhook.received] == [NEXT_WEEK]
    refused, delivered = site.entries
    assert (refused.mail, refused.webhook, refused.failed_attempts) == ("pending", "pending", 2)
    assert (delivered.mail, delivered.webhook, delivered.failed_attempts) == ("delivered", "delivered", 0)


def test_a_mail_that_some_recipients_cannot_have_is_sent_to_the_others_once(site: Site, mailbox: Mailbox) -> None:
    env = mailbox.env | {"LAKEHOUSE_SMTP_TO": "a@example.com, gone@example.com"}
    for week in (WEEK, NEXT_WEEK):
        site.publish("a", week)
    [error] = site.notify(env)
    assert "refused 1 recipients for good: gone@example.com" in error
    assert site.notify(env) == []
    assert len(mailbox.mails) == 2


def test_a_recipient_who_is_tried_later_gets_the_mail_and_the_others_get_it_once(site: Site, mailbox: Mailbox) -> None:
    env = mailbox.env | {"LAKEHOUSE_SMTP_TO": "a@example.com, later@example.com, gone@example.com"}
    site.publish("a")
    mailbox.later = 1
    [error] = site.notify(env | NO_TIME)
    assert "defers later@example.com" in error
    [entry] = site.entries
    assert (entry.mail, entry.waiting_for) == ("pending", "later@example.com")
    # The next run begins by asking for this one alone, and asks again while there is time.
    mailbox.later = 2
    assert site.notify(env) == []
    [entry] = site.entries
    assert (entry.mail, entry.waiting_for, entry.failed_attempts) == ("delivered", None, 1)
    assert mailbox.accepted_for == [["a@example.com"], ["later@example.com"]]
    assert len({mail["Message-ID"] for mail in mailbox.mails}) == 1


def test_a_recipient_who_left_the_list_is_not_waited_for(site: Site, mailbox: Mailbox) -> None:
    site.publish("a")
    mailbox.later = 1
    site.notify(mailbox.env | NO_TIME | {"LAKEHOUSE_SMTP_TO": "a@example.com, later@example.com"})
    assert site.notify(mailbox.env) == []
    assert [entry.mail for entry in site.entries] == ["delivered"]
    assert mailbox.accepted_for == [["a@example.com"]]


def test_what_a_dead_mail_server_did_not_take_is_taken_later(site: Site, mailbox: Mailbox) -> None:
    for week in (WEEK, NEXT_WEEK):
        site.publish("a", week)
    nowhere = mailbox.env | dead_smtp()
    for run_number in (1, 2):
        [error] = site.notify(nowhere)
        assert "does not answer (Connection refused)" in error
        entry, waiting = site.entries
        assert (entry.mail, entry.failed_attempts) == ("pending", run_number)
        # A server that is down is not asked again for every mail.
        assert (waiting.mail, waiting.failed_attempts) == ("pending", 0)
    # A channel that is configured no longer still owes.
    assert site.notify({}) == [
        "2 messages wait for a mail that is no longer configured."
        " Configure it, or drop them by `lakehouse export outbox drop`."
    ]
    assert site.notify(mailbox.env) == []
    assert len(mailbox.mails) == 2


def test_the_command_reports_a_failed_notification_and_exits_with_3(
    site: Site, export: Command, caplog: pytest.LogCaptureFixture
) -> None:
    site.publish("a")
    result = export(site.settings, "notify", env=dead_smtp())
    assert result.exit_code == 3
    assert "a notification failed: The mail server at 127.0.0.1:" in caplog.text


def test_a_busy_webhook_is_retried_after_the_time_it_names(site: Site, webhook: Calls) -> None:
    site.publish("a")
    env = {"LAKEHOUSE_WEBHOOK_URL": webhook.url}
    webhook.busy = ["1"]
    assert site.notify(env) == []
    first, second = webhook.asked_at
    assert second - first >= 1
    # A digit to Python, and no number of seconds.
    site.publish("of another busy answer")
    webhook.busy = ["\u00b2"]
    assert site.notify(env) == []
    # What would take longer than the run has is left to the next one.
    site.publish("b")
    webhook.busy = [format_datetime(datetime.now(UTC) + timedelta(hours=1), usegmt=True)]
    [error] = site.notify(env)
    assert "answered 429" in error
    assert len(webhook.asked_at) == 5


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
        ({"LAKEHOUSE_SMTP_TLS": "ssl"}, "LAKEHOUSE_SMTP_TLS is 'ssl'"),
        ({"LAKEHOUSE_SMTP_PORT": "smtp"}, "LAKEHOUSE_SMTP_PORT is not the number of a port"),
        ({"LAKEHOUSE_SMTP_PORT": "65536"}, "LAKEHOUSE_SMTP_PORT is not the number of a port"),
        ({"LAKEHOUSE_SMTP_TO": ""}, "LAKEHOUSE_SMTP_TO holds no mail address"),
        ({"LAKEHOUSE_SMTP_FROM": "lake"}, "LAKEHOUSE_SMTP_FROM holds no mail address"),
        ({"LAKEHOUSE_SMTP_USER": "u"}, "LAKEHOUSE_SMTP_PASSWORD is not set"),
        (
            {"LAKEHOUSE_SMTP_USER": "u", "LAKEHOUSE_SMTP_PASSWORD": "p", "LAKEHOUSE_SMTP_TLS": "none"},
            "would be sent in the clear",
        ),
        (
            {"LAKEHOUSE_SMTP_USER": "u", "LAKEHOUSE_SMTP_PASSWORD": "pä"},
            "LAKEHOUSE_SMTP_PASSWORD holds characters that cannot be sent",
        ),
        ({"LAKEHOUSE_ALERT_TO": "operator"}, "LAKEHOUSE_ALERT_TO holds no mail address"),
        ({"LAKEHOUSE_SMTP_HOST": "mail..example.com"}, "LAKEHOUSE_SMTP_HOST is not a host name"),
        ({"LAKEHOUSE_SMTP_HOST": f"{'a' * 64}.example.com"}, "LAKEHOUSE_SMTP_HOST is not a host name"),
        ({"LAKEHOUSE_NOTIFY_TIMEOUT": "soon"}, "LAKEHOUSE_NOTIFY_TIMEOUT is 'soon', which is not a duration"),
        ({"LAKEHOUSE_WEBHOOK_URL": "example.com/hook"}, "LAKEHOUSE_WEBHOOK_URL is not a URL"),
        ({"LAKEHOUSE_WEBHOOK_URL": "https://host:port/x"}, "LAKEHOUSE_WEBHOOK_URL is not a URL"),
        ({"LAKEHOUSE_WEBHOOK_URL": "https://host:65536/x"}, "LAKEHOUSE_WEBHOOK_URL is not a URL"),
        ({"LAKEHOUSE_WEBHOOK_URL": "http://[::1/x"}, "LAKEHOUSE_WEBHOOK_URL is not a URL"),
        (
            {"LAKEHOUSE_WEBHOOK_URL": "https://host", "LAKEHOUSE_WEBHOOK_TOKEN": "one\n"},
            "LAKEHOUSE_WEBHOOK_TOKEN holds characters that cannot be sent",
        ),
    ],
)
def test_a_channel_that_cannot_work_is_refused(env: dict[str, str], words: str) -> None:
    with pytest.raises(UserError, match=words):
        Channels.of({**smtp_at(25), **env})


def test_channels_do_not_print_their_secrets() -> None:
    login = {"LAKEHOUSE_SMTP_USER": "u", "LAKEHOUSE_SMTP_PASSWORD": "top-secret"}
    hook = {"LAKEHOUSE_WEBHOOK_URL": "https://hooks.example/secret", "LAKEHOUSE_WEBHOOK_TOKEN": "secret"}
    channels = Channels.of({**smtp_at(25), **login, **hook})
    assert "user='u'" in repr(channels)
    assert "secret" not in repr(channels)
