"""Channels that refuse, are away, are busy or are configured wrongly: on a real mail server and a real HTTP server."""

import ssl
from pathlib import Path
from typing import Any

import pytest
from aiosmtpd.smtp import AuthResult, LoginPassword

from python_common.errors import UserError
from python_export.notify import deliver
from python_export.variables import Channels
from tests.support.in_process import Command
from tests.support.notify import NEXT_WEEK, WEEK, Calls, Site
from tests.support.services.mail_server import Mailbox, MailServer, dead_smtp, smtp_at
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


def test_a_channel_that_is_away_or_gone_keeps_its_messages(site: Site, mailbox: Mailbox, webhook: Calls) -> None:
    site.publish("a")
    env = mailbox.env | {"LAKEHOUSE_WEBHOOK_URL": webhook.url}
    webhook.status = 0
    mail, call = site.notify(env | dead_smtp())
    assert "does not answer (Connection refused)" in mail
    assert "does not answer (RemoteProtocolError)" in call
    give_up = "`update ops.export_outbox set {0} = 'no channel' where {0} = 'pending'`"
    assert site.notify({}) == [
        f"1 messages wait for a {name} that is no longer configured. Configure it, or give them up: {give_up}."
        for name, give_up in ((name, give_up.format(name)) for name in ("mail", "webhook"))
    ]
    webhook.status = 200
    assert site.notify(env) == []
    assert len(mailbox.mails) == len(webhook.received) == 1


def test_the_command_reports_a_failed_notification_and_exits_with_3(
    site: Site, export: Command, caplog: pytest.LogCaptureFixture
) -> None:
    site.publish("a")
    result = export(site.settings, "notify", env=dead_smtp())
    assert result.exit_code == 3
    assert "a notification failed: The mail server at 127.0.0.1:" in caplog.text


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
        ({"LAKEHOUSE_SMTP_TO": ""}, "LAKEHOUSE_SMTP_TO is not set"),
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
        ({"LAKEHOUSE_SMTP_HOST": f"{'a' * 64}.example.com"}, "LAKEHOUSE_SMTP_HOST is not a host name"),
        ({"LAKEHOUSE_WEBHOOK_URL": "example.com/hook"}, "LAKEHOUSE_WEBHOOK_URL is not a URL"),
        ({"LAKEHOUSE_WEBHOOK_URL": "https://host:port/x"}, "LAKEHOUSE_WEBHOOK_URL is not a URL"),
        (
            {"LAKEHOUSE_WEBHOOK_URL": "https://host", "LAKEHOUSE_WEBHOOK_TOKEN": "one\n"},
            "LAKEHOUSE_WEBHOOK_TOKEN holds characters that cannot be sent",
        ),
        *(
            ({"LAKEHOUSE_EXPORT_EXPECTED_BY": text}, f"EXPECTED_BY is '{text}', which is not a time of the week")
            for text in ("09:00", "Mon", "Mon 24:00", "Monday 9")
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
