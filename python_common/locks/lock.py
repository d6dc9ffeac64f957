"""Locks: one process at a time on this machine. The system releases a lock when its holder dies."""

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO

from python_common.config.environment import home
from python_common.errors import DeadlineError, UserError
from python_common.log import log

# A timer or a user starts again what has waited in vain.
WAIT_SECONDS = 3600.0
ASKED_AFTER_SECONDS = 0.2


@contextmanager
def locked(name: str) -> Iterator[None]:
    """Hold a lock inside the block; log it if another process has to be waited for.

    Child processes inherit it: while the dbt of a killed job still runs, no other one starts.

    Raises:
        UserError: the directory of locks cannot be written.
        DeadlineError: the other process has not ended within WAIT_SECONDS.
    """
    directory = home() / "locks"
    try:
        directory.mkdir(parents=True, exist_ok=True)
        file = (directory / name).open("w")
    except OSError as error:
        raise UserError(
            f"{directory} cannot be written: {error.strerror}", "Correct LAKEHOUSE_HOME, or the directory's owner"
        ) from None
    with file:
        os.set_inheritable(file.fileno(), True)
        lock(file, name)
        yield


def lock(file: TextIO, name: str) -> None:
    """Lock a file until it is closed; logs and raises DeadlineError as `locked`."""

    def holder() -> str | None:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return f"another {name}"
        return None

    wait_until_free(holder, ASKED_AFTER_SECONDS)


def wait_until_free(holder: Callable[[], str | None], pause: float) -> None:
    """Ask for a holder, which is logged once, until it is None; a DeadlineError after WAIT_SECONDS."""
    start, is_logged = time.monotonic(), False
    while other := holder():
        if time.monotonic() - start >= WAIT_SECONDS:
            raise DeadlineError(f"{other[0].upper()}{other[1:]}", WAIT_SECONDS)
        if not is_logged:
            log.info("waiting for %s", other)
        is_logged = True
        time.sleep(pause)
