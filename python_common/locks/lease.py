"""Leases: one run at a time on a lake that several machines share, by the Iceberg table ops.leases.

A lock ends with its process. A lease ends when it is given back or expires; a run with its holder's host and home takes
it at once, because it has that machine's lock.

Each lease has a number, one more than the last. A run that was stopped for longer than its lease, for instance with its
virtual machine, finds another number before its next step and ends (`Lease.require`). If it is stopped again between
that check and its write, the store refuses the write:

- a batch takes its number and offsets by the table's compare-and-swap, without a lease;
- a version takes the number after those that existed before the check, and is written only if it does not exist;
- an export must be tested by a build of this run, which gets the number and tags nothing without it
  (`macros/require_lease.sql`);
- the rows of a small table are replaced only if no other process changed them.

A mail or a webhook call may come twice then, under one idempotency key.

A machine compares its clock with an expiry by the holder's clock. A clock that is behind waits longer, and if it is
behind by two minutes or more nothing is written (`commits.wait_for_clock`). One that is ahead by more than ten minutes,
which remain after a failed renewal, may take a lease too early: its holder then ends before its next step.
"""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Annotated

from pyiceberg.catalog import Catalog
from pyiceberg.types import LongType

from python_common.catalog.small_table import SmallTable
from python_common.config.environment import home
from python_common.errors import UserError
from python_common.locks import lock

LASTS = timedelta(minutes=30)
RENEWED_AFTER_SECONDS = 600.0
ASKED_AFTER_SECONDS = 5.0


@dataclass(frozen=True)
class LeaseRow:
    """A lease. The row of a released lease stays, for its number."""

    name: Annotated[str, "what one run at a time may do"]
    holder: Annotated[str | None, "the machine, and its LAKEHOUSE_HOME; null while it is free"]
    expires_at: Annotated[datetime, "when others may take it, unless it is renewed"]
    number: Annotated[int, "how often it was taken", LongType()]
    command: Annotated[str, "what the holder does"]
    since: Annotated[datetime, "when the holder took it"]

    def __str__(self) -> str:
        return f"{self.holder} ({self.command}, since {self.since:%Y-%m-%d %H:%M:%S} UTC)"


TABLE = SmallTable("ops.leases", LeaseRow)

_held: dict[str, int] = {}
"""The number of each lease that this process holds."""


class LeaseLostError(UserError):
    """Another run may have the lease: this one must stop."""


class Lease:
    """A lease of this process, renewed by a thread."""

    def __init__(self, catalog: Catalog, name: str, command: str) -> None:
        self._catalog, self._name, self._command = catalog, name, command
        self._holder = f"{socket.gethostname()}:{home()}"
        self.number, self._since = 0, datetime.now(UTC)
        self._ended = threading.Event()

    def require(self) -> None:
        """Raise a LeaseLostError if another run may have the lease. Called before each exclusive step."""
        row = TABLE.rows(self._catalog).get(self._name)
        if row and self._is_mine(row) and (row.expires_at > datetime.now(UTC) + LASTS / 2 or self.renew()):
            return
        row = TABLE.rows(self._catalog).get(self._name)
        since = f"{row} has it" if row and row.holder else "another run has had it since"
        raise LeaseLostError(
            f"This run was stopped for longer than its lease {self._name} of {TABLE.identifier} lasts, and {since}",
            "Nothing is lost: run it again, and it goes on where the other one ends",
        )

    def take(self) -> str | None:
        """Take the lease, or return its holder."""
        now = datetime.now(UTC)

        def taken(before: LeaseRow | None) -> LeaseRow:
            if before and before.holder not in (None, self._holder) and before.expires_at > now:
                return before
            self.number, self._since = before.number + 1 if before else 1, now
            return self._row(now)

        row = self._change(taken)
        return None if self._is_mine(row) else str(row)

    def renew(self) -> bool:
        """Renew the lease, and return whether it is still this run's. A released one is not acquired again."""
        now = datetime.now(UTC)
        return self._is_mine(self._change(lambda row: self._row(now) if self._is_mine(row) else row))

    def give_back(self) -> None:
        """Give the lease back. The row keeps its number."""
        self._ended.set()
        now = datetime.now(UTC)
        self._change(lambda row: replace(row, holder=None, expires_at=now) if row and self._is_mine(row) else row)

    def keep(self) -> None:
        """Renew the lease until it is released or lost; runs in a thread."""
        while not self._ended.wait(RENEWED_AFTER_SECONDS):
            with suppress(Exception):  # the catalog may answer again before the lease expires
                if not self.renew():
                    return

    def _change(self, change: Callable[[LeaseRow | None], LeaseRow | None]) -> LeaseRow | None:
        """Replace the row by what `change` makes of it, and return this."""

        def changed(rows: dict[str, LeaseRow]) -> dict[str, LeaseRow]:
            row = change(rows.get(self._name))
            return {**rows, self._name: row} if row else rows

        return TABLE.change(self._catalog, changed).get(self._name)

    def _is_mine(self, row: LeaseRow | None) -> bool:
        return row is not None and (row.holder, row.number) == (self._holder, self.number)

    def _row(self, now: datetime) -> LeaseRow:
        return LeaseRow(self._name, self._holder, now + LASTS, self.number, self._command, self._since)


def held_number(name: str) -> str:
    """Return the number of a lease of this process, for its child processes; empty without one."""
    return str(_held.get(name, ""))


def holder(catalog: Catalog, name: str, number: str) -> str | None:
    """Return the holder of a lease that has not expired and has this number."""
    row = TABLE.rows(catalog).get(name)
    is_live = row and row.holder and row.expires_at > datetime.now(UTC)
    return str(row) if row and is_live and str(row.number) == number else None


@contextmanager
def leased(catalog: Catalog, name: str, command: str) -> Iterator[Lease]:
    """Hold a lease inside the block; log it if another machine has to be waited for. `command` names what it does.

    Raises:
        DeadlineError: another machine has it all the time.
    """
    lease = Lease(catalog, name, command)
    lock.wait_until_free(lambda: (other := lease.take()) and f"the {name} of {other}", ASKED_AFTER_SECONDS)
    threading.Thread(target=lease.keep, daemon=True).start()
    _held[name] = lease.number
    try:
        yield lease
    finally:
        del _held[name]
        # If the catalog does not answer, the lease expires.
        with suppress(Exception):
            lease.give_back()


@contextmanager
def alone(catalog: Catalog, name: str, command: str) -> Iterator[Lease]:
    """Hold lock and lease of a name inside the block, against runs on this machine and others; raises as both."""
    with lock.locked(name), leased(catalog, name, command) as lease:
        yield lease
