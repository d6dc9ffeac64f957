"""What both stores promise: whole versions, one writer of each, clean remains; and the staging area, for one run."""

import hashlib
import json
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from threading import Barrier

import pytest

from python_common.errors import DeadlineError, UserError
from python_common.locks import lock
from python_common.locks.lock import locked
from python_export.notify import index
from python_export.publishing.layout import upload_folder
from python_export.publishing.manifest import paths, published, read_all
from python_export.publishing.publish import withdraw
from python_export.publishing.target import Target, staging
from tests.support.publishing import lay_out_as_before, reading
from tests.support.versions import publish_content, tree, without_folders

WRITERS = 20
WEEK = "events/2020-W53"
VERSION = f"{WEEK}/v1"


def test_what_others_keep_is_a_version_or_goes_with_the_dead(target: Target) -> None:
    upload = f"2020-W53/v1/{upload_folder()}/half.csv"
    dead, damaged = f"events/{upload}", "events/2019-W01/v1"
    of_others = {
        *("invoices/2026/11/a.csv", f"{VERSION}/half.csv", f"archive/{upload}"),
        *("dbt/target/manifest.json", "models/churn/v1/manifest.json", "a/b/c/2020-W53/v1/manifest.json"),
        *("events/2020-W53/v1.bak/manifest.json", "events/2020-W53/v01/manifest.json"),
        *("events/2020-W53/manifest.json", "2020-W53/v1/manifest.json", "deliveries/2020-W53/1.json"),
        # Damaged, not abandoned.
        *(f"{damaged}/{upload_folder()}/events_2019-W01_v1.csv" for _ in range(2)),
    }
    for path in (*of_others, f"{damaged}/manifest.json", dead):
        target.put(path, b"{")
    assert publish_content(target, "note\na\n").manifest.path == VERSION
    assert paths(target) == paths(target, ["events"]) == [damaged, VERSION]
    assert [manifest.path for manifest in index.write(target)] == [VERSION]
    manifests, unreadable = read_all(target, paths(target))
    assert ([*manifests], [*unreadable]) == ([VERSION], [damaged])
    before = tree(target)
    target.clean(["events"])
    assert tree(target) == before
    target.clean(["events"], abandoned_after=timedelta(0))
    del before[dead]
    assert tree(target) == before


@pytest.mark.parametrize("content", ["note\na\n", "note\nb\n"])
def test_of_two_writers_of_a_version_the_second_agrees_or_fails(
    target: Target, monkeypatch: pytest.MonkeyPatch, content: str
) -> None:
    """The second has looked before the first was there; a lock does not keep machines apart."""
    add = Target.add

    def overtaken(self: Target, folder: Path, path: str, manifest: bytes) -> None:
        monkeypatch.undo()
        publish_content(target, "note\na\n")
        add(self, folder, path, manifest)

    monkeypatch.setattr(Target, "add", overtaken)
    if content == "note\na\n":
        assert publish_content(target, content).unchanged
    else:
        with pytest.raises(UserError, match="with other content"):
            publish_content(target, content)
    files = tree(target)
    [name] = [path for path in files if path.endswith("/events_2020-W53_v1.csv")]
    assert files[name] == b"note\na\n"
    # Nothing of the second one is left.
    assert len(files) == 4


def test_another_number_than_one_of_twenty_writers_wins(target: Target) -> None:
    """A reader that reads all the while finds no version, or one that is complete and stays as it is."""
    begin, refused = Barrier(WRITERS), list[str]()

    def write(folder: Path) -> None:
        manifest = {"file": f"{folder.name}/rows.csv", "sha256": hashlib.sha256(folder.name.encode()).hexdigest()}
        begin.wait()
        try:
            target.add(folder, VERSION, json.dumps(manifest).encode())
        except FileExistsError:
            refused.append(folder.name)

    folders = [target.staging / str(number) / upload_folder() for number in range(WRITERS)]
    for folder in folders:
        folder.mkdir(parents=True)
        (folder / "rows.csv").write_text(folder.name)
    with reading(target) as (seen, wrong), ThreadPoolExecutor(WRITERS) as pool:
        [*pool.map(write, folders)]
    [winner] = {folder.name for folder in folders} - {*refused}
    assert (len(refused), [*seen], wrong) == (WRITERS - 1, [f"{VERSION}/manifest.json"], set())
    # Nothing of the others is left.
    assert {*tree(target)} == {f"{VERSION}/{winner}/rows.csv", f"{VERSION}/manifest.json"}


def test_a_version_that_is_committed_during_cleaning_goes(target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    def list_and_be_overtaken(self: object, under: str, *patterns: str) -> list:
        files = [*listed(self, under, *patterns)]
        target.put(f"{VERSION}/manifest.json", json.dumps({"file": f"{folder}/half.csv"}).encode())
        return files

    listed, folder = type(target.store).listed, upload_folder()
    target.put(f"{VERSION}/{folder}/half.csv", b"note\na\n")
    with monkeypatch.context() as overtaken:
        overtaken.setattr(type(target.store), "listed", list_and_be_overtaken)
        target.clean(["events"], abandoned_after=timedelta(0))
    assert len(tree(target)) == 2


@pytest.mark.parametrize("deleted", range(3))
def test_a_removal_that_was_cut_off_is_never_completed(
    target: Target, monkeypatch: pytest.MonkeyPatch, deleted: int
) -> None:
    publish_content(target, "note\na\n")
    with monkeypatch.context() as cut_off, pytest.raises(KeyboardInterrupt):
        cut_off_after(deleted, target, cut_off)
        target.remove(VERSION)
    assert target.versions() == ([] if deleted else [VERSION])
    for path in target.versions():
        target.remove(path)
    target.clean(["events"], abandoned_after=timedelta(0))
    assert {*tree(target)} == {"events/latest.json"}


def cut_off_after(deleted: int, target: Target, patch: pytest.MonkeyPatch) -> None:
    """Have the process end before it deletes another file than so many."""
    delete, left = type(target.store).delete, [None] * deleted

    def count(self: object, path: str) -> None:
        if not left:
            raise KeyboardInterrupt
        left.pop()
        delete(self, path)

    patch.setattr(type(target.store), "delete", count)


def test_versions_of_a_release_before_0_7_are_left_alone(local: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    """In directories, their files are beside their manifests."""
    for number, content in enumerate("abc", start=1):
        publish_content(local, f"note\n{content}\n")
        lay_out_as_before(local, f"{WEEK}/v{number}")
    before = tree(local)
    assert before == {path: before[path] for path in without_folders(before)}
    local.clean(["events"], abandoned_after=timedelta(0))
    assert publish_content(local, "note\nc\n").unchanged
    assert tree(local).items() >= {path: content for path, content in before.items() if "/v" in path}.items()

    fourth = publish_content(local, "note\nd\n").manifest
    assert (fourth.version, fourth.difference) == (4, {"added": 1, "removed": 1, "changed": 0})
    withdraw(local, f"{WEEK}/v3", "a wrong price")
    assert local.files(f"{WEEK}/v3") == [f"{WEEK}/v3/manifest.json"]
    for _ in ("file", "dictionary"):
        with monkeypatch.context() as cut_off, pytest.raises(KeyboardInterrupt):
            cut_off_after(1, local, cut_off)
            local.remove(f"{WEEK}/v1")
        # Another removal completes it.
        assert f"{WEEK}/v1" in local.versions()
    local.remove(f"{WEEK}/v1")
    assert not Path(local.address(f"{WEEK}/v1")).exists()
    assert [manifest.version for manifest in published(local)] == [2, 4]
    assert Path(local.address(f"{WEEK}/v2")).stat().st_mode & 0o222 == 0


def test_staging_is_left_after_success_failure_or_a_kill(tmp_path: Path) -> None:
    killed = tmp_path / ".staging" / "killed" / "version"
    killed.mkdir(parents=True)
    with staging(tmp_path / ".staging") as directory:
        assert not killed.parent.exists()
        (directory / "file").write_text("x")
    assert not directory.exists()

    with pytest.raises(ValueError), staging(tmp_path / ".staging") as directory:
        (directory / "file").write_text("x")
        raise ValueError
    assert not directory.exists()


def test_two_runs_have_files_in_staging_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lock, "WAIT_SECONDS", 0.2)
    with staging(tmp_path / ".staging") as directory:
        with pytest.raises(DeadlineError, match="Another export has not ended"), staging(tmp_path / ".staging"):
            pass
        assert directory.exists()


def test_a_root_or_home_that_cannot_be_written_is_not_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"file/\.staging cannot be written"), staging(tmp_path / "file" / ".staging"):
        pass
    monkeypatch.setenv("LAKEHOUSE_HOME", str(tmp_path / "file"))
    with pytest.raises(UserError, match=r"file/locks cannot be written"), locked("weekly"):
        pass
