"""What the tests of notifications share: a lake that announces versions, a real mail server and HTTP server."""

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from email import message_from_bytes, policy
from email.message import EmailMessage
from pathlib import Path
from typing import Any

import pytest
from aiosmtpd.controller import Controller
from pyiceberg.catalog import Catalog

from python_common.config.settings import Settings
from python_common.errors import UserError
from python_common.weeks import IsoWeek
from python_export.notify import deliver, outbox
from python_export.notify.exported import Exported
from python_export.notify.outbox import Entry, Notice
from python_export.publishing.publish import Published
from python_export.publishing.target import Target, open_target
from tests.python_export.publishing.test_export_publish import publish_content
from tests.support.services.http_server import Handler, serving

WEEK, NEXT_WEEK = "2020-W53", "2021-W01"
ADDRESSES = {"LAKEHOUSE_SMTP_FROM": "lake@example.com", "LAKEHOUSE_SMTP_TO": "a@example.com, b@example.com"}
# A channel that defers a message is left to the next run at once.
FAILED = UserError("no", "Run again")


@dataclass
class Site:
    """A site with a lake, which publishes weeks of events and announces them."""

    settings: Settings
    catalog: Catalog

    @property
    def target(self) -> Target:
        return open_target(self.settings)

    @property
    def entries(self) -> list[Entry]:
        return outbox.entries(self.catalog)

    def publish(self, content: str, week: str = WEEK) -> Published:
        return publish_content(self.target, content, week)

    def key(self, path: str) -> str:
        """Return the key under which a version is announced."""
        return outbox.key_of(self.target, path)

    def notify(self, env: dict[str, str], notices: Iterable[Notice] = (), weeks: Iterable[str] = ()) -> list[str]:
        """Notify, and return what was not delivered."""
        return [str(error) for error in deliver.notify(self.settings, env, self.catalog, notices, weeks)]

    def alert(self, env: dict[str, str], error: UserError = FAILED) -> None:
        """Send an alert that the run for the week failed."""
        exported = Exported(IsoWeek.parse(WEEK), is_alone=True)
        with suppress(UserError), deliver.alerting(self.settings, env, exported):
            raise error


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


@dataclass
class Calls:
    """A web server that keeps what is posted to it, and answers with `status`, if any.

    It refuses the calls of week `refused`. So many times, it is `busy` first. `asked` counts all calls.
    """

    url: str = ""
    status: int = 200
    refused: str = ""
    busy: int = 0
    asked: int = 0
    received: list[tuple[dict[str, str], dict[str, Any]]] = field(default_factory=list)


def text_of(mail: EmailMessage, kind: str = "plain") -> str:
    """Return the body of a mail, as plain text or as HTML."""
    return mail.get_body((kind,)).get_content()


def smtp_at(port: int) -> dict[str, str]:
    return {"LAKEHOUSE_SMTP_HOST": "127.0.0.1", "LAKEHOUSE_SMTP_PORT": str(port), **ADDRESSES}


def dead_smtp() -> dict[str, str]:
    """Name a mail server that does not answer."""
    return smtp_at(1)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAKEHOUSE_HOME", str(tmp_path))
    monkeypatch.setattr(deliver, "FIRST_PAUSE_SECONDS", 0.05)
    monkeypatch.setattr(deliver, "RETRIED_SECONDS", 0.0)


@pytest.fixture
def site(request: pytest.FixtureRequest, offline_settings: Settings, catalog: Catalog) -> Site:
    name = "published_to" if "published_to" in request.fixturenames else "offline_settings"
    return Site(request.getfixturevalue(name), catalog)


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


@pytest.fixture
def mailbox() -> Iterator[Mailbox]:
    with mail_server() as box:
        yield box


@pytest.fixture
def webhook() -> Iterator[Calls]:
    calls = Calls()

    class Answering(Handler):
        def do_POST(self) -> None:
            body = json.loads(self.body())
            calls.asked += 1
            status = 400 if body["week"] == calls.refused else calls.status
            if calls.busy:
                calls.busy -= 1
                status = 429
            if status == 200:
                calls.received.append((dict(self.headers), body))
            if status:
                self.answer(status)

    with serving(Answering) as calls.url:
        yield calls
