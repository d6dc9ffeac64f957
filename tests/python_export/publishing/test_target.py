"""The staging area: private, one run at a time, and clean afterwards."""

import multiprocessing
import os
import signal
import threading
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from python_common.errors import UserError
from python_common.locks.lock import locked
from python_export.publishing.target import staging
from tests.support.race import until


def hold(root: Path, ready: Connection) -> None:
    """Stage a file and hang, for the test to kill."""
    with staging(root) as directory:
        (directory / "part-0.csv").write_text("half a file")
        ready.send(str(directory))
        signal.pause()


def test_is_gone_after_success_and_after_failure(tmp_path: Path) -> None:
    with staging(tmp_path / ".staging") as directory:
        (directory / "file").write_text("x")
    assert not directory.exists()

    with pytest.raises(ValueError), staging(tmp_path / ".staging") as directory:
        (directory / "file").write_text("x")
        raise ValueError
    assert not directory.exists()


def test_removes_what_a_killed_run_left(tmp_path: Path) -> None:
    receiver, sender = multiprocessing.Pipe(duplex=False)
    spawn = multiprocessing.get_context("spawn")
    process = spawn.Process(target=hold, args=(tmp_path / ".staging", sender), daemon=True)
    process.start()
    # Only the child holds this end: if it dies, recv() fails instead of waiting.
    sender.close()
    left_over = Path(receiver.recv())
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    assert left_over.exists()

    with staging(tmp_path / ".staging") as directory:
        assert not left_over.exists()
        assert directory.exists()


def test_a_second_run_waits_for_the_first(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    order: list[str] = []

    def second() -> None:
        with staging(tmp_path / ".staging"):
            order.append("second")

    thread = threading.Thread(target=second)
    with staging(tmp_path / ".staging") as directory:
        thread.start()
        until(lambda: caplog.messages)
        assert directory.exists()
        order.append("first")
    thread.join(10)

    assert caplog.messages == ["waiting for another export"]
    assert order == ["first", "second"]


def test_a_root_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(UserError, match=r"file/\.staging cannot be written"),
        staging(tmp_path / "file" / ".staging"),
    ):
        pass


def test_a_home_that_cannot_be_written_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("LAKEHOUSE_HOME", str(tmp_path / "file"))
    with pytest.raises(UserError, match=r"file/locks cannot be written"), locked("weekly"):
        pass


def test_a_full_disk_is_an_error_with_a_name(tmp_path: Path) -> None:
    with (
        pytest.raises(UserError, match="The export stopped: No space left on device"),
        staging(tmp_path / ".staging"),
    ):
        Path("/dev/full").write_text("x")
    assert not list((tmp_path / ".staging").glob("*/"))
