"""One process at a time on this machine: a lock that the system releases when its holder dies."""

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO

from lakehouse.errors import UserError
from lakehouse.settings import home


@contextmanager
def locked(name: str, say: Callable[[str], None]) -> Iterator[None]:
    """Hold a lock inside the block; `say` gets a line if another process has to be waited for.

    A child that is started with open files holds it too: while the dbt of a killed job still runs, no other one starts.

    Raises:
        UserError: the directory of locks cannot be written.
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
        lock(file, name, say)
        yield


def lock(file: TextIO, name: str, say: Callable[[str], None]) -> None:
    """Lock a file until it is closed; `say` gets a line if another process has to be waited for."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        say(f"waiting for another {name} to finish")
        fcntl.flock(file, fcntl.LOCK_EX)
