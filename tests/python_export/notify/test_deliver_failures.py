"""Runs that fail or are killed: a real mail server gets the mail, whatever else is broken, and it quotes no row."""

import json
import sqlite3
from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from python_common.errors import UserError
from python_common.locks import lease
from python_export.cli import run as cli
from python_export.notify import deliver
from python_export.readiness.issues import Withheld
from python_export.run import Exporter
from tests.support.disk import no_room_beyond
from tests.support.hostile_rows import failing
from tests.support.in_process import Command
from tests.support.notify import WEEK, Calls, Site
from tests.support.services.mail_server import Mailbox, smtp_at, text_of


@pytest.fixture
def export_run(site: Site, export: Command, monkeypatch: pytest.MonkeyPatch) -> Command:
    """Return a function that runs `export run` without a dbt project, with a step in the place of the export itself."""

    def run(env: dict[str, str], step: Callable[..., None], week: str = WEEK, *options: str) -> Result:
        monkeypatch.setattr(Exporter, "run", step)
        monkeypatch.setattr(cli, "parse", lambda project: None)
        monkeypatch.setattr(cli.declared, "load", lambda project: {})
        return export(site.settings, "run", "--week", week, *options, env=env)

    return run


def test_an_alert_is_sent_at_once_and_logged_if_no_channel_takes_it(
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


def test_failures_go_to_those_who_can_mend_them(site: Site, mailbox: Mailbox) -> None:
    site.publish("a")
    site.alert(mailbox.env | {"LAKEHOUSE_ALERT_TO": "operator@example.com"})
    assert [(mail["To"], mail["Subject"]) for mail in mailbox.mails] == [
        ("operator@example.com", f"{WEEK}: the weekly files failed"),
        ("a@example.com, b@example.com", f"{WEEK}: 1 file published"),
    ]


def test_an_alert_never_takes_the_place_of_the_error(
    site: Site, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(deliver, "notify", failing)
    site.alert({})
    assert caplog.messages[-1].startswith("not delivered: Unexpected error: ValueError.")


@pytest.mark.parametrize("broken", ["catalog locked", "catalog gone", "home not writable", "disk full"])
def test_an_alert_is_sent_where_nothing_can_be_written(
    site: Site,
    mailbox: Mailbox,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    broken: str,
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
        elif broken == "catalog gone":
            database.unlink()
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
    assert {
        "catalog locked": "is locked by another program",
        "catalog gone": "is missing",
        "home not writable": "cannot be written",
        "disk full": "cannot be used (EFBIG)",
    }[broken] in caplog.messages[-1]


def test_what_was_published_is_announced_when_the_report_fails(
    site: Site, mailbox: Mailbox, export_run: Command
) -> None:
    def publish_and_withhold(exporter: Exporter, *_: Any) -> None:
        exported = exporter.exported
        exported.published.append(site.publish("a"))
        exported.withheld.append(Withheld("orders", WEEK, "behind: payments at 2020-12-31 00:00:00 UTC"))

    done = export_run(mailbox.env, publish_and_withhold)
    assert (done.exit_code, type(done.exception)) == (1, UserError)
    assert "Thrift server at 127.0.0.1:1 does not answer" in str(done.exception)
    assert "events   2020-W53  v1" in done.stdout
    assert set(mailbox.subjects) == {
        f"{WEEK}: the weekly files failed",
        f"{WEEK}: 1 file published, 1 withheld",
    }


def test_a_run_that_ends_writes_its_metrics_and_a_failed_one_leaves_them(
    site: Site, export_run: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def publish(exporter: Exporter, *_: Any) -> None:
        exporter.exported.published.append(site.publish("a"))

    monkeypatch.setattr(cli.page, "write", lambda *_: "")
    file = tmp_path / "export.prom"
    done = export_run({}, publish, WEEK, "--metrics-file", str(file), "--json")
    assert done.exit_code == 0
    [version] = json.loads(done.stdout)["published"]
    assert (version["dataset"], version["version"], version["rows"], version["unchanged"]) == ("events", 1, 1, False)
    assert version["path"].endswith("/events/2020-W53/v1/events_2020-W53_v1.csv")
    written = file.read_text()
    assert '\nlakehouse_export_rows{dataset="events"} 1.0\n' in written
    assert export_run({}, failing, WEEK, "--metrics-file", str(file)).exit_code == 1
    assert file.read_text() == written


def test_a_week_that_is_not_over_is_the_callers_to_know(mailbox: Mailbox, export_run: Command) -> None:
    done = export_run(mailbox.env, failing, "2999-W01")
    assert str(done.exception).startswith("2999-W01 is not over")
    assert mailbox.mails == []


def test_an_export_that_has_lost_its_lease_ends(site: Site, mailbox: Mailbox, export_run: Command) -> None:
    def lose_it(exporter: Exporter, *_: Any) -> None:
        lease.TABLE.change(site.catalog, lambda rows: {"weekly": replace(rows["weekly"], holder="elsewhere")})
        exporter.require()

    done = export_run(mailbox.env, lose_it)
    assert "and elsewhere " in str(done.exception)
    assert len(mailbox.mails) == 1


def test_a_channel_that_cannot_work_is_refused_before_anything_is_exported(export_run: Command) -> None:
    done = export_run(smtp_at(25) | {"LAKEHOUSE_SMTP_TO": "a"}, failing)
    assert "LAKEHOUSE_SMTP_TO holds no mail address" in str(done.exception)
