"""Waits for another thread or process."""

import time
from collections.abc import Callable

import pytest


def until(holds: Callable[[], object], seconds: float = 30.0) -> None:
    """Wait until a condition holds, and fail the test if it does not in time."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if holds():
            return
        time.sleep(0.05)
    pytest.fail("it never came true")
