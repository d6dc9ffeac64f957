"""Waits for another thread or process."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest


def until(holds: Callable[[], object], seconds: float = 30.0) -> None:
    """Wait until a condition holds, and fail the test if it does not in time."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if holds():
            return
        time.sleep(0.05)
    pytest.fail("it never came true")


def hanging_dbt(directory: Path, patch: pytest.MonkeyPatch) -> Path:
    """Put a program in the place of dbt that does not end, and return the file that it writes its pid to."""
    dbt, pid = directory / "dbt", directory / "pid"
    dbt.write_text(f"#!/bin/sh\necho $$ > {pid}.new\nmv {pid}.new {pid}\nexec sleep 3600\n")
    dbt.chmod(0o755)
    patch.setattr("sys.executable", str(directory / "python"))
    return pid
