"""A real mail server that refuses or defers what a test asks it to."""

from collections.abc import Iterator
from contextlib import contextmanager
from email import message_from_bytes, policy
from email.message import EmailMessage
from typing import Any

from aiosmtpd.controller import Controller

ADDRESSES = {"LAKEHOUSE_SMTP_FROM": "lake@example.com", "LAKEHOUSE_SMTP_TO": "a@example.com, b@example.com"}


class Mailbox:
    """An SMTP server's handler that keeps what it takes; it refuses a recipient gone@ and the mails of a week.

    So many times, it defers a recipient later@. `accepted_for` has the recipients of each mail, and `env`
    names the server.
    """

    def __init__(self, env: dict[str, str]) -> None:
        self.env = env
        self.mails: list[EmailMessage] = []
        self.accepted_for: list[list[str]] = []
        self.refused_week = "none"
        self.later = 0

    @property
    def subjects(self) -> list[str]:
        return [mail["Subject"] for mail in self.mails]

    async def handle_RCPT(self, server: Any, session: Any, envelope: Any, address: str, options: Any) -> str:
        if address.startswith("gone@"):
            return "550 no such user"
        if address.startswith("later@") and self.later:
            self.later -= 1
            return "451 greylisted"
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:
        mail = message_from_bytes(envelope.content, policy=policy.default)
        if mail["Subject"].startswith(self.refused_week):
            return "552 too much"
        self.mails.append(mail)
        self.accepted_for.append(envelope.rcpt_tos)
        return "250 OK"


class MailServer(Controller):
    """A mail server on a port that the system chooses when it binds: no other process can take it in between."""

    def __init__(self, box: Mailbox, **options: Any) -> None:
        super().__init__(box, hostname="127.0.0.1", port=0, **options)

    def _trigger_server(self) -> None:
        self.port = self.server.sockets[0].getsockname()[1]
        super()._trigger_server()


def text_of(mail: EmailMessage, kind: str = "plain") -> str:
    """Return the body of a mail, as plain text or as HTML."""
    return mail.get_body((kind,)).get_content()


def smtp_at(port: int) -> dict[str, str]:
    return {"LAKEHOUSE_SMTP_HOST": "127.0.0.1", "LAKEHOUSE_SMTP_PORT": str(port), **ADDRESSES}


def dead_smtp() -> dict[str, str]:
    """Name a mail server that does not answer."""
    return smtp_at(1)


@contextmanager
def mail_server() -> Iterator[Mailbox]:
    """Run a mail server."""
    box = Mailbox({"LAKEHOUSE_SMTP_TLS": "none"})
    server = MailServer(box)
    server.start()
    box.env |= smtp_at(server.port)
    try:
        yield box
    finally:
        server.stop()
