"""The complete run on a real Thrift server and real dbt: from a bronze table with hostile values to a published CSV."""

import csv
import json
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import pytest
import yaml
from pyiceberg.exceptions import NoSuchTableError
from typer.testing import CliRunner

from python_common.errors import UserError
from python_export.cli.run import app
from python_export.csv import write
from python_export.datasets import contract
from python_export.publishing import publish
from python_export.publishing.publish import Published
from python_export.publishing.target import open_target
from python_export.publishing.versions import tag_name
from tests.support.export_run import EVENTS_YML, SCHEMA_NAME, WEEK, Shop, in_next_week
from tests.support.hostile_rows import COLUMNS, GUARDED, MONDAY, WITH_NUL, hostile_rows, published_rows
from tests.support.in_process import Command
from tests.support.publishing import unlock


def file_of(published: Published) -> Path:
    return Path(published.file)


def test_hostile_values_are_published_and_written_again(
    shop: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("python_export.run.SPREADSHEET_ROWS", len(hostile_rows()))
    shop.land(*hostile_rows(), in_next_week(1000), (1001, MONDAY - timedelta(milliseconds=1), *[None] * 6))

    published = shop.export()

    expected, root = published_rows(), Path(shop.settings.export_root)
    version = root / "events" / "2020-W53" / "v1"
    assert file_of(published) == version / published.manifest.file
    rows = len(hostile_rows())
    assert f"events: of {rows} rows a spreadsheet shows {rows - 1}" in caplog.messages
    assert not list((root / ".staging").glob("*/"))
    manifest = json.loads((version / "manifest.json").read_text())
    gifts = [row for row in expected if row[7]]
    no_gifts = sum(row[7] is False for row in expected)
    bare = sum(row[4] is None for row in gifts)
    reasons = {"no gift": no_gifts, "no tiny": bare, "other": len(gifts) - bare}
    made = {
        "window_start": "2020-12-28T00:00:00Z",
        "window_end": "2021-01-04T00:00:00Z",
        "formula_escaped": {"note": GUARDED},
        "nul_removed": {"note": WITH_NUL},
        "source_snapshot_id": str(
            shop.catalog.load_table((SCHEMA_NAME, "exp_weekly__events")).current_snapshot().snapshot_id
        ),
        "dbt_invocation_id": json.loads(shop.project.manifest_path.read_text())["metadata"]["invocation_id"],
        "quarantined_by_reason": {reason: count for reason, count in reasons.items() if count},
        "quarantined": len(gifts) + no_gifts,
        "late": no_gifts,
        "dead_letters": 0,
        "warnings": [
            "1 cells of note are longer than the 32,767 characters of a spreadsheet's cell",
            f"NUL was taken out of {WITH_NUL} cells of note",
        ],
    }
    assert {name: manifest[name] for name in made} == made
    assert_described(file_of(published).parent)

    files = data_files(published)
    assert len(files) == 3
    assert rewritten(shop, monkeypatch, tmp_path / "again") == files
    assert "other bytes" not in caplog.text
    unlock(version)
    described = version / "manifest.json"
    described.write_text(described.read_text().replace(published.manifest.files[0].sha256, "0" * 64))
    assert rewritten(shop, monkeypatch, tmp_path / "again") == files
    assert "events/2020-W53/v1: a library of another release writes other bytes of the same rows" in caplog.messages


def rewritten(shop: Shop, monkeypatch: pytest.MonkeyPatch, to: Path) -> dict[str, bytes]:
    """Return the files of the week's versions, which are written again from the snapshots of the table."""
    monkeypatch.setattr("python_export.cli.versions.from_environment", lambda: shop.settings)
    arguments = ["verify", "--week", str(WEEK), "--rewrite-to", str(to), "--json"]
    checks = json.loads(CliRunner().invoke(app, arguments).stdout)
    assert {"path": f"events/{WEEK}/v1 written again", "issues": [], "note": ""} in checks
    return {file.name: file.read_bytes() for file in to.iterdir()}


def data_files(published: Published) -> dict[str, bytes]:
    """Return the CSV of a version, and its other formats."""
    files = [file_of(published).with_name(Path(one.file).name) for one in published.manifest.all_files]
    return {file.name: file.read_bytes() for file in files}


def assert_described(upload: Path) -> None:
    """The dictionary has the columns of the file, and there is a contract."""
    with (upload / "dictionary.csv").open(newline="", encoding="utf-8") as stream:
        fields = {row["name"]: row for row in csv.DictReader(stream)}
    assert list(fields) == COLUMNS
    assert fields["event_id"]["description"] == 'Number of the event, "quoted".'
    [schema] = yaml.safe_load((upload.parents[2] / contract.FILE).read_text())["schema"]
    assert schema["name"] == "events"


def test_same_data_is_one_version_and_late_data_the_next(
    shop: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [*hostile_rows(), in_next_week(1000)]
    shop.land(*rows)
    first = shop.export()
    files = shop.files()

    again = shop.export()
    assert again.unchanged
    assert again.file == first.file
    assert shop.files() == files

    shop.land(*rows, (2000, MONDAY, "late", *[None] * 5))
    second = shop.export()
    assert (second.manifest.version, second.manifest.supersedes) == (2, 1)
    assert [one.manifest.delivery for one in (first, second)] == ["2020-W53-1", "2020-W53-2"]
    assert second.manifest.rows == first.manifest.rows + 1
    assert second.manifest.difference == {"added": 1, "removed": 0, "changed": 0}
    assert file_of(first).read_bytes() == files[f"{first.manifest.path}/{first.manifest.file}"]
    # Expiry keeps the snapshots that have tags.
    target, table = open_target(shop.settings), shop.catalog.load_table((SCHEMA_NAME, "exp_weekly__events"))
    tags = {tag_name(target, one.manifest): int(one.manifest.source_snapshot_id) for one in (first, second)}
    assert tags.items() <= {name: ref.snapshot_id for name, ref in table.refs().items()}.items()
    assert rewritten(shop, monkeypatch, tmp_path / "again") == data_files(first) | data_files(second)

    publish.withdraw(target, second.manifest.path, "a wrong price")
    same = shop.run(with_build=False)
    assert (same.published, same.withheld, same.is_incomplete) == ([], [], False)
    [warning] = same.warnings
    assert warning.startswith("events/2020-W53/v2 had this content and was withdrawn")


def test_a_week_that_a_topic_has_not_passed_is_published(shop: Shop, export: Command) -> None:
    shop.land(*hostile_rows())
    reason = shop.withheld()
    assert reason.startswith("behind: shop.events at 2021-01-03 23:59:59 UTC (The topic 'shop.events' does not exist")
    assert shop.previewed() == ("never published", reason)
    [row] = json.loads(export(shop.settings, "status", "events", "--week", str(WEEK), "--json").stdout)
    assert row == {"dataset": "events", "week": str(WEEK), "verdict": "withhold", "why": reason} | dict.fromkeys(
        ("version", "export_root")
    )
    for unknown in (("2020-W53", "evnts"), ("2031-W01",)):
        error = export(shop.settings, "status", "--week", *unknown).exception
        assert str(error).startswith(f"ops.export_weeks has no row of {' '.join(reversed(unknown))}.")


def test_fewer_persons_than_required_withhold_the_week(shop: Shop) -> None:
    """Quantities represent persons, `is_gift` what singles them out; the row of NULLs has no person.

    The test fails on the first build.
    """
    with suppress(NoSuchTableError):
        shop.catalog.drop_table((SCHEMA_NAME, "exp_weekly__events"))
    shop.land(*hostile_rows(), in_next_week(1000))
    persons = {gift: {row[5] for row in hostile_rows() if row[7] is gift} for gift in (True, False)}
    fewest = min(map(len, persons.values()))
    with shop.edited(EVENTS_YML, "    columns:", f"    data_tests: [{few_persons(fewest + 1)}]\n    columns:"):
        assert shop.withheld().startswith("test min_persons_exp_weekly__events_")
    with shop.edited(EVENTS_YML, "    columns:", f"    data_tests: [{few_persons(fewest)}]\n    columns:"):
        published = shop.changed(export_bom="true").export()
    assert file_of(published).read_bytes().startswith(b"\xef\xbb\xbfevent_id,")
    assert (published.manifest.quasi_identifiers, published.manifest.k_anonymity) == (["is_gift"], fewest)
    with (file_of(published).parent / "dictionary.csv").open(newline="", encoding="utf-8") as stream:
        assert {row["name"] for row in csv.DictReader(stream) if row["k_anonymity"] == str(fewest)} == {"is_gift"}


def few_persons(at_least: int) -> str:
    return f"{{min_persons: {{arguments: {{at_least: {at_least}}}}}}}"


def test_a_file_that_a_check_refuses_is_published(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    shop.land(*hostile_rows(), in_next_week(1000))
    monkeypatch.setattr(write, "OPTIONS", write.OPTIONS.replace("""escape '"'""", r"escape '\'"))
    assert "differs from the table, so nothing is published" in shop.withheld(has_issues=False)
    assert not list((Path(shop.settings.export_root) / ".staging").glob("*/"))


def test_what_the_view_of_decisions_has_is_ignored(shop: Shop) -> None:
    shop.land(*hostile_rows(), in_next_week(1000))
    view, end = "models/ops/ops_export_weeks.sql", "select * from final"
    for failing, message in {
        "select no_column": "(?s)dbt could not run ops_topic_weeks and ops_export_weeks.*",
        f"{end} where false": "ops.export_weeks has no row of events 2020-W53",
    }.items():
        with shop.edited(view, end, failing), pytest.raises(UserError, match=message):
            shop.export()
    assert shop.files() == {}
    warned = "select dataset_name, week_label, reasons, array('a warning') as warnings from final"
    with shop.edited(view, end, warned):
        exported = shop.run()
    assert exported.warnings == ["a warning"]
    assert "a warning" in exported.published[0].manifest.warnings


def test_sql_that_lets_personal_data_out_is_published(shop: Shop) -> None:
    shop.land(*hostile_rows(), in_next_week(1000))
    declared, column = "models/staging/stg_shop__events.yml", "{name: note, data_type: string, config: {meta: {pii: "
    with shop.edited(declared, f"{column}none", f"{column}free_text"):
        reason = shop.withheld(has_issues=False)
    assert "hold personal data: exp_weekly__events: stg_shop__events.note (free_text) reaches" in reason
