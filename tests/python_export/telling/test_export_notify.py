"""The outbox and its channels, on a real mail server and a real HTTP server: every version is told of, and once.

And the report that the mail links to.
"""

import json
import os
import re
import resource
import shutil
import sqlite3
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, nullcontext
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime, timedelta
from email import message_from_bytes, policy
from email.message import EmailMessage
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from aiosmtpd.controller import Controller
from aiosmtpd.smtp import AuthResult, LoginPassword
from click.testing import Result
from pyiceberg.catalog import Catalog
from typer.testing import CliRunner

from lakehouse import backup, lease
from lakehouse.catalog import load_catalog
from lakehouse.errors import UserError
from lakehouse.process import free_ports
from lakehouse.settings import Settings
from lakehouse.small_table import SmallTable
from lakehouse.weeks import IsoWeek
from python_export.cli import outbox as cli_outbox
from python_export.cli import run as cli
from python_export.cli.run import app
from python_export.datasets.withheld import Withheld
from python_export.publishing.manifest import Manifest
from python_export.publishing.publish import publish
from python_export.publishing.target import LocalTarget, open_target
from python_export.report import page as report
from python_export.run import Exporter
from python_export.telling import deliver, outbox
from python_export.telling.outbox import Notice
from python_export.variables import Channels
from tests.python_export.publishing.test_export_publish import publish_content, stage
from tests.support.hostile_rows import draft
from tests.support.publishing import unlock
from tests.support.secured import Authority

WEEK, NEXT_WEEK = "2020-W53", "2021-W01"
ADDRESSES = {"LAKEHOUSE_SMTP_FROM": "lake@example.com", "LAKEHOUSE_SMTP_TO": "a@example.com, b@example.com"}
# A channel that says "later" is left to the next run at once.
NO_TIME = {"LAKEHOUSE_NOTIFY_TIMEOUT": "0s"}


class Mailbox:
    """An SMTP server's handler that keeps what it takes; it refuses a recipient gone@ and the mails of a week.

    So many times, it tells a recipient later@ to be tried later. `taken_for` has the recipients of each mail.
    """

    def __init__(self) -> None:
        self.mails: list[EmailMessage] = []
        self.taken_for: list[list[str]] = []
        self.refused_week = "none"
        self.later = 0

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
        self.taken_for.append(envelope.rcpt_tos)
        return "250 OK"


@dataclass
class Calls:
    """A web server that keeps what is posted to it, and answers with `status`; it refuses the key `refused`.

    `busy` are the values of Retry-After that it gives first, one per call.
    """

    server: HTTPServer
    status: int = 200
    refused: str = ""
    busy: list[str] = field(default_factory=list)
    asked_at: list[float] = field(default_factory=list)
    taken: list[tuple[dict[str, str], dict[str, Any]]] = field(default_factory=list)


@pytest.fixture
def mailbox() -> Iterator[tuple[Mailbox, dict[str, str]]]:
    """A running mail server, and the environment that names it."""
    box = Mailbox()
    [port] = free_ports(1)
    server = Controller(box, hostname="127.0.0.1", port=port)
    server.start()
    yield box, {**smtp_at(port), "LAKEHOUSE_SMTP_TLS": "none"}
    server.stop()


@pytest.fixture
def webhook() -> Iterator[Calls]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            status = 400 if self.headers["Idempotency-Key"] == calls.refused else calls.status
            calls.asked_at.append(time.monotonic())
            retry_after = calls.busy.pop(0) if calls.busy else ""
            if status == 200 and not retry_after:
                calls.taken.append((dict(self.headers), json.loads(body)))
            self.send_response(429 if retry_after else status)
            if retry_after:
                self.send_header("Retry-After", retry_after)
            self.end_headers()

        def log_message(self, *_: object) -> None: ...

    calls = Calls(HTTPServer(("127.0.0.1", 0), Handler))
    thread = threading.Thread(target=calls.server.serve_forever)
    thread.start()
    yield calls
    calls.server.shutdown()
    thread.join()
    calls.server.server_close()


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAKEHOUSE_HOME", str(tmp_path))
    monkeypatch.setattr(deliver, "FIRST_PAUSE_SECONDS", 0.05)


@pytest.fixture(autouse=True)
def known_root(request: pytest.FixtureRequest, offline_settings: Settings) -> None:
    """The outbox knows the export root before anything is published there, as in every run."""
    name = "published_to" if "published_to" in request.fixturenames else "offline_settings"
    settings = request.getfixturevalue(name)
    outbox.know_root(load_catalog(settings, create=True), open_target(settings))


def key(settings: Settings, path: str) -> str:
    return outbox.name_of(open_target(settings), path)


def smtp_at(port: int) -> dict[str, str]:
    return {"LAKEHOUSE_SMTP_HOST": "127.0.0.1", "LAKEHOUSE_SMTP_PORT": str(port), **ADDRESSES}


def run(settings: Settings, catalog: Catalog, env: dict[str, str]) -> list[str]:
    """Notify, and return why somebody was not told."""
    return [str(problem) for problem in deliver.notify(settings, env, catalog, print)]


def test_a_week_is_one_mail_with_its_figures_and_is_told_once(
    published_to: Settings,
    catalog: Catalog,
    mailbox: tuple[Mailbox, dict[str, str]],
    exports_declared: dict[str, str],
) -> None:
    box, env = mailbox
    env |= exports_declared
    target = open_target(published_to)
    publish_content(target, "note\na\n", WEEK)
    first = publish_content(target, "note\nb\n", NEXT_WEEK).manifest
    assert run(published_to, catalog, env) == []
    assert [mail["Subject"] for mail in box.mails] == [f"{WEEK}: 1 file published", f"{NEXT_WEEK}: 1 file published"]
    mail = box.mails[1]
    assert mail["X-Idempotency-Key"] == key(published_to, f"events/{NEXT_WEEK}/v1")
    assert mail["To"] == "a@example.com, b@example.com"
    for kind in ("plain", "html"):
        text = mail.get_body((kind,)).get_content()
        # The figures of the week before stand beside those of the week.
        for words in (
            "events",
            "rows",
            "0.10",
            "+0.0 %",
            first.sha256,
            target.address(f"events/{NEXT_WEEK}/v1/{first.file}"),
        ):
            assert words in text, (kind, words)

    # The same content is the same version, and nobody hears of it again.
    publish_content(target, "note\nb\n", NEXT_WEEK)
    assert run(published_to, catalog, env) == []
    assert len(box.mails) == 2
    publish_content(target, "note\nlate\n", NEXT_WEEK)
    assert run(published_to, catalog, env) == []
    assert box.mails[2]["Subject"] == f"{NEXT_WEEK}: 1 file published, 1 of them anew"
    assert "replaces v1" in box.mails[2].get_body(("plain",)).get_content()
    assert {(entry.mail, entry.webhook) for entry in outbox.entries(catalog)} == {("delivered", "no channel")}


def test_a_manifest_of_dbt_that_is_cut_off_holds_up_no_mail(
    published_to: Settings,
    catalog: Catalog,
    mailbox: tuple[Mailbox, dict[str, str]],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    box, env = mailbox
    (tmp_path / "cut").mkdir()
    (tmp_path / "cut" / "manifest.json").write_text('{"nodes": {')
    publish_content(open_target(published_to), "note\na\n", WEEK)
    assert run(published_to, catalog, env | {"DBT_TARGET_PATH": str(tmp_path / "cut")}) == []
    assert [mail["Subject"] for mail in box.mails] == [f"{WEEK}: 1 file published"]
    assert "figures are left out of messages" in capsys.readouterr().out


def test_a_webhook_gets_each_version_with_its_key(offline_settings: Settings, catalog: Catalog, webhook: Calls) -> None:
    for content in ("a", "b"):
        manifest = publish_content(open_target(offline_settings), content).manifest
    url = f"http://127.0.0.1:{webhook.server.server_port}/secret-path"
    env = {"LAKEHOUSE_WEBHOOK_URL": url, "LAKEHOUSE_WEBHOOK_TOKEN": "secret-token", **NO_TIME}
    webhook.status = 500
    [problem] = run(offline_settings, catalog, env)
    assert problem.startswith("The webhook at http://127.0.0.1 answered 500")
    assert "secret" not in problem
    webhook.status = 200
    assert run(offline_settings, catalog, env) == []

    assert [headers["Idempotency-Key"] for headers, _ in webhook.taken] == [
        key(offline_settings, f"events/{WEEK}/v{number}") for number in (1, 2)
    ]
    headers, body = webhook.taken[1]
    assert headers["Authorization"] == "Bearer secret-token"
    assert (body["version"], body["supersedes"], body["sha256"]) == (2, 1, manifest.sha256)


def test_a_refused_message_does_not_hold_up_the_next(
    offline_settings: Settings, catalog: Catalog, mailbox: tuple[Mailbox, dict[str, str]], webhook: Calls
) -> None:
    box, env = mailbox
    env = env | {"LAKEHOUSE_WEBHOOK_URL": f"http://127.0.0.1:{webhook.server.server_port}"}
    for week in (WEEK, NEXT_WEEK):
        publish_content(open_target(offline_settings), "a", week)
    box.refused_week, webhook.refused = WEEK, key(offline_settings, f"events/{WEEK}/v1")
    mail, call = run(offline_settings, catalog, env)
    assert "did not take the mail (SMTPDataError 552)" in mail
    assert "answered 400" in call
    assert [mail["Subject"] for mail in box.mails] == [f"{NEXT_WEEK}: 1 file published"]
    assert [body["week"] for _, body in webhook.taken] == [NEXT_WEEK]
    owed, told = outbox.entries(catalog)
    assert (owed.mail, owed.webhook, owed.failed_attempts) == ("pending", "pending", 2)
    assert (told.mail, told.webhook, told.failed_attempts) == ("delivered", "delivered", 0)


def test_a_mail_that_some_recipients_cannot_have_is_sent_to_the_others_once(
    offline_settings: Settings, catalog: Catalog, mailbox: tuple[Mailbox, dict[str, str]]
) -> None:
    box, env = mailbox
    env = env | {"LAKEHOUSE_SMTP_TO": "a@example.com, gone@example.com"}
    for week in (WEEK, NEXT_WEEK):
        publish_content(open_target(offline_settings), "a", week)
    [problem] = run(offline_settings, catalog, env)
    assert "refused 1 recipients for good: gone@example.com" in problem
    assert run(offline_settings, catalog, env) == []
    assert len(box.mails) == 2


def test_a_restored_lake_keeps_what_was_published_since_and_tells_of_it_under_the_same_key(
    offline_settings: Settings, catalog: Catalog, mailbox: tuple[Mailbox, dict[str, str]], tmp_path: Path
) -> None:
    box, env = mailbox
    target, saved = open_target(offline_settings), tmp_path / "tables.json"
    publish_content(target, "note\na\n", WEEK)
    assert run(offline_settings, catalog, env) == []
    backup.save(catalog, saved)
    shutil.copytree(offline_settings.warehouse, tmp_path / "copy")
    publish_content(target, "note\nlate\n", WEEK)
    assert run(offline_settings, catalog, env) == []

    shutil.rmtree(offline_settings.warehouse)
    (tmp_path / "catalog.db").unlink()
    shutil.copytree(tmp_path / "copy", offline_settings.warehouse)
    restored = load_catalog(offline_settings, create=True)
    backup.restore(restored, saved)
    # What the lake exports again is what is there, or comes after it.
    assert publish_content(target, "note\nlate\n", WEEK).unchanged
    assert run(offline_settings, restored, env) == []
    assert publish_content(target, "note\nother\n", WEEK).manifest.version == 3
    assert run(offline_settings, restored, env) == []
    told = [mail["X-Idempotency-Key"] for mail in box.mails]
    assert told == [key(offline_settings, f"events/{WEEK}/v{version}") for version in (1, 2, 2, 3)]


def test_what_a_dead_mail_server_did_not_take_is_taken_later(
    offline_settings: Settings, catalog: Catalog, mailbox: tuple[Mailbox, dict[str, str]]
) -> None:
    box, env = mailbox
    for week in (WEEK, NEXT_WEEK):
        publish_content(open_target(offline_settings), "a", week)
    nowhere = env | smtp_at(free_ports(1)[0]) | NO_TIME
    for run_number in (1, 2):
        [problem] = run(offline_settings, catalog, nowhere)
        assert "does not answer (Connection refused)" in problem
        entry, waiting = outbox.entries(catalog)
        assert (entry.mail, entry.failed_attempts) == ("pending", run_number)
        # A server that is down is not asked again for every mail.
        assert (waiting.mail, waiting.failed_attempts) == ("pending", 0)
    # A channel that is configured no longer still owes.
    assert run(offline_settings, catalog, {}) == [
        "2 messages wait for a mail that is no longer configured."
        " Configure it, or drop them by `lakehouse export outbox drop`."
    ]
    assert run(offline_settings, catalog, env) == []
    assert len(box.mails) == 2


def test_the_command_says_that_somebody_is_not_told_and_exits_with_3(
    offline_settings: Settings, catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish_content(open_target(offline_settings), "a")
    monkeypatch.setattr("python_export.cli.run.from_environment", lambda env: offline_settings)
    monkeypatch.setattr("python_export.cli.run.environment", lambda: smtp_at(free_ports(1)[0]) | NO_TIME)
    told = CliRunner().invoke(app, ["notify"])
    assert told.exit_code == 3
    assert "error: published, but not everybody is told: The mail server at 127.0.0.1:" in told.stderr


def test_a_crash_after_the_mail_sends_it_again_as_the_same_one(
    offline_settings: Settings,
    catalog: Catalog,
    mailbox: tuple[Mailbox, dict[str, str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    box, env = mailbox
    publish_content(open_target(offline_settings), "a")
    with monkeypatch.context() as crash, pytest.raises(KeyboardInterrupt):
        crash.setattr(outbox, "settle", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        run(offline_settings, catalog, env)
    for _ in range(2):
        assert run(offline_settings, catalog, env) == []
    assert len(box.mails) == 2
    for header in ("Message-ID", "X-Idempotency-Key", "Date"):
        assert box.mails[0][header] == box.mails[1][header]


def test_a_failed_run_is_told(
    offline_settings: Settings, catalog: Catalog, mailbox: tuple[Mailbox, dict[str, str]]
) -> None:
    box, env = mailbox
    error = UserError("2020-W53 is not complete; behind: <payments>", "Run again")
    said: list[str] = []
    deliver.tell_of_failure(offline_settings, env | smtp_at(1) | NO_TIME, IsoWeek(2020, 53), error, said.append)
    assert said[-1].startswith("not everybody is told of the failure: The mail server at 127.0.0.1:1 does not answer")
    deliver.tell_of_failure(offline_settings, env, IsoWeek(2020, 53), error, said.append)
    [mail] = box.mails
    assert mail["Subject"] == "2020-W53: the weekly files failed"
    assert mail.get_body(("plain",)).get_content().count(str(error)) == 2
    assert "behind: &lt;payments&gt;" in mail.get_body(("html",)).get_content()


def test_a_notice_stands_in_the_mail_of_its_week_and_is_told_once(
    offline_settings: Settings, catalog: Catalog, mailbox: tuple[Mailbox, dict[str, str]], webhook: Calls
) -> None:
    box, env = mailbox
    env = env | {"LAKEHOUSE_WEBHOOK_URL": f"http://127.0.0.1:{webhook.server.server_port}/hook"}
    publish_content(open_target(offline_settings), "a")
    behind = Withheld("orders", WEEK, "behind: payments at 2020-12-31 00:00:00 UTC")
    told = [Notice(WEEK, behind.dataset, str(behind)), Notice(WEEK, None, "warning: the field phone has no class")]
    for notices in (told, told, [Notice(WEEK, None, "warning: another")]):
        assert deliver.notify(offline_settings, env, catalog, print, notices) == []
    first, second = box.mails
    assert (first["Subject"], second["Subject"]) == (
        f"{WEEK}: 1 file published, 1 withheld, 1 warning",
        f"{WEEK}: 1 warning",
    )
    text, html = (first.get_body((kind,)).get_content() for kind in ("plain", "html"))
    for notice in told:
        assert notice.text in text.splitlines()
        assert f">{notice.text}<" in html
    calls = {headers["Idempotency-Key"]: body for headers, body in webhook.taken}
    assert len(calls) == len(webhook.taken) == 4
    [withheld] = [body for body in calls.values() if body["event"] == "notice" and body["dataset"] == "orders"]
    assert {name: withheld[name] for name in ("event", "week", "dataset", "text")} == {
        "event": "notice",
        "week": WEEK,
        "dataset": "orders",
        "text": "orders 2020-W53 is withheld: behind: payments at 2020-12-31 00:00:00 UTC",
    }


def test_an_outbox_of_an_older_release_gets_the_columns_it_lacks(catalog: Catalog) -> None:
    columns = outbox.TABLE.columns
    older = replace(outbox.TABLE, columns=columns[:-2])

    def row(table: SmallTable, key: str) -> dict[str, Any]:
        return dict.fromkeys(name for name, *_ in table.columns) | {columns[0][0]: key}

    older.change(catalog, lambda rows: {"old": row(older, "old")})
    assert outbox.TABLE.rows(catalog)["old"][columns[-1][0]] is None
    new = row(outbox.TABLE, "new") | {"last_error": "no"}
    assert outbox.TABLE.change(catalog, lambda rows: {**rows, "new": new})["new"]["last_error"] == "no"
    assert set(outbox.TABLE.rows(catalog)) == {"old", "new"}


def test_telling_of_a_failure_never_takes_its_place(
    offline_settings: Settings, catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deliver, "notify", failing)
    said: list[str] = []
    deliver.tell_of_failure(offline_settings, {}, IsoWeek(2020, 53), UserError("no", "Run again"), said.append)
    assert "not everybody is told of the failure: An error that nobody foresaw: ValueError." in said[-1]


def failing(*_: Any, **__: Any) -> Any:
    raise ValueError("4111-1111-1111-1111")


def export_run(settings: Settings, env: dict[str, str], monkeypatch: pytest.MonkeyPatch, week: str = WEEK) -> Result:
    """Run `export run` without a dbt project; a test puts something in the place of the export itself."""
    monkeypatch.setattr(cli, "from_environment", lambda env: settings)
    monkeypatch.setattr(cli, "environment", lambda: env)
    monkeypatch.setattr(cli, "parse", lambda project: None)
    monkeypatch.setattr(cli.declared, "load", lambda project: {})
    return CliRunner().invoke(app, ["run", "--week", week])


def test_what_was_published_is_told_when_the_report_fails(
    offline_settings: Settings,
    catalog: Catalog,
    mailbox: tuple[Mailbox, dict[str, str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    box, env = mailbox
    target = open_target(offline_settings)

    def publish_and_withhold(exporter: Exporter, *_: Any) -> None:
        exported = exporter.exported
        exported.published.append(publish_content(target, "a"))
        exported.withheld.append(Withheld("orders", WEEK, "behind: payments at 2020-12-31 00:00:00 UTC"))

    monkeypatch.setattr(Exporter, "run", publish_and_withhold)
    done = export_run(offline_settings, env, monkeypatch)
    assert (done.exit_code, type(done.exception)) == (1, UserError)
    assert "Thrift server at 127.0.0.1:1 does not answer" in str(done.exception)
    assert "events_2020-W53_v1.csv" in done.stdout
    assert {mail["Subject"] for mail in box.mails} == {
        f"{WEEK}: the weekly files failed",
        f"{WEEK}: 1 file published, 1 withheld",
    }


def test_any_failure_of_an_export_is_told_and_quotes_no_row(
    offline_settings: Settings,
    catalog: Catalog,
    mailbox: tuple[Mailbox, dict[str, str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    box, env = mailbox
    monkeypatch.setattr(Exporter, "run", failing)
    done = export_run(offline_settings, env, monkeypatch)
    assert str(done.exception).startswith("An error that nobody foresaw: ValueError")
    [mail] = box.mails
    assert str(done.exception) in mail.get_body(("plain",)).get_content()


def test_an_export_that_was_killed_is_told_of_once_by_the_next(
    offline_settings: Settings,
    catalog: Catalog,
    mailbox: tuple[Mailbox, dict[str, str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    box, env = mailbox

    def kill(exporter: Exporter, *_: Any) -> None:
        os._exit(9)

    for step in (kill, lambda *_: None, lambda *_: None):
        monkeypatch.setattr(Exporter, "run", step)
        monkeypatch.setattr(cli.page, "write", lambda *_: "")
        if step is not kill:
            assert export_run(offline_settings, env, monkeypatch).exit_code == 0
        elif not (child := os.fork()):
            export_run(offline_settings, env, monkeypatch)
        else:
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
    [mail] = box.mails
    assert f"The export run for {WEEK} was killed" in mail.get_body(("plain",)).get_content()


def test_a_week_that_is_not_over_is_the_callers_to_know(
    offline_settings: Settings,
    catalog: Catalog,
    mailbox: tuple[Mailbox, dict[str, str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    box, env = mailbox
    monkeypatch.setattr(Exporter, "run", failing)
    done = export_run(offline_settings, env, monkeypatch, "2999-W01")
    assert str(done.exception).startswith("2999-W01 is not over")
    assert box.mails == []


def test_an_export_that_has_lost_its_lease_ends(
    offline_settings: Settings,
    catalog: Catalog,
    mailbox: tuple[Mailbox, dict[str, str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    box, env = mailbox

    def lose_it(exporter: Exporter, *_: Any) -> None:
        lease.TABLE.change(catalog, lambda rows: {"weekly": rows["weekly"] | {"holder": "elsewhere"}})
        exporter.require()

    monkeypatch.setattr(Exporter, "run", lose_it)
    done = export_run(offline_settings, env, monkeypatch)
    assert "and elsewhere " in str(done.exception)
    assert len(box.mails) == 1


def test_without_a_channel_nothing_is_owed(
    offline_settings: Settings,
    catalog: Catalog,
    mailbox: tuple[Mailbox, dict[str, str]],
    capsys: pytest.CaptureFixture[str],
) -> None:
    box, env = mailbox
    publish_content(open_target(offline_settings), "a")
    assert run(offline_settings, catalog, {}) == []
    assert "nobody is told" in capsys.readouterr().out
    assert run(offline_settings, catalog, env) == []
    assert box.mails == []


def test_a_version_that_was_taken_away_and_published_again_is_told(
    offline_settings: Settings, catalog: Catalog, mailbox: tuple[Mailbox, dict[str, str]]
) -> None:
    box, env = mailbox
    for content in ("a", "b", "b"):
        publish_content(open_target(offline_settings), content)
        assert run(offline_settings, catalog, env) == []
        unlock(Path(offline_settings.export_root))
        shutil.rmtree(Path(offline_settings.export_root) / "events")
    assert len({mail["Message-ID"] for mail in box.mails}) == len(box.mails) == 2


def test_rows_written_at_the_same_time_are_all_kept_and_none_twice(
    offline_settings: Settings, catalog: Catalog
) -> None:
    for content in ("a", "b", "c"):
        publish_content(open_target(offline_settings), content)
    start = threading.Barrier(3)

    def record() -> None:
        start.wait()
        outbox.record_versions(load_catalog(offline_settings), open_target(offline_settings), Channels(), [])

    threads = [threading.Thread(target=record) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    rows = load_catalog(offline_settings).load_table("ops.export_outbox").scan("kind = 'version'").to_arrow()
    assert sorted(rows["idempotency_key"].to_pylist()) == [
        key(offline_settings, f"events/{WEEK}/v{number}") for number in (1, 2, 3)
    ]


@pytest.mark.usefixtures("exports_declared")
def test_the_report_reads_a_file_as_it_was_written_and_quotes_no_row(
    offline_settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DuckDB guesses a dialect from the first 20,480 lines; the first quoted cell comes later here."""
    monkeypatch.setattr(report.thrift, "connect", lambda settings: nullcontext())
    monkeypatch.setattr(report, "_count", lambda *_: 0)
    target = open_target(offline_settings)
    names = ("product_key", "channel_group", "revenue", "quantity", "customer_count", "is_suppressed")
    columns = [{"name": name, "type": "string", "nulls": 0} for name in names]
    totals = {"revenue": "0", "quantity": "0", "customer_count": "0"}
    demand = replace(draft(WEEK), dataset="product_demand", columns=columns, control_totals=totals)
    rows = f"{','.join(names)}\n" + "shop-1,Digital,1.00,1,10,false\n" * 30_000
    file = stage(target, rows + '"web, ""shop""",Digital,20000.00,2,10,false\n')
    publish(target, file, demand, [], file.parent)
    page = Path(report.write(offline_settings, IsoWeek.parse(WEEK))).read_text()
    assert '<th scope="row">web, &#34;shop&#34;</th>' in page
    assert '<td class="number">20,000</td>' in page

    file = stage(target, f"{','.join(names)}\nshop-1,Digital,4111-1111,1,10,false\n")
    publish(target, file, replace(demand, week=NEXT_WEEK), [], file.parent)
    with pytest.raises(UserError, match=r"could not be made of the published files \(ConversionException\)") as refusal:
        report.write(offline_settings, IsoWeek.parse(NEXT_WEEK))
    assert "4111" not in str(refusal.value)


@pytest.mark.usefixtures("exports_declared")
def test_the_report_takes_the_sales_of_eight_weeks_from_manifests(
    offline_settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of no file a row is read; a version of an older release tells nothing by channel."""
    monkeypatch.setattr(report.thrift, "connect", lambda settings: nullcontext())
    monkeypatch.setattr(report, "_count", lambda *_: None)
    monkeypatch.setattr(report.csv_file, "rows_of", failing)
    target = open_target(offline_settings)
    week = IsoWeek.parse(WEEK)
    for weeks, amount in enumerate(("300.00", "200.00", None, "100.00", "50.00")):
        by_channel = {"store": {"rows": "2", "net_price": amount}} if amount else {}
        lines = replace(
            draft(str(week.minus(weeks))),
            dataset="order_lines",
            # The oldest version is of before the charted measure was declared.
            totals_by={"channel": by_channel if weeks < 4 else {"store": {"rows": "2"}}},
            control_totals={"net_price": amount or "0"},
        )
        file = stage(target, f"{weeks}")
        publish(target, file, lines, [], file.parent)
    page = Path(
        report.write(offline_settings, week, [Notice(WEEK, None, "of W53"), Notice(NEXT_WEEK, None, "other")])
    ).read_text()
    assert [name in page for name in ("of W53", "other")] == [True, False]
    assert '<th scope="row">store</th>' in page
    labels = re.findall('<div class="tile"><span class="soft">(.*?)</span><b>(.*?)</b>', page)
    assert labels == [("Net sales", "300"), ("Order lines", "1")]
    assert re.search(
        '<h2>Net sales by channel</h2>.*<table id="chart-order_lines">.*<th scope="col">Channel</th>', page, re.S
    )
    assert "<title>2020-W50: 100</title>" in page
    assert "<title>2020-W51" not in page
    assert "+50.0 %" in page


def test_a_mail_server_with_tls_and_a_login(offline_settings: Settings, catalog: Catalog, tmp_path: Path) -> None:
    authority = Authority(tmp_path / "ca")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*authority.issue("mail"))

    def login(server: Any, session: Any, envelope: Any, mechanism: str, data: LoginPassword) -> AuthResult:
        return AuthResult(success=(data.login, data.password) == (b"lake", b"secret-word"), handled=False)

    box = Mailbox()
    [port] = free_ports(1)
    server = Controller(
        box, hostname="127.0.0.1", port=port, tls_context=context, authenticator=login, auth_required=True
    )
    server.start()
    env = {**smtp_at(port), "LAKEHOUSE_SMTP_USER": "lake", "LAKEHOUSE_SMTP_PASSWORD": "secret-word"}
    publish_content(open_target(offline_settings), "a")
    try:
        [untrusted] = run(offline_settings, catalog, env)
        env["LAKEHOUSE_SMTP_CA_LOCATION"] = str(authority.ca)
        [refused] = run(offline_settings, catalog, env | {"LAKEHOUSE_SMTP_PASSWORD": "secret-guess"})
        assert run(offline_settings, catalog, env) == []
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
    found = Channels.of({**smtp_at(25), **login, **hook})
    assert "user='u'" in repr(found)
    assert "secret" not in repr(found)


def test_a_channel_that_cannot_work_is_refused_before_anything_is_exported(
    offline_settings: Settings, catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Exporter, "run", failing)
    done = export_run(offline_settings, smtp_at(25) | {"LAKEHOUSE_SMTP_TO": "a"}, monkeypatch)
    assert "LAKEHOUSE_SMTP_TO holds no mail address" in str(done.exception)


def test_a_recipient_who_is_to_be_asked_later_gets_the_mail_and_the_others_get_it_once(
    offline_settings: Settings, catalog: Catalog, mailbox: tuple[Mailbox, dict[str, str]]
) -> None:
    box, env = mailbox
    env = env | {"LAKEHOUSE_SMTP_TO": "a@example.com, later@example.com, gone@example.com"}
    publish_content(open_target(offline_settings), "a")
    box.later = 1
    [owed] = run(offline_settings, catalog, env | NO_TIME)
    assert "to be asked later for later@example.com" in owed
    [entry] = outbox.entries(catalog)
    assert (entry.mail, entry.waiting_for) == ("pending", "later@example.com")
    # The next run begins by asking for this one alone, and asks again while there is time.
    box.later = 2
    assert run(offline_settings, catalog, env) == []
    [entry] = outbox.entries(catalog)
    assert (entry.mail, entry.waiting_for, entry.failed_attempts) == ("delivered", None, 1)
    assert box.taken_for == [["a@example.com"], ["later@example.com"]]
    assert len({mail["Message-ID"] for mail in box.mails}) == 1


def test_a_recipient_who_left_the_list_is_not_waited_for(
    offline_settings: Settings, catalog: Catalog, mailbox: tuple[Mailbox, dict[str, str]]
) -> None:
    box, env = mailbox
    publish_content(open_target(offline_settings), "a")
    box.later = 1
    run(offline_settings, catalog, env | NO_TIME | {"LAKEHOUSE_SMTP_TO": "a@example.com, later@example.com"})
    assert run(offline_settings, catalog, env) == []
    assert [entry.mail for entry in outbox.entries(catalog)] == ["delivered"]
    assert box.taken_for == [["a@example.com"]]


def test_a_busy_webhook_is_asked_again_when_it_says(
    offline_settings: Settings, catalog: Catalog, webhook: Calls
) -> None:
    publish_content(open_target(offline_settings), "a")
    env = {"LAKEHOUSE_WEBHOOK_URL": f"http://127.0.0.1:{webhook.server.server_port}"}
    webhook.busy = ["1"]
    assert run(offline_settings, catalog, env) == []
    first, second = webhook.asked_at
    assert second - first >= 1
    # What would take longer than the run has is left to the next one.
    publish_content(open_target(offline_settings), "b")
    webhook.busy = [format_datetime(datetime.now(UTC) + timedelta(hours=1), usegmt=True)]
    [problem] = run(offline_settings, catalog, env)
    assert "answered 429" in problem
    assert len(webhook.asked_at) == 3


def test_failures_go_to_those_who_can_mend_them(
    offline_settings: Settings, catalog: Catalog, mailbox: tuple[Mailbox, dict[str, str]]
) -> None:
    box, env = mailbox
    env = env | {"LAKEHOUSE_ALERT_TO": "operator@example.com"}
    publish_content(open_target(offline_settings), "a")
    deliver.tell_of_failure(offline_settings, env, IsoWeek(2020, 53), UserError("no", "Run again"), print)
    assert [(mail["To"], mail["Subject"]) for mail in box.mails] == [
        ("operator@example.com", f"{WEEK}: the weekly files failed"),
        ("a@example.com, b@example.com", f"{WEEK}: 1 file published"),
    ]


@pytest.mark.parametrize("broken", ["catalog locked", "catalog gone", "home not writable", "disk full"])
def test_a_failure_is_told_when_it_cannot_be_noted(
    offline_settings: Settings,
    catalog: Catalog,
    mailbox: tuple[Mailbox, dict[str, str]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    broken: str,
) -> None:
    box, env = mailbox
    settings = offline_settings.changed(catalog_uri=f"{offline_settings.catalog_uri}?busy_timeout=100")
    database = Path(offline_settings.catalog_uri.removeprefix("jdbc:sqlite:"))
    with ExitStack() as stack:
        if broken == "catalog locked":
            other = stack.enter_context(closing(sqlite3.connect(database)))
            other.execute("begin exclusive")
        elif broken == "catalog gone":
            database.unlink()
        elif broken == "home not writable":
            (tmp_path / "file").write_text("")
            monkeypatch.setenv("LAKEHOUSE_HOME", str(tmp_path / "file"))
        else:
            # As on a full disk, no file can become longer, and the system says so.
            stack.enter_context(no_room())
        said: list[str] = []
        deliver.tell_of_failure(settings, env, IsoWeek(2020, 53), UserError("no", "Run again"), said.append)
    [mail] = box.mails
    assert "no. Run again." in mail.get_body(("plain",)).get_content()
    assert said[0].startswith("the failure cannot be noted in ops.export_outbox, and is told all the same: ")
    assert {
        "catalog locked": "is locked by another program",
        "catalog gone": "There is no catalog at",
        "home not writable": "cannot be written",
        "disk full": "cannot be used (EFBIG)",
    }[broken] in said[0]


@contextmanager
def no_room() -> Iterator[None]:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_a_trial_to_another_root_tells_nobody_until_it_is_adopted(
    offline_settings: Settings,
    catalog: Catalog,
    mailbox: tuple[Mailbox, dict[str, str]],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    box, env = mailbox
    trial = offline_settings.changed(export_root=f"{offline_settings.export_root}-trial")
    for settings, content in ((offline_settings, "a"), (trial, "other")):
        outbox.know_root(catalog, open_target(settings))
        publish_content(open_target(settings), content)
        assert run(settings, catalog, env) == []
    assert "readers are told of another export root" in capsys.readouterr().out
    assert len(box.mails) == 1
    states = {entry.export_root: (entry.mail, entry.sha256) for entry in outbox.entries(catalog)}
    assert states[open_target(offline_settings).address("")][0] == "delivered"
    assert states[open_target(trial).address("")][0] == "another export root"
    assert len({sha256 for _, sha256 in states.values()}) == 2

    assert outbox_command(trial, env, monkeypatch, "adopt").exit_code == 0
    publish_content(open_target(trial), "late")
    assert run(trial, catalog, env) == []
    assert open_target(trial).address("") in box.mails[1].get_body(("plain",)).get_content()
    assert len(box.mails) == 2
    # The other root's readers are told by the runs for it, of its notices too.
    publish_content(open_target(offline_settings), "late")
    notices = [Notice(WEEK, None, "warning: late")]
    assert deliver.notify(offline_settings, {}, catalog, print, ()) == []
    nowhere = env | smtp_at(free_ports(1)[0]) | NO_TIME
    assert len(deliver.notify(offline_settings, nowhere, catalog, print, notices)) == 1
    assert run(trial, catalog, env) == []
    assert len(box.mails) == 2
    assert run(offline_settings, catalog, env) == []
    assert box.mails[2]["Subject"] == f"{WEEK}: 1 warning"


def outbox_command(settings: Settings, env: dict[str, str], monkeypatch: pytest.MonkeyPatch, *arguments: str) -> Result:
    monkeypatch.setattr(cli_outbox, "from_environment", lambda env=None: settings)
    monkeypatch.setattr(cli_outbox, "environment", lambda: env)
    return CliRunner().invoke(app, ["outbox", *arguments])


def test_rows_are_listed_tried_again_and_dropped(
    offline_settings: Settings,
    catalog: Catalog,
    mailbox: tuple[Mailbox, dict[str, str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    box, env = mailbox
    for week in (WEEK, NEXT_WEEK):
        publish_content(open_target(offline_settings), "a", week)
    run(offline_settings, catalog, env | smtp_at(free_ports(1)[0]) | NO_TIME)
    one, other = (key(offline_settings, f"events/{week}/v1") for week in (WEEK, NEXT_WEEK))
    listed = outbox_command(offline_settings, env, monkeypatch, "list").output
    assert one in listed
    assert "does not answer (Connection refused)" in listed

    assert outbox_command(offline_settings, env, monkeypatch, "drop", other).exit_code == 0
    assert run(offline_settings, catalog, env) == []
    assert [mail["Subject"] for mail in box.mails] == [f"{WEEK}: 1 file published"]
    assert one not in outbox_command(offline_settings, env, monkeypatch, "list").output
    assert other in outbox_command(offline_settings, env, monkeypatch, "list", "--all").output

    assert outbox_command(offline_settings, env, monkeypatch, "retry", one, other).exit_code == 0
    assert [mail["Subject"][:8] for mail in box.mails] == [WEEK, WEEK, NEXT_WEEK]
    unknown = outbox_command(offline_settings, env, monkeypatch, "retry", "events/v1")
    assert str(unknown.exception).startswith("The outbox has no row events/v1")


OLD_COLUMNS = outbox.TABLE.columns[:-2]


def of_the_last_release(catalog: Catalog, state: str, *versions: Manifest) -> None:
    """Put the outbox of the release that knew no export roots in the place of ours."""
    catalog.drop_table("ops.export_outbox")
    old = SmallTable("ops.export_outbox", OLD_COLUMNS)
    now = datetime.now(UTC)
    rows = {
        one.path: asdict(
            outbox.Entry(one.path, "version", one.week, one.dataset, 1, one.sha256, None, now, state, "no channel")
        )
        for one in versions
    }
    names = [name for name, _, _ in OLD_COLUMNS]
    old.change(catalog, lambda _: {path: {name: row[name] for name in names} for path, row in rows.items()})


@pytest.mark.parametrize(("state", "mails"), [("delivered", 0), ("pending", 1)])
def test_an_outbox_of_the_last_release_is_carried_on(
    offline_settings: Settings,
    catalog: Catalog,
    mailbox: tuple[Mailbox, dict[str, str]],
    state: str,
    mails: int,
) -> None:
    box, env = mailbox
    target = open_target(offline_settings)
    of_the_last_release(catalog, state, publish_content(target, "a").manifest)
    assert run(offline_settings, catalog, env) == []
    assert len(box.mails) == mails
    publish_content(target, "b")
    assert run(offline_settings, catalog, env) == []
    assert len(box.mails) == mails + 1
    assert [entry.idempotency_key for entry in outbox.entries(catalog)] == [
        key(offline_settings, f"events/{WEEK}/v{number}") for number in (1, 2)
    ]


def test_the_first_run_with_an_outbox_does_not_tell_all_history(
    offline_settings: Settings, catalog: Catalog, mailbox: tuple[Mailbox, dict[str, str]]
) -> None:
    box, env = mailbox
    target = open_target(offline_settings)
    old = publish_content(target, "a").manifest
    unlock(target.root)
    text = (target.root / old.path / "manifest.json").read_text()
    (target.root / old.path / "manifest.json").write_text(text.replace(old.created_at, "2020-01-01T00:00:00Z"))
    catalog.drop_table("ops.export_outbox")
    outbox.know_root(catalog, target)
    publish_content(target, "b")
    assert run(offline_settings, catalog, env) == []
    [mail] = box.mails
    assert mail["X-Idempotency-Key"] == key(offline_settings, f"events/{WEEK}/v2")


def test_one_damaged_manifest_holds_up_no_mail_and_told_ones_are_not_read_again(
    offline_settings: Settings,
    catalog: Catalog,
    mailbox: tuple[Mailbox, dict[str, str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    box, env = mailbox
    target = open_target(offline_settings)
    for week in ("2020-W51", "2020-W52", WEEK):
        publish_content(target, "a", week)
    manifest = target.root / "events" / "2020-W52" / "v1" / "manifest.json"
    unlock(manifest.parent)
    manifest.write_text("{")
    [problem] = run(offline_settings, catalog, env)
    assert "events/2020-W52/v1/manifest.json is missing or damaged" in problem
    assert [mail["Subject"][:8] for mail in box.mails] == ["2020-W51", WEEK]

    read, paths = LocalTarget.read, []
    monkeypatch.setattr(LocalTarget, "read", lambda self, path: paths.append(path) or read(self, path))
    publish_content(target, "a", NEXT_WEEK)
    paths.clear()
    run(offline_settings, catalog, env)
    # Its own, that of the week before, and the damaged one.
    assert {path.split("/")[1] for path in paths} == {NEXT_WEEK, WEEK, "2020-W52"}


def test_links_are_those_of_the_web(
    offline_settings: Settings, catalog: Catalog, mailbox: tuple[Mailbox, dict[str, str]]
) -> None:
    box, env = mailbox
    settings = offline_settings.changed(export_url="https://files.example.com/weekly/")
    publish_content(open_target(settings), "a")
    run(settings, catalog, env)
    [mail] = box.mails
    file = f"https://files.example.com/weekly/events/{WEEK}/v1/events_{WEEK}_v1.csv"
    page = f"https://files.example.com/weekly/reports/{WEEK}.html"
    for link in (file, page):
        assert link in mail.get_body(("plain",)).get_content()
        assert f'<a href="{link}">' in mail.get_body(("html",)).get_content()


def test_a_report_reads_the_manifests_that_it_shows(offline_settings: Settings) -> None:
    """All versions of its week, the newest of the week before, and those that sales by channel need; a damaged one
    gives way to the one before it."""
    target = open_target(offline_settings)
    week = IsoWeek(2021, 10)
    for dataset, label, contents in (
        ("order_lines", str(week), "ab"),
        ("order_lines", str(week.minus(7)), "abc"),
        ("order_lines", str(week.minus(8)), "a"),
        ("trades", str(week.minus(1)), "ab"),
        ("trades", str(week.minus(2)), "a"),
    ):
        for content in contents:
            publish(target, stage(target, content), replace(draft(label), dataset=dataset), (), target.staging / "s")
    damaged = Path(offline_settings.export_root) / "order_lines" / str(week.minus(7)) / "v3"
    unlock(damaged)
    (damaged / "manifest.json").write_text("{")
    assert [one.path for one in report.needed(target, week, ["order_lines"])] == [
        f"order_lines/{week.minus(7)}/v2",
        f"order_lines/{week}/v1",
        f"order_lines/{week}/v2",
        f"trades/{week.minus(1)}/v2",
    ]
