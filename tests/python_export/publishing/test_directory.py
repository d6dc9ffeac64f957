"""A root in a directory: modes, what is on the disk before the manifest, and hidden names of dead writers."""

import errno
import os
from datetime import timedelta
from pathlib import Path

import pytest

from python_common import private_files
from python_common.errors import UserError
from python_export.publishing.layout import CONDITIONAL
from python_export.publishing.target import Target
from tests.support.versions import publish_content, tree


def mode(path: Path) -> str:
    return oct(path.stat().st_mode & 0o777)


def test_a_version_can_be_written_or_is_closed_to_readers(local: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also one that a dead writer made, before the folder got its mode. The root's owner chose that of the root."""
    monkeypatch.setattr(private_files, "_callers_umask", 0o022)
    root = Path(local.address(""))
    (root / "events").mkdir(parents=True)
    for folder in (root, root / "events"):
        folder.chmod(0o700)
    before = os.umask(private_files.UMASK)
    try:
        upload = Path(publish_content(local, "note\na\n").file).parent
    finally:
        os.umask(before)
    assert [mode(path) for path in (upload, *upload.parents[:4])] == ["0o555", "0o755", "0o755", "0o755", "0o700"]
    assert [mode(path) for path in (*upload.iterdir(), upload.with_name("manifest.json"))] == ["0o444"] * 3


def test_a_manifest_appears_before_its_files_are_on_disk(local: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    synced, at_commit, fsync, link = list[int](), set[int](), os.fsync, os.link

    def record_sync(descriptor: int) -> None:
        fsync(descriptor)
        synced.append(os.fstat(descriptor).st_ino)

    def record_link(draft: Path, name: Path) -> None:
        link(draft, name)
        if name.name == "manifest.json":
            at_commit.update(synced)

    monkeypatch.setattr(os, "fsync", record_sync)
    monkeypatch.setattr(os, "link", record_link)
    upload = Path(publish_content(local, "note\na\n").file).parent
    needed = (*upload.iterdir(), upload, *upload.parents[:4], upload.with_name("manifest.json"))
    assert {path.stat().st_ino for path in needed} <= at_commit
    # The name of the manifest, before the pointer.
    assert upload.parent.stat().st_ino in synced[len(at_commit) :]


def test_a_root_without_hard_links_gets_half_a_version(local: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOTSUP, os.strerror(errno.ENOTSUP))

    monkeypatch.setattr(os, "link", refuse)
    with pytest.raises(UserError, match=r"cannot be made: Operation not .*\. Use a file system with hard links"):
        publish_content(local, "note\na\n")
    assert tree(local) == {}


def test_drafts_of_dead_writers_stay(local: Target) -> None:
    upload = Path(publish_content(local, "note\na\n").file).parent
    root, before = Path(local.address("")), tree(local)
    dead = ("events/.latest.json", "events/.contract.odcs.yaml", "events/2020-W53/v1/.manifest.json")
    dead += (".versions.json", ".index.html", f".{CONDITIONAL}")
    drafts = {root / f"{name}.0123abcd" for name in dead}
    of_others = {root / ".others.json.0123abcd", root / "events" / ".notes.json", root / "events" / "2020-W53" / ".nfs"}
    for draft in drafts | of_others:
        draft.write_text("{")
    local.clean(["events"])
    assert all(draft.exists() for draft in drafts)
    local.clean(["events"], abandoned_after=timedelta(0))
    assert {draft for draft in drafts | of_others if draft.exists()} == of_others
    assert {path: content for path, content in tree(local).items() if path in before} == before
    assert mode(upload) == oct(private_files.for_readers(0o555))
