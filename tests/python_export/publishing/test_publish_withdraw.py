"""A version that is withdrawn: no file of it is left, readers find the newest other one, the next one records it."""

import json

import pytest

from python_export.publishing.manifest import Withdrawn, newest, published, read
from python_export.publishing.publish import WithdrawnContentError, withdraw
from python_export.publishing.target import Target
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
    """Releases before 0.7 wrote them, beside a manifest that may be damaged or of a newer release."""
    for content in ("note\na\n", "note\nb\n", "note\nc\n"):
        publish_content(target, content)
    for version in ("v2", "v3"):
        leave_changes(target, f"{WEEK}/{version}")
    overwrite(target, f"{WEEK}/v2/manifest.json", b"{")
    before = tree(target)
    with monkeypatch.context() as cut_off, pytest.raises(ValueError, match="4111"):
        cut_off.setattr(type(target), "put", failing)
        withdraw(target, f"{WEEK}/v1", "somebody was erased")
    for _ in range(2):
        withdraw(target, f"{WEEK}/v1", "somebody was erased")
        after = tree(target)
        assert [path for path in without_folders(after) if path.endswith("changes.csv")] == [f"{WEEK}/v3/changes.csv"]
    changed = {path for path in before.keys() & after.keys() if before[path] != after[path]}
    assert changed == {f"{WEEK}/v1/manifest.json"}


def test_withdrawn_content_is_published_again(local: Target) -> None:
    publish_content(local, "note\na\n")
    withdraw(local, f"{WEEK}/v1", "a wrong price")
    before = tree(local)
    for _ in range(2):
        with pytest.raises(
            WithdrawnContentError, match=f"{WEEK}/v1 had this content and was withdrawn on .*: a wrong price"
        ):
            publish_content(local, "note\na\n")
    assert tree(local) == before
    again = publish_content(local, "note\na\n", restated="the price was right").manifest
    assert (again.version, again.supersedes, again.restated) == (2, 1, "the price was right")
    assert again.reason == "restated, v1 was withdrawn: the price was right"


def test_a_withdrawal_that_was_cut_off_is_completed(local: Target) -> None:
    """Cut off between the manifest and the files: so readers know before a file is gone."""
    path = f"{WEEK}/v1/manifest.json"
    publish_content(local, "note\na\n")
    cut_off = json.loads(local.read(path)) | {"withdrawn": {"on": "2021-01-04", "reason": "first"}}
    local.put(path, json.dumps(cut_off).encode())
    local.put(f"{WEEK}/v1/.manifest.json.0011aabb", b"unfinished")
    withdraw(local, f"{WEEK}/v1", "second")
    assert local.files(f"{WEEK}/v1") == [path]
    assert read(local, f"{WEEK}/v1").withdrawn == Withdrawn("2021-01-04", "first")
