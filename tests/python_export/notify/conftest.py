"""What the tests of notifications share: a lake that announces versions, a real mail server and HTTP server."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyiceberg.catalog import Catalog

from python_common.config.settings import Settings
from python_export.notify import deliver
from tests.support.notify import Calls, Site
from tests.support.services.http_server import Handler, serving
from tests.support.services.mail_server import Mailbox, mail_server


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAKEHOUSE_HOME", str(tmp_path))
    monkeypatch.setattr(deliver, "FIRST_PAUSE_SECONDS", 0.05)
    monkeypatch.setattr(deliver, "RETRIED_SECONDS", 0.0)


@pytest.fixture
def site(request: pytest.FixtureRequest, offline_settings: Settings, catalog: Catalog) -> Site:
    name = "published_to" if "published_to" in request.fixturenames else "offline_settings"
    return Site(request.getfixturevalue(name), catalog)


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
