"""A version that is withdrawn: no file of it is left, readers find the newest other one, the next one records it."""

import json

import pytest

from python_export.publishing.manifest import Withdrawn, newest, published, read
from python_export.publishing.publish import WithdrawnContentError, withdraw
from python_export.publishing.target import LocalTarget, Target
from tests.support.hostile_rows import failing
from tests.support.publishing import leave_changes
from tests.support.versions import overwrite, pointer, publish_content, tree, without_folders

WEEK = "events/2020-W53"


def test_what_is_withdrawn_leaves_its_manifest_alone(target: Target) -> None:
    publish_content(target, "note\na\n")
    publish_content(target, "note\nb\n")
    withdraw(target, f"{WEEK}/v2", "somebody was erased")
    assert without_folders(path for path in tree(target) if "/v2/" in path) == {f"{WEEK}/v2/manifest.json"}
    withdrawn = read(target, f"{WEEK}/v2")
    assert withdrawn.withdrawn.reason == "somebody was erased"
    assert (withdrawn.control_totals, withdrawn.totals_by) == ({}, {})
    assert pointer(target)["version"] == newest(target, "events").version == 1
    assert [manifest.version for manifest in published(target)] == [1]
    assert [manifest.version for manifest in published(target, with_withdrawn=True)] == [1, 2]

    before = tree(target)
    withdraw(target, f"{WEEK}/v2", "another reason")
    assert tree(target) == before

    third = publish_content(target, "note\nc\n").manifest
    assert (third.version, third.supersedes, third.difference) == (3, 2, None)
    assert third.reason == "v2 was withdrawn"
    assert third.warnings == []
    assert pointer(target)["version"] == 3

    for version in ("v1", "v3"):
        withdraw(target, f"{WEEK}/{version}", "somebody was erased")
    assert without_folders(tree(target)) == {f"{WEEK}/v{number}/manifest.json" for number in (1, 2, 3)}
    assert publish_content(target, "note\nd\n").manifest.version == 4


def test_keys_of_a_withdrawn_version_are_in_no_file_of_changes(target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    """Releases before 0.7 wrote them."""
    for content in ("note\na\n", "note\nb\n", "note\nc\n"):
        publish_content(target, content)
    for version in ("v2", "v3"):
        leave_changes(target, f"{WEEK}/{version}")
    before = tree(target)
    with monkeypatch.context() as cut_off, pytest.raises(ValueError, match="4111"):
        # Between the manifest of v2 and its file of changes.
        owner, name = (target.root, "iterdir") if isinstance(target, LocalTarget) else (target, "delete")
        cut_off.setattr(type(owner), name, failing)
        withdraw(target, f"{WEEK}/v1", "somebody was erased")
    for _ in range(2):
        withdraw(target, f"{WEEK}/v1", "somebody was erased")
        after = tree(target)
        listed = [path for path in without_folders(after) if path.endswith("changes.csv")]
        assert listed == [f"{WEEK}/v3/changes.csv"]
    second = read(target, f"{WEEK}/v2")
    assert second.withdrawn is None
    assert b"changes_sha256" not in target.read(f"{WEEK}/v2/manifest.json")
    assert second.difference == {"added": 1, "removed": 1, "changed": 0}
    assert {path for path in before.keys() & after.keys() if before[path] != after[path]} == {
        f"{WEEK}/v1/manifest.json",
        f"{WEEK}/v2/manifest.json",
    }


@pytest.mark.parametrize("manifest", [b"{", b'{"manifest_format": 2}', None], ids=["damaged", "newer", "missing"])
def test_a_manifest_that_cannot_be_read_keeps_no_keys_of_a_withdrawn_version(
    target: Target, manifest: bytes | None
) -> None:
    publish_content(target, "note\na\n")
    publish_content(target, "note\nb\n")
    leave_changes(target, f"{WEEK}/v2")
    overwrite(target, f"{WEEK}/v2/manifest.json", manifest)
    others = {path: content for path, content in tree(target).items() if "/v2/" in path and "changes" not in path}
    withdraw(target, f"{WEEK}/v1", "somebody was erased")
    assert {path: content for path, content in tree(target).items() if "/v2/" in path} == others


def test_withdrawn_content_is_published_again_only_as_a_restatement(target: Target) -> None:
    publish_content(target, "note\na\n")
    withdraw(target, f"{WEEK}/v1", "a wrong price")
    before = tree(target)
    for _ in range(2):
        with pytest.raises(
            WithdrawnContentError, match=f"{WEEK}/v1 had this content and was withdrawn on .*: a wrong price"
        ):
            publish_content(target, "note\na\n")
    assert tree(target) == before
    again = publish_content(target, "note\na\n", restated="the price was right").manifest
    assert (again.version, again.restated) == (2, "the price was right")


@pytest.mark.parametrize("published_to", ["local"], indirect=True)
def test_a_withdrawal_that_was_cut_off_is_completed(target: Target) -> None:
    """Cut off between the manifest and the files: so readers know before a file is gone."""
    publish_content(target, "note\na\n")
    directory = target.root / f"{WEEK}/v1"
    directory.chmod(0o755)
    manifest = json.loads((directory / "manifest.json").read_text())
    (directory / "manifest.json").chmod(0o644)
    (directory / "manifest.json").write_text(
        json.dumps(manifest | {"withdrawn": {"on": "2021-01-04", "reason": "first"}})
    )
    (directory / ".manifest.json.0011aabb").write_text("unfinished")
    withdraw(target, f"{WEEK}/v1", "second")
    assert [file.name for file in directory.iterdir()] == ["manifest.json"]
    assert read(target, f"{WEEK}/v1").withdrawn == Withdrawn("2021-01-04", "first")
