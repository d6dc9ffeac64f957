"""Changes of a table that another process's commit can come before: refused then, and done again."""

import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TypeVar

from pyiceberg.exceptions import CommitFailedException, TableAlreadyExistsError
from pyiceberg.table.metadata import TableMetadata
from tenacity import Retrying, retry_if_exception_type, stop_after_attempt

from lakehouse.environment import environment
from lakehouse.errors import UserError
from lakehouse.variables import Count, Variables, variable

Result = TypeVar("Result")
# Iceberg's Java cannot read metadata in which time goes back by more than a minute; PyIceberg writes it all the same.
TOLERATED_SECONDS = 55.0
CLOCK_WAIT_SECONDS = 60.0


class Refused(Exception):
    """Nothing was committed, usually because another commit came first. Plan again."""


class Attempts(Variables):
    """How often a change is tried."""

    commit: Count = variable(
        "LAKEHOUSE_COMMIT_ATTEMPTS",
        "how often a change of a table is tried, and a batch planned, that the commits of others come before",
        "5",
        read_by="all",
    )


def wait_for_clock(location: str, changed_ms: int) -> None:
    """Wait until this machine's clock is less than a minute behind a table's last change, in epoch milliseconds.

    Raises:
        UserError: the clock is further behind than is worth waiting for.
    """
    behind = changed_ms / 1000 - TOLERATED_SECONDS - time.time()
    if behind > CLOCK_WAIT_SECONDS:
        changed = datetime.fromtimestamp(changed_ms / 1000, UTC)
        raise UserError(
            f"{location} was last changed at {changed:%Y-%m-%d %H:%M:%S} UTC, and the clock of {socket.gethostname()}"
            f" shows {datetime.fromtimestamp(time.time(), UTC):%Y-%m-%d %H:%M:%S} UTC",
            "Nothing is lost: synchronise the clocks of all machines (NTP), and run again after the later time",
        )
    time.sleep(max(0.0, behind))


def refuse_backward_times(metadata: TableMetadata) -> None:
    """Raise for new metadata in which time goes back, once this machine's clock is right for another attempt.

    Raises:
        CommitFailedException: another attempt has later times.
        UserError: the clock is too far behind.
    """
    snapshots = [entry.timestamp_ms for entry in metadata.snapshot_log[-2:]]
    before = [entry.timestamp_ms for entry in metadata.metadata_log[-1:]] + snapshots
    if before and min([metadata.last_updated_ms, *snapshots[-1:]]) < max(before) - TOLERATED_SECONDS * 1000:
        wait_for_clock(metadata.location, max(before))
        raise CommitFailedException("The clock was behind the table's last change")


@contextmanager
def committing() -> Iterator[None]:
    """Raise Refused where PyIceberg refuses a commit."""
    try:
        yield
    except (CommitFailedException, TableAlreadyExistsError):
        raise Refused("another process changed the table") from None


def until_committed(change: Callable[[], Result], failed: str, remedy: str, attempts: int | None = None) -> Result:
    """Return what a change returns, done again from its start as often as it is refused, without a pause.

    Raises:
        UserError: others came first every time, LAKEHOUSE_COMMIT_ATTEMPTS unless told: `failed`, so many times.
    """
    attempts = attempts or Attempts.of(environment()).commit
    retrying = Retrying(stop=stop_after_attempt(attempts), retry=retry_if_exception_type(Refused), reraise=True)
    try:
        return retrying(committing()(change))
    except Refused:
        raise UserError(f"{failed}, {attempts} times in a row", remedy) from None
