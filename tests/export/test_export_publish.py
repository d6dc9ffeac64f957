"""Versions: a new one for new content only, the old ones untouched, and a pointer that never goes back."""

import hashlib
import json
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from lakehouse.errors import UserError
from lakehouse.settings import Settings
from python_export.cli import app
from python_export.publish import Manifest, Published, newest_version, publish


def draft(week: str) -> Manifest:
    return Manifest(
        dataset="events",
        week=week,
        window_start="",
        window_end="",
        version=0,
        supersedes=None,
        file="",
        bytes=0,
        sha256="",
        rows=1,
        columns=[{"name": "note", "type": "string", "nulls": 0}],
        control_totals={"amount": "0.10"},
        formula_escaped={"note": 0},
        source_table="lake.exports.exp_weekly__events",
        source_snapshot_id="1",
        dbt_invocation_id="a",
        created_at="2021-01-04T00:00:00Z",
    )


def publish_content(root: Path, content: str, week: str = "2020-W53") -> Published:
    staged = root / ".staging" / hashlib.sha256((content + week).encode()).hexdigest() / "part-0.csv"
    staged.parent.mkdir(parents=True, exist_ok=True)
    staged.write_text(content)
    return publish(root, staged, draft(week))


def tree(root: Path) -> dict[str, bytes]:
    """Return every public file."""
    files = (path for path in root.rglob("*") if path.is_file() and ".staging" not in path.parts)
    return {str(path.relative_to(root)): path.read_bytes() for path in files}


def pointer(root: Path) -> dict:
    return json.loads((root / "events" / "latest.json").read_text())


def test_first_version(tmp_path: Path) -> None:
    published = publish_content(tmp_path, "note\na\n")

    assert published.unchanged is False
    assert published.file == tmp_path / "events" / "2020-W53" / "v1" / "events_2020-W53_v1.csv"
    assert set(tree(tmp_path)) == {
        "events/2020-W53/v1/events_2020-W53_v1.csv",
        "events/2020-W53/v1/manifest.json",
        "events/latest.json",
    }
    manifest = json.loads((published.file.parent / "manifest.json").read_text())
    assert manifest["version"] == 1
    assert manifest["supersedes"] is None
    assert manifest["bytes"] == 7
    assert manifest["sha256"] == hashlib.sha256(b"note\na\n").hexdigest()
    assert manifest["control_totals"] == {"amount": "0.10"}
    assert pointer(tmp_path) == {
        "dataset": "events",
        "week": "2020-W53",
        "version": 1,
        "file": "2020-W53/v1/events_2020-W53_v1.csv",
        "manifest": "2020-W53/v1/manifest.json",
        "sha256": manifest["sha256"],
    }


def test_same_content_is_the_same_version(tmp_path: Path) -> None:
    first = publish_content(tmp_path, "note\na\n")
    before = tree(tmp_path)

    again = publish_content(tmp_path, "note\na\n")

    assert again == Published(first.manifest, first.file, unchanged=True)
    assert tree(tmp_path) == before


def test_changed_content_is_a_new_version_and_the_old_one_stays(tmp_path: Path) -> None:
    publish_content(tmp_path, "note\na\n")
    before = tree(tmp_path)

    second = publish_content(tmp_path, "note\nb\n")

    assert (second.manifest.version, second.manifest.supersedes) == (2, 1)
    after = tree(tmp_path)
    assert {name: after[name] for name in before if "latest" not in name} == {
        name: content for name, content in before.items() if "latest" not in name
    }
    assert pointer(tmp_path)["version"] == 2


def test_content_of_an_older_version_is_a_new_version(tmp_path: Path) -> None:
    for content in ("note\na\n", "note\nb\n", "note\na\n"):
        published = publish_content(tmp_path, content)

    assert (published.manifest.version, published.manifest.supersedes) == (3, 2)


def test_versions_are_numbers_not_text(tmp_path: Path) -> None:
    for number in range(11):
        published = publish_content(tmp_path, f"note\n{number}\n")

    assert (published.manifest.version, published.manifest.supersedes) == (11, 10)
    assert pointer(tmp_path)["version"] == 11


def test_late_data_for_an_older_week_does_not_move_the_pointer_back(tmp_path: Path) -> None:
    publish_content(tmp_path, "note\na\n", "2020-W53")
    publish_content(tmp_path, "note\nb\n", "2021-W01")
    late = publish_content(tmp_path, "note\nc\n", "2020-W53")

    assert late.manifest.version == 2
    assert (pointer(tmp_path)["week"], pointer(tmp_path)["version"]) == ("2021-W01", 1)


def test_a_run_that_died_before_the_pointer_is_healed_by_the_next(tmp_path: Path) -> None:
    publish_content(tmp_path, "note\na\n")
    old_pointer = (tmp_path / "events" / "latest.json").read_bytes()
    publish_content(tmp_path, "note\nb\n")
    (tmp_path / "events" / "latest.json").write_bytes(old_pointer)

    assert publish_content(tmp_path, "note\nb\n").unchanged
    assert pointer(tmp_path)["version"] == 2


def test_a_run_that_died_before_the_rename_leaves_no_version(tmp_path: Path) -> None:
    publish_content(tmp_path, "note\na\n", "2020-W53")
    (tmp_path / "events" / "2021-W01").mkdir()

    assert newest_version(tmp_path / "events" / "2021-W01") is None
    publish_content(tmp_path, "note\nb\n", "2020-W53")
    assert (pointer(tmp_path)["week"], pointer(tmp_path)["version"]) == ("2020-W53", 2)
    assert publish_content(tmp_path, "note\nc\n", "2021-W01").manifest.version == 1


@pytest.mark.parametrize("damaged", ["", "{", "[]", '{"dataset": "events"}', None])
def test_a_damaged_manifest_stops_the_publication(tmp_path: Path, damaged: str | None) -> None:
    manifest = publish_content(tmp_path, "note\na\n").file.with_name("manifest.json")
    manifest.unlink()
    if damaged is not None:
        manifest.write_text(damaged)
    before = tree(tmp_path)

    with pytest.raises(UserError, match=r"manifest\.json is missing or damaged"):
        publish_content(tmp_path, "note\nb\n")
    assert tree(tmp_path) == before


def listed(settings: Settings, monkeypatch: pytest.MonkeyPatch, *options: str) -> Result:
    monkeypatch.setattr("python_export.cli.from_environment", lambda: settings)
    return CliRunner().invoke(app, ["list", *options])


def test_the_list_has_every_version_and_what_came_after_it(
    offline_settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    for content, week in (("a", "2020-W53"), ("b", "2020-W53"), ("a", "2021-W01")):
        publish_content(offline_settings.export_root, f"note\n{content}\n", week)

    lines = [line.split()[:6] for line in listed(offline_settings, monkeypatch).output.splitlines()[1:]]
    assert [(line[1], line[2], line[5] if line[5].startswith("v") else None) for line in lines] == [
        ("2020-W53", "v1", "v2"),
        ("2020-W53", "v2", None),
        ("2021-W01", "v1", None),
    ]
    found = json.loads(listed(offline_settings, monkeypatch, "--dataset", "events", "--json").output)
    assert [(one["week"], one["version"]) for one in found] == [("2020-W53", 1), ("2020-W53", 2), ("2021-W01", 1)]
    unknown = listed(offline_settings, monkeypatch, "--dataset", "evnts")
    assert str(unknown.exception).startswith("Nothing of evnts is published")
