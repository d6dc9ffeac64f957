"""What commands write is their user's alone; what they publish follows the umask of their caller."""

import errno
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from python_common import private_files
from python_common.errors import UserError
from python_dev.stack import stack

WRITE = """
import sys
from pathlib import Path
from prometheus_client import CollectorRegistry
from python_common import metrics_file
from python_common import private_files as private
private.set_umask()
private.set_umask()
metrics_file.write(Path(sys.argv[1], "weekly.prom"), CollectorRegistry())
Path(sys.argv[1], "file").write_text("")
Path(sys.argv[1], "directory").mkdir()
print(oct(private.for_readers(0o666)), oct(private.for_readers(0o777)))
"""


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_only_published_files_follow_the_umask_of_the_caller(tmp_path: Path) -> None:
    command = [sys.executable, "-c", WRITE, str(tmp_path)]
    finished = subprocess.run(command, capture_output=True, text=True, check=True, umask=0o027)
    assert finished.stdout.strip() == "0o640 0o750"
    assert mode(tmp_path / "file") == 0o600
    assert mode(tmp_path / "directory") == 0o700
    # The node exporter is another user.
    assert mode(tmp_path / "weekly.prom") == 0o640


def test_a_directory_that_was_open_is_closed(tmp_path: Path) -> None:
    directory = tmp_path / "logs"
    directory.mkdir(mode=0o755)
    assert mode(private_files.directory(directory)) == 0o700


def test_a_file_that_was_open_is_replaced_by_a_private_one(tmp_path: Path) -> None:
    path = tmp_path / "env"
    path.write_text("old")
    path.chmod(0o644)
    private_files.write(path, "new")
    assert (path.read_text(), mode(path)) == ("new", 0o600)
    assert [file.name for file in tmp_path.iterdir()] == ["env"]


def test_a_file_system_without_hard_links_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.ENOTSUP, os.strerror(errno.ENOTSUP))

    monkeypatch.setattr(os, "link", refuse)
    with pytest.raises(UserError, match=r"file cannot be made: Operation not .*\. Use a file system with hard links"):
        private_files.write(tmp_path / "file", "first", replaces=False)
    assert [*tmp_path.iterdir()] == []


def test_a_file_that_must_stay_is_not_replaced(tmp_path: Path) -> None:
    file = private_files.write(tmp_path / "file", "first", mode=0o444, replaces=False)
    with pytest.raises(FileExistsError):
        private_files.write(file, "second", replaces=False)
    assert (file.read_text(), mode(file)) == ("first", 0o444)
    assert [*tmp_path.iterdir()] == [file]


def test_wipe_deletes_only_a_directory_that_the_stack_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("new", "used"):
        home = tmp_path / name
        monkeypatch.setenv("LAKEHOUSE_HOME", str(home))
        for variable in ("DBT_TARGET_PATH", "DBT_LOG_PATH"):
            monkeypatch.setenv(variable, str(home / variable.lower()))
        if name == "used":
            home.mkdir()
            (home / "thesis.txt").write_text("ten years")
        # A second start finds the files of the first one.
        for services in (("kafka", "registry", "thrift", "mail"), ()):
            stack.prepare(stack.variables(services))
    with pytest.raises(UserError, match="had other files before the stack used it"):
        stack.wipe()
    assert (tmp_path / "used" / "thesis.txt").read_text() == "ten years"
    monkeypatch.setenv("LAKEHOUSE_HOME", str(tmp_path / "new"))
    for _ in range(2):
        stack.wipe()
    assert not (tmp_path / "new").exists()


PUBLISH = """
import sys
from pathlib import Path
from python_common import private_files as private
from python_export.publishing.directory import Directory
from python_export.publishing.target import Target, staging
private.set_umask()
target = Target(Directory(Path(sys.argv[1])))
with staging(target.staging) as directory:
    (directory / "upload").mkdir()
    (directory / "upload" / "sales.csv").write_text("")
    target.add(directory / "upload", "sales/2026-W46/v1", b"{}")
target.put("sales/latest.json", b"{}")
"""


def test_published_files_are_for_readers_and_staging_is_not(tmp_path: Path) -> None:
    root = tmp_path / "exports"
    subprocess.run([sys.executable, "-c", PUBLISH, str(root)], check=True, umask=0o027)
    version = root / "sales" / "2026-W46" / "v1"
    folders = [root, root / "sales", root / "sales" / "2026-W46", version, version / "upload"]
    assert [mode(folder) & 0o055 for folder in folders] == [0o050] * 5
    files = [root / "sales" / "latest.json", version / "manifest.json", version / "upload" / "sales.csv"]
    assert [mode(file) & 0o077 for file in files] == [0o040] * 3
    assert mode(root / ".staging") == 0o700
