"""The staging area: private, one run at a time, and clean afterwards."""

from pathlib import Path

import pytest

from python_common.errors import DeadlineError, UserError
from python_common.locks import lock
from python_common.locks.lock import locked
from python_export.publishing.target import staging


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
