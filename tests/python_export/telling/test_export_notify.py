"""The outbox, on a real mail server and a real HTTP server: every version and notice is told of, and once."""

import shutil
import threading
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from pyiceberg.catalog import Catalog
from typer.testing import CliRunner

from lakehouse import backup
from lakehouse.catalog import load_catalog
from lakehouse.small_table import SmallTable
from python_export.cli import outbox as cli_outbox
from python_export.cli.run import app
from python_export.datasets.withheld import Withheld
from python_export.publishing.manifest import Manifest
from python_export.publishing.target import LocalTarget
from python_export.telling import outbox
from python_export.telling.outbox import Notice
from python_export.variables import Channels
from tests.python_export.telling.conftest import (
    NEXT_WEEK,
    NO_TIME,
    WEEK,
    Calls,
    Command,
    Lake,
    Mailbox,
    dead_smtp,
    text_of,
)
from tests.support.publishing import unlock


@pytest.fixture
def outbox_command(mailbox: Mailbox, monkeypatch: pytest.MonkeyPatch) -> Command:
    """Return a function that runs `export outbox` for a lake."""

    def run(lake: Lake, *arguments: str) -> Result:
        monkeypatch.setattr(cli_outbox, "from_environment", lambda env=None: lake.settings)
        monkeypatch.setattr(cli_outbox, "environment", lambda: mailbox.env)
        return CliRunner().invoke(app, ["outbox", *arguments])

    return run


@pytest.mark.usefixtures("published_to")
def test_a_week_is_one_mail_with_its_figures_and_is_told_once(
    lake: Lake, mailbox: Mailbox, exports_declared: dict[str, str]
) -> None:
    mailbox.env |= exports_declared
    lake.publish("note\na\n", WEEK)
    first = lake.publish("note\nb\n", NEXT_WEEK).manifest
    assert lake.tell(mailbox.env) == []
    assert mailbox.subjects == [f"{WEEK}: 1 file published", f"{NEXT_WEEK}: 1 file published"]
    mail = mailbox.mails[1]
    assert mail["X-Idempotency-Key"] == lake.key(f"events/{NEXT_WEEK}/v1")
    assert mail["To"] == "a@example.com, b@example.com"
    for kind in ("plain", "html"):
        text = text_of(mail, kind)
        # The figures of the week before stand beside those of the week.
        for words in (
            "events",
            "rows",
            "0.10",
            "+0.0 %",
            first.sha256,
            lake.target.address(f"events/{NEXT_WEEK}/v1/{first.file}"),
        ):
            assert words in text, (kind, words)

    # The same content is the same version, and nobody hears of it again.
    lake.publish("note\nb\n", NEXT_WEEK)
    assert lake.tell(mailbox.env) == []
    assert len(mailbox.mails) == 2
    lake.publish("note\nlate\n", NEXT_WEEK)
    assert lake.tell(mailbox.env) == []
    assert mailbox.mails[2]["Subject"] == f"{NEXT_WEEK}: 1 file published, 1 of them anew"
    assert "replaces v1" in text_of(mailbox.mails[2])
    assert {(entry.mail, entry.webhook) for entry in lake.entries} == {("delivered", "no channel")}


@pytest.mark.usefixtures("published_to")
def test_a_manifest_of_dbt_that_is_cut_off_holds_up_no_mail(
    lake: Lake, mailbox: Mailbox, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "cut").mkdir()
    (tmp_path / "cut" / "manifest.json").write_text('{"nodes": {')
    lake.publish("note\na\n", WEEK)
    assert lake.tell(mailbox.env | {"DBT_TARGET_PATH": str(tmp_path / "cut")}) == []
    assert mailbox.subjects == [f"{WEEK}: 1 file published"]
    assert "figures are left out of messages" in capsys.readouterr().out


def test_links_are_those_of_the_web(lake: Lake, mailbox: Mailbox) -> None:
    lake.settings = lake.settings.changed(export_url="https://files.example.com/weekly/")
    lake.publish("a")
    lake.tell(mailbox.env)
    [mail] = mailbox.mails
    file = f"https://files.example.com/weekly/events/{WEEK}/v1/events_{WEEK}_v1.csv"
    page = f"https://files.example.com/weekly/reports/{WEEK}.html"
    for link in (file, page):
        assert link in text_of(mail)
        assert f'<a href="{link}">' in text_of(mail, "html")


def test_a_webhook_gets_each_version_with_its_key(lake: Lake, webhook: Calls) -> None:
    for content in ("a", "b"):
        manifest = lake.publish(content).manifest
    url = f"{webhook.url}/secret-path"
    env = {"LAKEHOUSE_WEBHOOK_URL": url, "LAKEHOUSE_WEBHOOK_TOKEN": "secret-token", **NO_TIME}
    webhook.status = 500
    [problem] = lake.tell(env)
    assert problem.startswith("The webhook at http://127.0.0.1 answered 500")
    assert "secret" not in problem
    webhook.status = 200
    assert lake.tell(env) == []

    assert [headers["Idempotency-Key"] for headers, _ in webhook.taken] == [
        lake.key(f"events/{WEEK}/v{number}") for number in (1, 2)
    ]
    headers, body = webhook.taken[1]
    assert headers["Authorization"] == "Bearer secret-token"
    assert (body["version"], body["supersedes"], body["sha256"]) == (2, 1, manifest.sha256)


def test_a_notice_stands_in_the_mail_of_its_week_and_is_told_once(lake: Lake, mailbox: Mailbox, webhook: Calls) -> None:
    env = mailbox.env | {"LAKEHOUSE_WEBHOOK_URL": f"{webhook.url}/hook"}
    lake.publish("a")
    behind = Withheld("orders", WEEK, "behind: payments at 2020-12-31 00:00:00 UTC")
    told = [Notice(WEEK, behind.dataset, str(behind)), Notice(WEEK, None, "warning: the field phone has no class")]
    for notices in (told, told, [Notice(WEEK, None, "warning: another")]):
        assert lake.tell(env, notices) == []
    first, second = mailbox.mails
    assert (first["Subject"], second["Subject"]) == (
        f"{WEEK}: 1 file published, 1 withheld, 1 warning",
        f"{WEEK}: 1 warning",
    )
    text, html = (text_of(first, kind) for kind in ("plain", "html"))
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


def test_a_crash_after_the_mail_sends_it_again_as_the_same_one(
    lake: Lake, mailbox: Mailbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.publish("a")
    with monkeypatch.context() as crash, pytest.raises(KeyboardInterrupt):
        crash.setattr(outbox, "settle", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        lake.tell(mailbox.env)
    for _ in range(2):
        assert lake.tell(mailbox.env) == []
    assert len(mailbox.mails) == 2
    for header in ("Message-ID", "X-Idempotency-Key", "Date"):
        assert mailbox.mails[0][header] == mailbox.mails[1][header]


def test_a_restored_lake_keeps_what_was_published_since_and_tells_of_it_under_the_same_key(
    lake: Lake, mailbox: Mailbox, tmp_path: Path
) -> None:
    saved = tmp_path / "tables.json"
    lake.publish("note\na\n", WEEK)
    assert lake.tell(mailbox.env) == []
    backup.save(lake.catalog, saved)
    shutil.copytree(lake.settings.warehouse, tmp_path / "copy")
    lake.publish("note\nlate\n", WEEK)
    assert lake.tell(mailbox.env) == []

    shutil.rmtree(lake.settings.warehouse)
    (tmp_path / "catalog.db").unlink()
    shutil.copytree(tmp_path / "copy", lake.settings.warehouse)
    lake.catalog = load_catalog(lake.settings, create=True)
    backup.restore(lake.catalog, saved)
    # What the lake exports again is what is there, or comes after it.
    assert lake.publish("note\nlate\n", WEEK).unchanged
    assert lake.tell(mailbox.env) == []
    assert lake.publish("note\nother\n", WEEK).manifest.version == 3
    assert lake.tell(mailbox.env) == []
    told = [mail["X-Idempotency-Key"] for mail in mailbox.mails]
    assert told == [lake.key(f"events/{WEEK}/v{version}") for version in (1, 2, 2, 3)]


def test_a_version_that_was_taken_away_and_published_again_is_told(lake: Lake, mailbox: Mailbox) -> None:
    for content in ("a", "b", "b"):
        lake.publish(content)
        assert lake.tell(mailbox.env) == []
        unlock(Path(lake.settings.export_root))
        shutil.rmtree(Path(lake.settings.export_root) / "events")
    assert len({mail["Message-ID"] for mail in mailbox.mails}) == len(mailbox.mails) == 2


def test_one_damaged_manifest_holds_up_no_mail_and_told_ones_are_not_read_again(
    lake: Lake, mailbox: Mailbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    for week in ("2020-W51", "2020-W52", WEEK):
        lake.publish("a", week)
    manifest = lake.target.root / "events" / "2020-W52" / "v1" / "manifest.json"
    unlock(manifest.parent)
    manifest.write_text("{")
    [problem] = lake.tell(mailbox.env)
    assert "events/2020-W52/v1/manifest.json is missing or damaged" in problem
    assert [mail["Subject"][:8] for mail in mailbox.mails] == ["2020-W51", WEEK]

    read, paths = LocalTarget.read, []
    monkeypatch.setattr(LocalTarget, "read", lambda self, path: paths.append(path) or read(self, path))
    lake.publish("a", NEXT_WEEK)
    paths.clear()
    lake.tell(mailbox.env)
    # Its own, that of the week before, and the damaged one.
    assert {path.split("/")[1] for path in paths} == {NEXT_WEEK, WEEK, "2020-W52"}


def test_without_a_channel_nothing_is_owed(lake: Lake, mailbox: Mailbox, capsys: pytest.CaptureFixture[str]) -> None:
    lake.publish("a")
    assert lake.tell({}) == []
    assert "nobody is told" in capsys.readouterr().out
    assert lake.tell(mailbox.env) == []
    assert mailbox.mails == []


def test_rows_written_at_the_same_time_are_all_kept_and_none_twice(lake: Lake) -> None:
    for content in ("a", "b", "c"):
        lake.publish(content)
    start = threading.Barrier(3)

    def record() -> None:
        start.wait()
        outbox.record_versions(load_catalog(lake.settings), lake.target, Channels(), [])

    threads = [threading.Thread(target=record) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    rows = load_catalog(lake.settings).load_table("ops.export_outbox").scan("kind = 'version'").to_arrow()
    assert sorted(rows["idempotency_key"].to_pylist()) == [lake.key(f"events/{WEEK}/v{number}") for number in (1, 2, 3)]


def test_a_trial_to_another_root_tells_nobody_until_it_is_adopted(
    lake: Lake, mailbox: Mailbox, outbox_command: Command, capsys: pytest.CaptureFixture[str]
) -> None:
    trial = replace(lake, settings=lake.settings.changed(export_root=f"{lake.settings.export_root}-trial"))
    for root, content in ((lake, "a"), (trial, "other")):
        outbox.know_root(root.catalog, root.target)
        root.publish(content)
        assert root.tell(mailbox.env) == []
    assert "readers are told of another export root" in capsys.readouterr().out
    assert len(mailbox.mails) == 1
    states = {entry.export_root: (entry.mail, entry.sha256) for entry in lake.entries}
    assert states[lake.target.address("")][0] == "delivered"
    assert states[trial.target.address("")][0] == "another export root"
    assert len({sha256 for _, sha256 in states.values()}) == 2

    assert outbox_command(trial, "adopt").exit_code == 0
    trial.publish("late")
    assert trial.tell(mailbox.env) == []
    assert trial.target.address("") in text_of(mailbox.mails[1])
    assert len(mailbox.mails) == 2
    # The other root's readers are told by the runs for it, of its notices too.
    lake.publish("late")
    assert lake.tell({}) == []
    assert len(lake.tell(mailbox.env | dead_smtp(), [Notice(WEEK, None, "warning: late")])) == 1
    assert trial.tell(mailbox.env) == []
    assert len(mailbox.mails) == 2
    assert lake.tell(mailbox.env) == []
    assert mailbox.mails[2]["Subject"] == f"{WEEK}: 1 warning"


def test_rows_are_listed_tried_again_and_dropped(lake: Lake, mailbox: Mailbox, outbox_command: Command) -> None:
    for week in (WEEK, NEXT_WEEK):
        lake.publish("a", week)
    lake.tell(mailbox.env | dead_smtp())
    key, other = (lake.key(f"events/{week}/v1") for week in (WEEK, NEXT_WEEK))
    listed = outbox_command(lake, "list").output
    assert key in listed
    assert "does not answer (Connection refused)" in listed

    assert outbox_command(lake, "drop", other).exit_code == 0
    assert lake.tell(mailbox.env) == []
    assert mailbox.subjects == [f"{WEEK}: 1 file published"]
    assert key not in outbox_command(lake, "list").output
    assert other in outbox_command(lake, "list", "--all").output

    assert outbox_command(lake, "retry", key, other).exit_code == 0
    assert [mail["Subject"][:8] for mail in mailbox.mails] == [WEEK, WEEK, NEXT_WEEK]
    unknown = outbox_command(lake, "retry", "events/v1")
    assert str(unknown.exception).startswith("The outbox has no row events/v1")


def test_an_outbox_of_an_older_release_gets_the_columns_it_lacks(catalog: Catalog) -> None:
    columns = outbox.TABLE.columns
    older = replace(outbox.TABLE, columns=columns[:-2])

    def row(table: SmallTable, key: str) -> dict[str, Any]:
        return dict.fromkeys(name for name, *_ in table.columns) | {columns[0][0]: key}

    older.change(catalog, lambda rows: {"old": row(older, "old")})
    assert outbox.TABLE.rows(catalog)["old"][columns[-1][0]] is None
    new = row(outbox.TABLE, "new") | {"last_error": "no"} | {name: "said" for name, *_ in columns[-2:]}
    outbox.TABLE.change(catalog, lambda rows: {**rows, "new": new})
    stored = outbox.TABLE.rows(catalog)
    assert set(stored) == {"old", "new"}
    assert stored["new"] == new


OLD_COLUMNS = outbox.TABLE.columns[:-2]


def of_the_last_release(catalog: Catalog, state: str, manifest: Manifest) -> None:
    """Put the outbox of the release that knew no export roots in the place of ours."""
    catalog.drop_table("ops.export_outbox")
    now = datetime.now(UTC)
    entry = outbox.Entry(
        manifest.path, "version", manifest.week, manifest.dataset, 1, manifest.sha256, None, now, state, "no channel"
    )
    row = {name: asdict(entry)[name] for name, _, _ in OLD_COLUMNS}
    SmallTable("ops.export_outbox", OLD_COLUMNS).change(catalog, lambda _: {manifest.path: row})


@pytest.mark.parametrize(("state", "mails"), [("delivered", 0), ("pending", 1)])
def test_an_outbox_of_the_last_release_is_carried_on(lake: Lake, mailbox: Mailbox, state: str, mails: int) -> None:
    of_the_last_release(lake.catalog, state, lake.publish("a").manifest)
    assert lake.tell(mailbox.env) == []
    assert len(mailbox.mails) == mails
    lake.publish("b")
    assert lake.tell(mailbox.env) == []
    assert len(mailbox.mails) == mails + 1
    assert [entry.idempotency_key for entry in lake.entries] == [
        lake.key(f"events/{WEEK}/v{number}") for number in (1, 2)
    ]


def test_the_first_run_with_an_outbox_does_not_tell_all_history(lake: Lake, mailbox: Mailbox) -> None:
    old = lake.publish("a").manifest
    unlock(lake.target.root)
    text = (lake.target.root / old.path / "manifest.json").read_text()
    (lake.target.root / old.path / "manifest.json").write_text(text.replace(old.created_at, "2020-01-01T00:00:00Z"))
    lake.catalog.drop_table("ops.export_outbox")
    outbox.know_root(lake.catalog, lake.target)
    lake.publish("b")
    assert lake.tell(mailbox.env) == []
    [mail] = mailbox.mails
    assert mail["X-Idempotency-Key"] == lake.key(f"events/{WEEK}/v2")
