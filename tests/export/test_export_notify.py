"""The outbox and its channels, on a real mail server and a real HTTP server: every version is told of, and once.

And the report that the mail links to.
"""

import json
import shutil
import ssl
import threading
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from email import message_from_bytes, policy
from email.message import EmailMessage
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from aiosmtpd.controller import Controller
from aiosmtpd.smtp import AuthResult, LoginPassword
from click.testing import Result
from hostile_rows import draft
from pyiceberg.catalog import Catalog
from test_export_publish import publish_content, stage
from typer.testing import CliRunner

from lakehouse.catalog import load_catalog
from lakehouse.errors import UserError
from lakehouse.settings import Settings
from lakehouse.weeks import IsoWeek
from local_stack.process import free_ports
from python_export import channels, cli, notify, outbox, report
from python_export.cli import app
from python_export.manifest import published
from python_export.publish import publish
from python_export.target import open_target
from tests.ingest.secured import Authority

WEEK, NEXT_WEEK = "2020-W53", "2021-W01"
ADDRESSES = {"LAKEHOUSE_SMTP_FROM": "lake@example.com", "LAKEHOUSE_SMTP_TO": "a@example.com, b@example.com"}


class Mailbox:
    """An SMTP server's handler that keeps what it takes; it refuses a recipient gone@ and the mails of a week."""

    def __init__(self) -> None:
        self.mails: list[EmailMessage] = []
        self.refused_week = "none"

    async def handle_RCPT(self, server: Any, session: Any, envelope: Any, address: str, options: Any) -> str:
        if address.startswith("gone@"):
            return "550 no such user"
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:
        mail = message_from_bytes(envelope.content, policy=policy.default)
        if mail["Subject"].startswith(self.refused_week):
            return "552 too much"
        self.mails.append(mail)
        return "250 OK"


@dataclass
class Calls:
    """A web server that keeps what is posted to it, and answers with `status`; it refuses the key `refused`."""

    server: HTTPServer
    status: int = 200
    refused: str = ""
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
            if status == 200:
                calls.taken.append((dict(self.headers), json.loads(body)))
            self.send_response(status)
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
    monkeypatch.setattr(notify, "PAUSE_SECONDS", 0)


def smtp_at(port: int) -> dict[str, str]:
    return {"LAKEHOUSE_SMTP_HOST": "127.0.0.1", "LAKEHOUSE_SMTP_PORT": str(port), **ADDRESSES}


def run(settings: Settings, catalog: Catalog, env: dict[str, str]) -> list[str]:
    """Notify, and return why somebody was not told."""
    return [str(problem) for problem in notify.notify(settings, env, catalog, print)]


def test_a_week_is_one_mail_with_its_figures_and_is_told_once(
    published_to: Settings, catalog: Catalog, mailbox: tuple[Mailbox, dict[str, str]]
) -> None:
    box, env = mailbox
    target = open_target(published_to)
    publish_content(target, "note\na\n", WEEK)
    first = publish_content(target, "note\nb\n", NEXT_WEEK).manifest
    assert run(published_to, catalog, env) == []
    assert [mail["Subject"] for mail in box.mails] == [f"{WEEK}: 1 file published", f"{NEXT_WEEK}: 1 file published"]
    mail = box.mails[1]
    assert mail["X-Idempotency-Key"] == f"events/{NEXT_WEEK}/v1"
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


def test_a_webhook_gets_each_version_with_its_key(offline_settings: Settings, catalog: Catalog, webhook: Calls) -> None:
    for content in ("a", "b"):
        manifest = publish_content(open_target(offline_settings), content).manifest
    url = f"http://127.0.0.1:{webhook.server.server_port}/secret-path"
    env = {"LAKEHOUSE_WEBHOOK_URL": url, "LAKEHOUSE_WEBHOOK_TOKEN": "secret-token"}
    webhook.status = 500
    [problem] = run(offline_settings, catalog, env)
    assert problem.startswith("The webhook at http://127.0.0.1 answered 500")
    assert "secret" not in problem
    webhook.status = 200
    assert run(offline_settings, catalog, env) == []

    assert [headers["Idempotency-Key"] for headers, _ in webhook.taken] == [f"events/{WEEK}/v1", f"events/{WEEK}/v2"]
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
    box.refused_week, webhook.refused = WEEK, f"events/{WEEK}/v1"
    mail, call = run(offline_settings, catalog, env)
    assert "did not take the mail (SMTPDataError 552)" in mail
    assert "answered 400" in call
    assert [mail["Subject"] for mail in box.mails] == [f"{NEXT_WEEK}: 1 file published"]
    assert [body["week"] for _, body in webhook.taken] == [NEXT_WEEK]
    owed, told = outbox.entries(catalog)
    assert (owed.mail, owed.webhook, owed.failed_attempts) == ("pending", "pending", 2 * notify.ATTEMPTS)
    assert (told.mail, told.webhook, told.failed_attempts) == ("delivered", "delivered", 0)


def test_a_mail_that_some_recipients_cannot_have_is_sent_to_the_others_once(
    offline_settings: Settings, catalog: Catalog, mailbox: tuple[Mailbox, dict[str, str]]
) -> None:
    box, env = mailbox
    env = env | {"LAKEHOUSE_SMTP_TO": "a@example.com, gone@example.com"}
    for week in (WEEK, NEXT_WEEK):
        publish_content(open_target(offline_settings), "a", week)
    [problem] = run(offline_settings, catalog, env)
    assert "refused 1 of 2 recipients: gone@example.com" in problem
    assert run(offline_settings, catalog, env) == []
    assert len(box.mails) == 2


def test_what_a_dead_mail_server_did_not_take_is_taken_later(
    offline_settings: Settings, catalog: Catalog, mailbox: tuple[Mailbox, dict[str, str]]
) -> None:
    box, env = mailbox
    for week in (WEEK, NEXT_WEEK):
        publish_content(open_target(offline_settings), "a", week)
    nowhere = env | smtp_at(free_ports(1)[0])
    for run_number in (1, 2):
        [problem] = run(offline_settings, catalog, nowhere)
        assert "does not answer (Connection refused)" in problem
        entry, waiting = outbox.entries(catalog)
        assert (entry.mail, entry.failed_attempts) == ("pending", run_number * notify.ATTEMPTS)
        # A server that is down is not asked again for every mail.
        assert (waiting.mail, waiting.failed_attempts) == ("pending", 0)
    # A channel that is configured no longer still owes.
    assert run(offline_settings, catalog, {}) == [
        "2 messages wait for a mail that is no longer configured. Configure it."
    ]
    assert run(offline_settings, catalog, env) == []
    assert len(box.mails) == 2


def test_the_command_says_that_somebody_is_not_told_and_exits_with_3(
    offline_settings: Settings, catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish_content(open_target(offline_settings), "a")
    monkeypatch.setattr("python_export.cli.from_environment", lambda env: offline_settings)
    monkeypatch.setattr("python_export.cli.environment", lambda: smtp_at(free_ports(1)[0]))
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
    notify.tell_of_failure(offline_settings, env | smtp_at(1), IsoWeek(2020, 53), error, said.append)
    assert said[-1].startswith("not everybody is told of the failure: The mail server at 127.0.0.1:1 does not answer")
    notify.tell_of_failure(offline_settings, env, IsoWeek(2020, 53), error, said.append)
    [mail] = box.mails
    assert mail["Subject"] == "2020-W53: the weekly files failed"
    assert mail.get_body(("plain",)).get_content().count(str(error)) == 2
    assert "behind: &lt;payments&gt;" in mail.get_body(("html",)).get_content()


def test_telling_of_a_failure_never_takes_its_place(
    offline_settings: Settings, catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notify, "published", failing)
    said: list[str] = []
    notify.tell_of_failure(offline_settings, {}, IsoWeek(2020, 53), UserError("no", "Run again"), said.append)
    assert "not everybody is told of the failure: An error that nobody foresaw: ValueError." in said[-1]


def failing(*_: Any, **__: Any) -> Any:
    raise ValueError("4111-1111-1111-1111")


def export_run(settings: Settings, env: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Result:
    """Run `export run` without a dbt project; a test puts something in the place of the export itself."""
    monkeypatch.setattr(cli, "from_environment", lambda env: settings)
    monkeypatch.setattr(cli, "environment", lambda: env)
    monkeypatch.setattr(cli, "require_classified", lambda *_: None)
    monkeypatch.setattr(cli.Project, "manifest", lambda self: {})
    monkeypatch.setattr(cli.datasets, "load", lambda project: {})
    return CliRunner().invoke(app, ["run", "--week", WEEK])


def test_what_was_published_is_told_when_the_report_fails(
    offline_settings: Settings,
    catalog: Catalog,
    mailbox: tuple[Mailbox, dict[str, str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    box, env = mailbox
    target = open_target(offline_settings)
    monkeypatch.setattr(cli, "run_export", lambda *_, **__: [publish_content(target, "a")])
    done = export_run(offline_settings, env, monkeypatch)
    assert (done.exit_code, type(done.exception)) == (1, UserError)
    assert "Thrift server at 127.0.0.1:1 does not answer" in str(done.exception)
    assert "events_2020-W53_v1.csv" in done.stdout
    assert {mail["Subject"] for mail in box.mails} == {
        f"{WEEK}: the weekly files failed",
        f"{WEEK}: 1 file published",
    }


def test_any_failure_of_an_export_is_told_and_quotes_no_row(
    offline_settings: Settings,
    catalog: Catalog,
    mailbox: tuple[Mailbox, dict[str, str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    box, env = mailbox
    monkeypatch.setattr(cli, "run_export", failing)
    done = export_run(offline_settings, env, monkeypatch)
    assert str(done.exception).startswith("An error that nobody foresaw: ValueError")
    [mail] = box.mails
    assert str(done.exception) in mail.get_body(("plain",)).get_content()


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
        shutil.rmtree(Path(offline_settings.export_root) / "events")
    assert len({mail["Message-ID"] for mail in box.mails}) == len(box.mails) == 2


def test_rows_written_at_the_same_time_are_all_kept_and_none_twice(
    offline_settings: Settings, catalog: Catalog
) -> None:
    for content in ("a", "b", "c"):
        publish_content(open_target(offline_settings), content)
    versions = published(open_target(offline_settings))
    start = threading.Barrier(3)

    def record(part: int) -> None:
        start.wait()
        outbox.record_versions(load_catalog(offline_settings), versions[part:] + versions[:1], channels.Channels())

    threads = [threading.Thread(target=record, args=(part,)) for part in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    rows = load_catalog(offline_settings).load_table("ops.export_outbox").scan().to_arrow()["idempotency_key"]
    assert sorted(rows.to_pylist()) == [f"events/{WEEK}/v{number}" for number in (1, 2, 3)]


def test_the_report_reads_a_file_as_it_was_written_and_quotes_no_row(
    offline_settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DuckDB guesses a dialect from the first 20,480 lines; the first quoted cell comes later here."""
    monkeypatch.setattr(report.thrift, "connect", lambda settings: nullcontext())
    monkeypatch.setattr(report, "_count", lambda *_: 0)
    target = open_target(offline_settings)
    columns = [{"name": name, "type": "string", "nulls": 0} for name in ("channel", "net_price")]
    lines = replace(draft(WEEK), dataset="order_lines", columns=columns)
    file = stage(target, "channel,net_price\n" + "store,1.00\n" * 30_000 + '"web, ""shop""",2.00\n')
    publish(target, file, lines, [], file.parent)
    page = Path(report.write(offline_settings, IsoWeek.parse(WEEK))).read_text()
    assert '<th scope="row">web, &#34;shop&#34;</th>' in page
    assert '<td class="number">30,000</td>' in page

    file = stage(target, "channel,net_price\nstore,4111-1111\n")
    publish(target, file, replace(lines, week=NEXT_WEEK), [], file.parent)
    with pytest.raises(UserError, match=r"could not be made of the published files \(ConversionException\)") as refusal:
        report.write(offline_settings, IsoWeek.parse(NEXT_WEEK))
    assert "4111" not in str(refusal.value)


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
        ({"LAKEHOUSE_SMTP_PORT": "smtp"}, "LAKEHOUSE_SMTP_PORT is not a port number"),
        ({"LAKEHOUSE_SMTP_PORT": "65536"}, "LAKEHOUSE_SMTP_PORT is not a port number"),
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
        ({"LAKEHOUSE_WEBHOOK_URL": "example.com/hook"}, "LAKEHOUSE_WEBHOOK_URL is not a URL"),
        ({"LAKEHOUSE_WEBHOOK_URL": "https://host:port/x"}, "LAKEHOUSE_WEBHOOK_URL is not a URL"),
        ({"LAKEHOUSE_WEBHOOK_URL": "https://host:65536/x"}, "LAKEHOUSE_WEBHOOK_URL is not a URL"),
        ({"LAKEHOUSE_WEBHOOK_URL": "http://[::1/x"}, "LAKEHOUSE_WEBHOOK_URL is not a URL"),
        ({"LAKEHOUSE_WEBHOOK_TOKEN": "one\n"}, "LAKEHOUSE_WEBHOOK_TOKEN holds characters that cannot be sent"),
    ],
)
def test_a_channel_that_cannot_work_is_refused(env: dict[str, str], words: str) -> None:
    with pytest.raises(UserError, match=words):
        channels.from_environment({**smtp_at(25), **env})


def test_a_channel_that_cannot_work_is_refused_before_anything_is_exported(
    offline_settings: Settings, catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cli, "run_export", failing)
    done = export_run(offline_settings, smtp_at(25) | {"LAKEHOUSE_SMTP_TO": "a"}, monkeypatch)
    assert "LAKEHOUSE_SMTP_TO holds no mail address" in str(done.exception)
