"""Changes of a table that are retried after a commit conflict; PyIceberg's transactions cache their metadata."""

import math
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import TypeVar

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException, NoSuchTableError, TableAlreadyExistsError
from pyiceberg.table import Transaction
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import update_table_metadata
from tenacity import Retrying, retry_if_exception_type, stop_after_attempt

from python_common.errors import UserError

Result = TypeVar("Result")
# Iceberg's Java cannot read metadata in which time goes back by more than a minute; PyIceberg writes it all the same.
TOLERATED_SECONDS = 55.0
CLOCK_WAIT_SECONDS = 60.0
# Each failure is another commit that succeeded, so more attempts help only against writers that never pause.
COMMIT_ATTEMPTS = 5


class CommitConflict(Exception):
    """Nothing was committed, usually because another commit came first."""


def _staged_metadata(transaction: Transaction) -> TableMetadata:
    """Return a table's metadata with a transaction's updates, cached until these change.

    PyIceberg computes it at each access, 46 times in an overwrite, with a copy of all snapshots
    (apache/iceberg-python#3784).
    """
    base, updates = transaction._table.metadata, transaction._updates
    known = vars(transaction).get("staged")
    if known is None or known[0] is not base or known[1] is not updates:
        known = vars(transaction)["staged"] = base, updates, update_table_metadata(base, updates)
    return known[2]


Transaction.table_metadata = property(_staged_metadata)  # type: ignore[assignment,method-assign]


def wait_for_clock(table: str, base: TableMetadata) -> None:
    """Wait until this clock is less than a minute behind a table's last change; a UserError if that takes too long."""
    changed = max(_times(base)) / 1000
    behind = changed - TOLERATED_SECONDS - time.time()
    if behind > CLOCK_WAIT_SECONDS:
        last_change, now = (f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M:%S} UTC" for at in (changed, time.time()))
        raise UserError(
            f"{table} was last changed at {last_change}, and the clock of {socket.gethostname()} shows {now}",
            "Nothing is lost: synchronise the clocks of all machines (NTP), and run again after the later time",
        )
    time.sleep(max(0.0, behind))


def refuse_backward_times(table: str, base: TableMetadata, changed: TableMetadata) -> None:
    """Raise if time goes back from a table's metadata to the changed one, once the clock is right for another attempt.

    Raises:
        CommitFailedException: another attempt has later times.
        UserError: the clock is too far behind.
    """
    # The last entry of the snapshot log is old where the change added none.
    new = [at for at in _times(changed) if at not in _times(base)]
    if min(new, default=math.inf) < max(_times(base)) - TOLERATED_SECONDS * 1000:
        wait_for_clock(table, base)
        raise CommitFailedException("The clock was behind the table's last change")


def _times(metadata: TableMetadata) -> list[int]:
    return [metadata.last_updated_ms, *(entry.timestamp_ms for entry in metadata.snapshot_log[-1:])]


@contextmanager
def translate_commit_errors() -> Iterator[None]:
    """Raise CommitConflict where PyIceberg refuses a commit."""
    try:
        yield
    except (CommitFailedException, TableAlreadyExistsError):
        raise CommitConflict("another process changed the table") from None


def until_committed(change: Callable[[], Result], failed: str, remedy: str, attempts: int = COMMIT_ATTEMPTS) -> Result:
    """Return the result of a change, retried from its start after each conflict, without a pause.

    Raises:
        UserError: `failed`, after `attempts` conflicts.
    """
    retrying = Retrying(stop=stop_after_attempt(attempts), retry=retry_if_exception_type(CommitConflict), reraise=True)
    try:
        return retrying(translate_commit_errors()(change))
    except CommitConflict:
        raise UserError(f"{failed}, {attempts} times in a row", remedy) from None


def tag(
    catalog: Catalog, identifier: str, name: str, snapshot_id: int | None = None, age_ms: int | None = None
) -> None:
    """Tag a snapshot of a table, by default the current one, instead of what has the tag; not one that is gone.

    `age_ms` is how long expiry keeps the tag. A UserError if others commit to the table all the time.
    """

    def tagged() -> None:
        table = catalog.load_table(identifier)
        snapshot = table.current_snapshot() if snapshot_id is None else table.snapshot_by_id(snapshot_id)
        other = table.refs().get(name)
        if snapshot is None or (other and (other.snapshot_id, other.max_ref_age_ms) == (snapshot.snapshot_id, age_ms)):
            return
        with table.manage_snapshots() as change:
            (change.remove_tag(name) if other else change).create_tag(snapshot.snapshot_id, name, age_ms)

    until_committed(tagged, f"{identifier} could not be tagged {name}: others changed it", "Run it again")


def remove_tag(catalog: Catalog, identifier: str, tag: str) -> None:
    """Remove a tag from a table if both are there; a UserError if others commit to the table all the time."""

    def removed() -> None:
        with suppress(NoSuchTableError):
            table = catalog.load_table(identifier)
            if tag in table.refs():
                table.manage_snapshots().remove_tag(tag).commit()

    until_committed(removed, f"{identifier} could not lose the tag {tag}: others changed it", "Run it again")
