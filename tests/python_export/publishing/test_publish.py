"""Versions: a new one for new content only, the old ones untouched, and a pointer that never goes back."""

import hashlib
import json
import re
from collections.abc import Callable
from dataclasses import MISSING, fields, replace
from pathlib import Path

import pytest

from python_common.config.settings import Settings
from python_common.errors import UserError
from python_dev.stack import stack
from python_export.datasets import contract
from python_export.publishing.manifest import (
    FileColumn,
    Manifest,
    ManifestError,
    SmallGroups,
    paths,
    published,
    read,
    read_all,
)
from python_export.publishing.publish import Published, put_contract, withdraw
from python_export.publishing.target import Target, open_target
from tests.support.hostile_rows import DATASET, draft
from tests.support.in_process import Command
from tests.support.versions import overwrite, pointer, publish_content, publish_file, tree, without_folders


def test_first_version(target: Target) -> None:
    published = publish_content(target, "note\na\n")

    assert published.unchanged is False
    assert without_folders([published.file]) == {target.address("events/2020-W53/v1/events_2020-W53_v1.csv")}
    assert without_folders(tree(target)) == {
        "events/2020-W53/v1/events_2020-W53_v1.csv",
        "events/2020-W53/v1/dictionary.csv",
        "events/2020-W53/v1/manifest.json",
        "events/latest.json",
    }
    manifest = json.loads(target.read("events/2020-W53/v1/manifest.json"))
    assert manifest["version"] == 1
    assert manifest["supersedes"] is None
    assert manifest["bytes"] == 7
    assert manifest["sha256"] == hashlib.sha256(b"note\na\n").hexdigest()
    assert manifest["control_totals"] == {"amount": "0.10"}
    assert pointer(target) == {
        "dataset": "events",
        "week": "2020-W53",
        "version": 1,
        "file": f"2020-W53/v1/{manifest['file']}",
        "manifest": "2020-W53/v1/manifest.json",
        "sha256": manifest["sha256"],
    }


def test_changed_content_is_a_new_version_and_the_old_one_stays(local: Target) -> None:
    first = publish_content(local, "note\na\n")
    before = tree(local)
    assert publish_content(local, "note\na\n") == Published(first.manifest, first.file, unchanged=True)
    assert tree(local) == before

    second = publish_content(local, "note\nb\n")
    assert (second.manifest.version, second.manifest.supersedes) == (2, 1)
    assert second.manifest.difference == {"added": 1, "removed": 1, "changed": 0}
    assert second.manifest.reason == "late or corrected data"
    assert second.manifest.changed_columns == {}
    after = tree(local)
    assert {name: after[name] for name in before if "latest" not in name} == {
        name: content for name, content in before.items() if "latest" not in name
    }
    assert pointer(local)["version"] == 2


@pytest.mark.parametrize("withdrawn", [False, True])
def test_a_stale_run_adds_no_second_version_of_small_groups(local: Target, withdrawn: bool) -> None:
    """Both runs found no version of the week; the one that decided first comes last."""
    suppressed = replace(draft("2020-W53"), small_groups=SmallGroups(threshold=10, suppressed=3))
    first = publish_file(local, "note\na\n", suppressed).manifest
    if withdrawn:
        withdraw(local, first.path, "a wrong price")
    else:
        assert publish_file(local, "note\na\n", suppressed).unchanged
    with pytest.raises(UserError, match=r"^events 2020-W53 has its one version, .* --restate --week 2020-W53"):
        publish_file(local, "note\nb\n", suppressed)
    assert paths(local) == ["events/2020-W53/v1"]
    again = publish_file(local, "note\nb\n", replace(suppressed, restated="prices were wrong"))
    assert again.manifest.version == 2


def publish_rows(target: Target, header: str, *rows: str, key: tuple[str, ...] = ("note",)) -> Manifest:
    columns = [{"name": name, "type": "string", "nulls": 0} for name in header.split(",")]
    return publish_content(target, "\n".join([header, *rows, ""]), key=[*key], columns=columns).manifest


def test_a_key_that_the_old_version_lacks_matches_rows(local: Target) -> None:
    publish_rows(local, "note", "a")
    second = publish_rows(local, "part,note", "1,a", "2,a", key=("part", "note"))
    assert second.difference == {"added": 2, "removed": 1, "changed": 0}
    assert second.reason == "added columns: part, late or corrected data"


@pytest.mark.parametrize(
    ("after", "reason"),
    [
        ("note,c,a,b", "added columns: a and b"),
        ("b,note", "added columns: b, removed columns: c"),
        ("note", "removed columns: c"),
        ("c,note", "another order of columns"),
    ],
)
def test_changed_columns_are_named(local: Target, after: str, reason: str) -> None:
    publish_rows(local, "note,c", "x,x")
    assert publish_rows(local, after, re.sub(r"\w+", "x", after)).reason == reason


def test_a_row_whose_key_is_null_in_part_is_another_row(local: Target) -> None:
    for rows in (("1,,a,", "2,,b,", "3,,b,1"), ("1,,a,", "2,,c,", "3,,,2")):
        second = publish_rows(local, "part,note,figure,price", *rows, key=("part", "note"))
    assert second.difference == {"added": 0, "removed": 0, "changed": 2}
    assert second.changed_columns == {"figure": 2, "price": 1}


@pytest.mark.parametrize("content", [None, b'note\n"cut off, secret\n', b"note\nsecret\n"])
def test_a_damaged_old_file_is_superseded_without_a_difference(local: Target, content: bytes | None) -> None:
    first = publish_content(local, "note\na\n").manifest
    overwrite(local, f"{first.path}/{first.file}", content)

    second = publish_content(local, "note\nb\n").manifest
    assert (second.version, second.supersedes, second.difference) == (2, 1, None)
    assert second.warnings == ["v1 is damaged, so it is not known what changed since"]
    assert "secret" not in second.text()
    assert published(local)[-1] == second


def test_a_stack_is_wiped_with_all_that_it_has_published(
    offline_settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish_content(open_target(offline_settings), "note\na\n")
    monkeypatch.setenv("LAKEHOUSE_HOME", str(tmp_path))
    (tmp_path / stack.MARK).touch()
    with monkeypatch.context() as undeletable, pytest.raises(UserError, match="could not be deleted"):
        undeletable.setattr("shutil.rmtree", lambda *_, **__: None)
        stack.wipe()
    stack.wipe()
    assert not tmp_path.exists()


def test_another_contract_takes_the_place_of_one(local: Target) -> None:
    for dataset in (DATASET, replace(DATASET, description="Another one.")):
        put_contract(local, dataset)
        assert local.read(f"{DATASET.name}/{contract.FILE}") == contract.text(dataset).encode()


def test_late_data_for_an_older_week_moves_the_pointer_back(local: Target) -> None:
    publish_content(local, "note\na\n", "2020-W53")
    old_pointer = local.read("events/latest.json")
    publish_content(local, "note\nb\n", "2021-W01")
    assert publish_content(local, "note\nc\n", "2020-W53").manifest.version == 2
    assert (pointer(local)["week"], pointer(local)["version"]) == ("2021-W01", 1)
    # As a run that died before it left the pointer.
    local.put("events/latest.json", old_pointer)
    assert publish_content(local, "note\nb\n", "2021-W01").unchanged
    assert pointer(local)["week"] == "2021-W01"


@pytest.mark.parametrize("damaged", [b"", b"{", b"[]", b'{"dataset": "events"}'])
def test_a_damaged_manifest_costs_its_version_and_no_other(
    offline_settings: Settings, damaged: bytes, export: Command
) -> None:
    target = open_target(offline_settings)
    publish_content(target, "note\na\n", "2020-W52")
    publish_content(target, "note\na\n")
    overwrite(target, "events/2020-W53/v1/manifest.json", damaged)

    manifests, unreadable = read_all(target, paths(target))
    assert [*manifests] == ["events/2020-W52/v1"]
    assert "events/2020-W53/v1/manifest.json is missing or damaged" in unreadable["events/2020-W53/v1"].message
    result = export(offline_settings, "list")
    assert "2020-W52" in result.output
    assert "1 versions are not in this list: " in str(result.exception)

    second = publish_content(target, "note\nb\n").manifest
    assert (second.version, second.supersedes, second.difference) == (2, 1, None)
    assert second.warnings == ["v1 is damaged, so it is not known what changed since"]
    assert pointer(target)["version"] == 2


def test_a_manifest_that_cannot_be_read_is_called_damaged(local: Target) -> None:
    publish_content(local, "note\na\n")
    manifest = Path(local.address("events/2020-W53/v1/manifest.json"))
    manifest.parent.chmod(0o755)
    manifest.unlink()
    manifest.symlink_to(manifest)
    with pytest.raises(ManifestError, match=r"v1/manifest\.json cannot be read \(Too many levels of symbolic links\)"):
        publish_content(local, "note\na\n")
    assert paths(local) == ["events/2020-W53/v1"]


def test_a_manifest_of_an_older_release_is_damaged(local: Target) -> None:
    path = publish_content(local, "note\na\n").manifest.path
    written = json.loads(local.read(f"{path}/manifest.json"))
    needed = {field.name for field in fields(Manifest) if field.default is MISSING and field.default_factory is MISSING}
    overwrite(local, f"{path}/manifest.json", json.dumps({name: written[name] for name in needed}).encode())
    old = read(local, path)
    assert (old.key, old.reason, old.withdrawn, old.columns) == ([], "", None, [FileColumn("note", "string", 0)])
    assert list(json.loads(old.text())) == list(written)
    assert json.loads(old.text()) == written | {"key": [], "reason": "", "difference": None, "totals_by": {}}


def test_a_manifest_of_a_newer_release_is_damaged(local: Target) -> None:
    path = publish_content(local, "note\na\n").manifest.path
    written = json.loads(local.read(f"{path}/manifest.json"))
    overwrite(local, f"{path}/manifest.json", json.dumps(written | {"colour": "red"}).encode())
    assert publish_content(local, "note\na\n").unchanged

    overwrite(local, f"{path}/manifest.json", json.dumps(written | {"manifest_format": 2}).encode())
    manifests, unreadable = read_all(local, paths(local))
    assert manifests == {}
    assert "was written by a newer release" in unreadable[path].message
    with pytest.raises(UserError, match="was written by a newer release"):
        publish_content(local, "note\nb\n")


def test_the_list_has_every_version_and_what_came_after_it(offline_settings: Settings, export: Command) -> None:
    for content, week in (("a", "2020-W53"), ("b", "2020-W53"), ("a", "2021-W01")):
        publish_content(open_target(offline_settings), f"note\n{content}\n", week)

    def listed(*options: str) -> list[tuple[str, int]]:
        entries = json.loads(export(offline_settings, "list", *options, "--json").output)
        return [(entry["week"], entry["version"]) for entry in entries]

    first, *_ = export(offline_settings, "list").output.splitlines()[1:]
    assert first.split()[1:3] + first.split()[-1:] == ["2020-W53", "v1", "v2"]
    assert listed("events") == [("2020-W53", 1), ("2020-W53", 2), ("2021-W01", 1)]
    assert listed("--week", "2021-W01") == [("2021-W01", 1)]
    unknown = export(offline_settings, "list", "evnts")
    assert str(unknown.exception).startswith("Nothing of evnts is published")


def test_a_version_is_published_without_its_snapshot(local: Target) -> None:
    tagged: list[str] = []

    def refuse(manifest: Manifest) -> None:
        raise UserError(f"{manifest.path} cannot be kept", "Run it again")

    def publish_kept(keep: Callable[[Manifest], None]) -> Published:
        return publish_file(local, "a", draft("2020-W53"), tag_snapshot=keep)

    with pytest.raises(UserError, match="events/2020-W53/v1 cannot be kept"):
        publish_kept(refuse)
    assert local.versions() == []
    # The tag of a version that is there may have been lost: it is made again.
    for _ in range(2):
        publish_kept(lambda manifest: tagged.append(manifest.path))
    assert tagged == ["events/2020-W53/v1"] * 2
