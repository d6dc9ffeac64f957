"""The outbox, on a real mail server and a real HTTP server: every version and notice is announced, and once."""

import json
import re
import shutil
from dataclasses import replace
from datetime import UTC, datetime
from email.message import EmailMessage
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from python_common.catalog.catalog import load_catalog
from python_common.config.environment import PROJECT_ROOT
from python_common.weeks import IsoWeek
from python_export.notify import index, messages, outbox, page
from python_export.notify.exported import Exported
from python_export.publishing.manifest import published
from python_export.publishing.publish import withdraw
from python_export.variables import Channels
from python_jobs import fork
from python_jobs.erase import cli as cli_erasure
from python_jobs.erase.job import Erasure
from tests.support.hostile_rows import failing
from tests.support.in_process import Command
from tests.support.notify import BEHIND, NEXT_WEEK, WEEK, Calls, Site, warning, withheld
from tests.support.publishing import unlock
from tests.support.services.mail_server import Mailbox, dead_smtp, text_of
from tests.support.versions import publish_content


@pytest.mark.usefixtures("published_to")
def test_a_week_is_one_mail_with_its_figures(site: Site, mailbox: Mailbox, exports_declared: dict[str, str]) -> None:
    mailbox.env |= exports_declared
    site.publish("note\na\n", WEEK)
    first = site.publish("note\nb\n", NEXT_WEEK).manifest
    assert site.notify(mailbox.env) == []
    assert mailbox.subjects == [f"{WEEK}: 1 file published", f"{NEXT_WEEK}: 1 file published"]
    mail = mailbox.mails[1]
    assert mail["X-Idempotency-Key"] == site.key(f"events/{NEXT_WEEK}/v1")
    assert mail["To"] == "a@example.com, b@example.com"
    for kind in ("plain", "html"):
        text = text_of(mail, kind)
        # The figures of the week before are next to those of the week.
        address = site.target.address(f"events/{NEXT_WEEK}/v1/{first.file}")
        for words in ("events", "rows", "0.10", "+0.0 %", first.sha256, address):
            assert words in text, (kind, words)

    # The same content is the same version, and is not announced again.
    site.publish("note\nb\n", NEXT_WEEK)
    assert site.notify(mailbox.env) == []
    assert len(mailbox.mails) == 2
    site.publish("note\nlate\n", NEXT_WEEK)
    assert site.notify(mailbox.env) == []
    assert mailbox.mails[2]["Subject"] == f"{NEXT_WEEK}: 1 file published, 1 of them again"
    assert "replaces v1" in text_of(mailbox.mails[2])
    assert {(entry.mail, entry.webhook) for entry in site.entries} == {("delivered", "no channel")}


def test_links_are_those_of_the_web(site: Site, mailbox: Mailbox) -> None:
    def publish_as_gzip(content: str) -> tuple[EmailMessage, str]:
        version = publish_content(site.target, content, formats=["csv.gz"]).manifest
        site.notify(mailbox.env)
        return mailbox.mails[-1], f"{version.path}/{version.file}"

    without_links, path = publish_as_gzip("a")
    file = site.target.address(path)
    for kind in ("plain", "html"):
        assert re.findall(rf"{re.escape(file)}[.\w]*", text_of(without_links, kind)) == [file, f"{file}.gz"]
    site.settings = site.settings.changed(export_url="https://files.example.com/weekly/")
    mail, path = publish_as_gzip("b")
    file = f"https://files.example.com/weekly/{path}"
    page = f"https://files.example.com/weekly/reports/{WEEK}.html"
    for link in (file, f"{file}.gz", page):
        assert link in text_of(mail)
        assert f'<a href="{link}">' in text_of(mail, "html")


def test_the_documented_call_is_what_a_webhook_gets(site: Site, webhook: Calls) -> None:
    example = json.loads(re.findall(r"```json\n(.*?)```", (PROJECT_ROOT / "docs/operations.md").read_text(), re.S)[0])
    site.settings = site.settings.changed(export_url="https://files.example.com/weekly/")
    first = publish_content(site.target, "note\na\n", formats=["csv.gz"], delivery=f"{WEEK}-1").manifest
    site.publish("note\nb\n")
    withdraw(site.target, f"events/{WEEK}/v2", "a wrong price")
    index.write(site.target)
    assert site.notify({"LAKEHOUSE_WEBHOOK_URL": webhook.url}, [withheld("orders", BEHIND.message)]) == []
    [(_, body)] = webhook.received
    text = json.dumps(body).replace(site.target.address(""), "/srv/exports")
    # What is another each time, each day, or with another zlib.
    body = json.loads(text.replace(first.file.partition("/")[0], "lakehouse-8c41d9e07b52fa36"))
    for this, documented in ((body, example), *zip(body["versions"], example["versions"], strict=True)):
        this |= {name: documented[name] for name in this.keys() & {"at", "created_at"}}
    body["withdrawn"][0]["text"] = re.sub("on [0-9-]+", "on 2021-01-05", body["withdrawn"][0]["text"])
    [file], [documented] = (call["versions"][0]["files"] for call in (body, example))
    file |= {name: documented[name] for name in ("bytes", "sha256")}
    assert body == example


def test_a_notice_is_in_the_mail_of_its_week_once(site: Site, mailbox: Mailbox, webhook: Calls) -> None:
    env = mailbox.env | {"LAKEHOUSE_WEBHOOK_URL": f"{webhook.url}/hook"}
    site.publish("a")
    recorded = [withheld("orders", BEHIND.message), warning("the field phone has no class")]
    for notices in (recorded, recorded, [warning("another")]):
        assert site.notify(env, notices) == []
    assert mailbox.subjects == [f"{WEEK}: 1 file published, 1 withheld, 1 warning", f"{WEEK}: 1 warning"]
    text, html = (text_of(mailbox.mails[0], kind) for kind in ("plain", "html"))
    for notice in recorded:
        assert notice.message in text.splitlines()
        assert f">{notice.message}<" in html
    calls = {headers["Idempotency-Key"]: body for headers, body in webhook.received}
    assert len(calls) == len(webhook.received) == 2
    assert [len(body["versions"]) for body in calls.values()] == [1, 0]
    assert [{(one["dataset"], one["text"]) for one in body["notices"]} for body in calls.values()] == [
        {(notice.object or None, notice.message) for notice in recorded},
        {(None, "warning: another")},
    ]


def test_a_kill_after_sending_sends_the_same_message_again(site: Site, mailbox: Mailbox, webhook: Calls) -> None:
    for content in ("a", "b"):
        site.publish(content)
    calls = {"LAKEHOUSE_WEBHOOK_URL": webhook.url}
    for env in (mailbox.env | calls, calls):
        site.notify_and_die(env)
    for _ in range(2):
        assert site.notify(mailbox.env | calls) == []
    [(first, body), (second, again)] = webhook.received
    assert (first["Idempotency-Key"], body) == (second["Idempotency-Key"], again)
    assert len(mailbox.mails) == 2
    for header in ("Message-ID", "X-Idempotency-Key", "Date"):
        assert mailbox.mails[0][header] == mailbox.mails[1][header]


def test_a_restored_lake_announces_under_the_same_keys(site: Site, mailbox: Mailbox, tmp_path: Path) -> None:
    site.publish("note\na\n", WEEK)
    assert site.notify(mailbox.env) == []
    shutil.copy(tmp_path / "catalog.db", tmp_path / "saved.db")
    shutil.copytree(site.settings.warehouse, tmp_path / "copy")
    site.publish("note\nlate\n", WEEK)
    assert site.notify(mailbox.env) == []

    shutil.rmtree(site.settings.warehouse)
    shutil.copytree(tmp_path / "copy", site.settings.warehouse)
    shutil.copy(tmp_path / "saved.db", tmp_path / "catalog.db")
    site.catalog = load_catalog(site.settings)
    # What the lake exports again is what is there, or comes after it.
    assert site.publish("note\nlate\n", WEEK).unchanged
    assert site.notify(mailbox.env) == []
    assert site.publish("note\nother\n", WEEK).manifest.version == 3
    assert site.notify(mailbox.env) == []
    keys = [mail["X-Idempotency-Key"] for mail in mailbox.mails]
    assert keys == [site.key(f"events/{WEEK}/v{version}") for version in (1, 2, 2, 3)]


def test_a_version_that_was_published_again_is_announced(site: Site, mailbox: Mailbox) -> None:
    for content in ("a", "b", "b"):
        site.publish(content)
        assert site.notify(mailbox.env) == []
        unlock(Path(site.settings.export_root))
        shutil.rmtree(Path(site.settings.export_root) / "events")
    assert len({mail["Message-ID"] for mail in mailbox.mails}) == len(mailbox.mails) == 2


def test_a_damaged_manifest_holds_up_no_other_mail(site: Site, mailbox: Mailbox) -> None:
    """It is named by each run, unless its version is delivered."""
    for week in ("2020-W51", "2020-W52", WEEK):
        site.publish("a", week)
    for week in ("2020-W52", "2020-W51"):
        manifest = Path(site.target.address(f"events/{week}/v1/manifest.json"))
        unlock(manifest.parent)
        manifest.write_text("{")
        [error] = site.notify(mailbox.env)
        assert "events/2020-W52/v1/manifest.json is missing or damaged" in error
        assert [mail["Subject"][:8] for mail in mailbox.mails] == ["2020-W51", WEEK]


def test_without_a_channel_nothing_is_owed(site: Site, mailbox: Mailbox, caplog: pytest.LogCaptureFixture) -> None:
    site.publish("a")
    assert site.notify({}) == []
    assert "no notification: neither" in caplog.text
    assert site.notify(mailbox.env) == []
    assert mailbox.mails == []


def test_versions_of_a_root_that_is_not_announced_are_not(
    site: Site, mailbox: Mailbox, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "link").symlink_to(site.settings.export_root)
    announced = mailbox.env | {"LAKEHOUSE_NOTIFY_ROOT": str(tmp_path / "link")}
    trial = replace(site, settings=site.settings.changed(export_root=f"{site.settings.export_root}-trial"))
    for root, content in ((site, "a"), (trial, "other")):
        root.publish(content)
        assert root.notify(announced, [warning(content)]) == []
    assert f"no notification: {trial.target.address('')} is not {tmp_path / 'link'}" in caplog.text
    [mail] = mailbox.mails
    assert {entry.mail for entry in site.entries} == {"delivered"}
    assert trial.target.address("") not in text_of(mail)

    # Each root has readers, and its rows wait for a run of that root.
    trial.publish("late")
    assert len(trial.notify(mailbox.env | dead_smtp(), [warning("late")])) == 1
    assert site.notify(mailbox.env) == []
    assert len(mailbox.mails) == 1
    assert trial.notify(mailbox.env) == []
    assert mailbox.mails[1]["Subject"] == f"{WEEK}: 2 files published, 1 of them again, 1 warning"


def test_a_notice_is_sent_again_when_it_returns(site: Site, mailbox: Mailbox) -> None:
    def notified(*texts: str) -> int:
        before = len(mailbox.mails)
        assert site.notify(mailbox.env, map(warning, texts), weeks=[WEEK]) == []
        return len(mailbox.mails) - before

    letters = "{} of {} records until 2020-12-31 00:00:00 UTC are dead letters"
    assert notified(letters.format("30", "1,000")) == 1
    # Another number is no news, another name is.
    assert notified(letters.format("900,000", "1,000,000")) == 0
    assert notified(letters.format("900,000", "1,000,000"), "v2 of other") == 1
    assert notified("v2 of other", "v3 of other") == 1
    # Mended, and it comes back; the other one has stayed.
    assert notified(letters.format("30", "1,000"), "v2 of other") == 1
    assert len({mail["X-Idempotency-Key"] for mail in mailbox.mails}) == len(mailbox.mails)
    assert len({mail["Message-ID"] for mail in mailbox.mails}) == len(mailbox.mails)
    # A run that failed, or was for another week, does not know what is mended.
    site.alert(mailbox.env)
    assert site.notify(mailbox.env, weeks=[NEXT_WEEK]) == []
    assert notified(letters.format("30", "1,000"), "v2 of other") == 0


def test_an_undelivered_notice_waits_though_it_is_mended(site: Site, mailbox: Mailbox) -> None:
    assert len(site.notify(mailbox.env | dead_smtp(), [warning("no")], weeks=[WEEK])) == 1
    assert site.notify(mailbox.env, weeks=[WEEK]) == []
    assert mailbox.subjects == [f"{WEEK}: 1 warning"]
    assert site.notify(mailbox.env, weeks=[WEEK]) == []
    assert site.notify(mailbox.env, [warning("no")], weeks=[WEEK]) == []
    assert len(mailbox.mails) == 2


@pytest.mark.usefixtures("published_to")
def test_a_withdrawn_version_is_announced_as_withdrawn(site: Site, mailbox: Mailbox, webhook: Calls) -> None:
    env = mailbox.env | {"LAKEHOUSE_WEBHOOK_URL": webhook.url}
    manifest = site.publish("note\na\n").manifest
    assert site.notify(env) == []
    site.publish("note\nb\n")
    # The second is not announced when it is withdrawn.
    assert len(site.notify(env | dead_smtp() | {"LAKEHOUSE_WEBHOOK_URL": "http://127.0.0.1:1"})) == 2
    for version in (1, 2):
        withdraw(site.target, f"events/{WEEK}/v{version}", "a person was erased whose rows it held")
    site.publish("note\nc\n")
    for _ in range(2):
        assert site.notify(env) == []
    assert mailbox.subjects[1:] == [f"{WEEK}: 1 file published, 1 of them again, 2 files withdrawn"]
    text = text_of(mailbox.mails[1])
    for version in (1, 2):
        assert f"events/{WEEK}/v{version} was withdrawn on {datetime.now(UTC):%Y-%m-%d}: a person was erased" in text
    assert [
        {name: [version["version"] for version in body[name]] for name in ("versions", "withdrawn")}
        for _, body in webhook.received
    ] == [{"versions": [1], "withdrawn": []}, {"versions": [3], "withdrawn": [1, 2]}]
    withdrawn = webhook.received[1][1]["withdrawn"][0]
    assert (withdrawn["dataset"], withdrawn["sha256"]) == ("events", manifest.sha256)
    assert withdrawn["path"] == site.target.address(manifest.path)
    states = {entry.idempotency_key: entry.mail for entry in site.entries}
    of_versions = [states[site.key(f"events/{WEEK}/v{version}")] for version in (1, 2, 3)]
    assert of_versions == ["delivered", "withdrawn", "delivered"]
    assert outbox.missing_versions(site.catalog, site.target) == []


def test_an_erasure_announces_what_it_withdrew(site: Site, mailbox: Mailbox, monkeypatch: pytest.MonkeyPatch) -> None:
    def erase(*_: object) -> Exported:
        withdraw(site.target, f"events/{WEEK}/v1", "a person was erased whose rows it held")
        return Exported(IsoWeek.parse(WEEK), published=[site.publish("b")])

    site.publish("a")
    assert site.notify(mailbox.env) == []
    monkeypatch.setattr(Erasure, "run", erase)
    monkeypatch.setattr(cli_erasure, "from_environment", lambda env: site.settings)
    monkeypatch.setattr(cli_erasure, "environment", lambda: mailbox.env)
    done = CliRunner().invoke(cli_erasure.app, ["--subject", "customer=42", "--published"])
    assert done.exit_code == 0, done.exception
    assert mailbox.subjects[1:] == [f"{WEEK}: 1 file published, 1 of them again, 1 file withdrawn"]


def test_a_version_withdrawn_by_name_is_announced(
    site: Site, mailbox: Mailbox, export: Command, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def run(version: str, *options: str) -> Result:
        arguments = ("withdraw", "events", "--week", WEEK, "--version", version, "--reason", "a wrong price", *options)
        return export(site.settings, *arguments, env=mailbox.env)

    def withdraw_without_a_report(*given: str) -> None:
        # So a kill here leaves no wrong figures.
        assert not report.exists()
        withdraw(*given)

    for content in ("note\na\n", "note\nb\n"):
        site.publish(content)
    assert site.notify(mailbox.env) == []
    assert "There is no v3 of events" in str(run("v3").exception)
    previewed = run("v2", "--dry-run")
    assert (previewed.exit_code, previewed.stdout.splitlines()[1].split()) == (0, ["events", WEEK, "2", "1", "1"])
    assert [version.version for version in published(site.target)] == [1, 2]

    report = Path(site.target.address(f"reports/{WEEK}.html"))
    monkeypatch.setattr(page.publish, "withdraw", withdraw_without_a_report)
    # Whatever keeps the report from being written again, readers are notified.
    monkeypatch.setattr(page.thrift, "connect", failing)
    site.target.put(f"reports/{WEEK}.html", b"figures of v2")
    done = run("v2")
    assert (done.exit_code, done.stdout) == (0, previewed.stdout)
    assert f"reports from {WEEK} on are missing until the next `lakehouse export run`" in caplog.text
    assert not report.exists()
    assert f"events/{WEEK}/v2 was withdrawn on {datetime.now(UTC):%Y-%m-%d}: a wrong price" in text_of(mailbox.mails[1])
    versions = json.loads(site.target.read("versions.json"))["datasets"]["events"]
    assert [(version["version"], "withdrawn" in version) for version in versions] == [(2, True), (1, False)]
    mailbox.refused_week = WEEK
    last = run("v1", "--json")
    assert last.exit_code == 3
    [withdrawn] = json.loads(last.stdout)
    assert withdrawn == {"dataset": "events", "week": WEEK, "version": 1, "rows": 1, "newest_left": None}


def test_every_channel_has_a_column_a_fork_and_a_sender() -> None:
    channels = [name for name, field in Channels.model_fields.items() if field.alias is None]
    assert channels == [*outbox.CHANNELS.values()]
    assert messages.SENT_BY.keys() == outbox.CHANNELS.keys()
    assert Channels.of(dict.fromkeys(fork.DISABLED_VARIABLES, "")) == Channels()


def test_the_first_run_with_an_outbox_announces_all_history(site: Site, mailbox: Mailbox) -> None:
    old = site.publish("a").manifest
    text = site.target.read(f"{old.path}/manifest.json").decode()
    site.target.put(f"{old.path}/manifest.json", text.replace(old.created_at, "2020-01-01T00:00:00Z").encode())
    site.publish("b")
    assert site.notify(mailbox.env) == []
    [mail] = mailbox.mails
    assert mail["X-Idempotency-Key"] == site.key(f"events/{WEEK}/v2")
