"""One run at a time on a lake, also where several machines share its catalog: the Iceberg table ops.leases.

The lock of one machine ends with its holder. A lease ends when it is given back, or when it has not been renewed for a
while; a run on the machine and with the home of its holder takes it at once, because it has that machine's lock.
"""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from pyiceberg.catalog import Catalog
from pyiceberg.types import StringType, TimestamptzType

from lakehouse.deadline import Limits
from lakehouse.environment import environment, home
from lakehouse.errors import DeadlineError, UserError
from lakehouse.small_table import Row, Rows, SmallTable

LASTS = timedelta(minutes=30)
RENEWED_AFTER_SECONDS = 600.0
ASKED_AFTER_SECONDS = 5.0

TABLE = SmallTable(
    "ops.leases",
    (
        ("name", StringType(), "what one run at a time may do"),
        ("holder", StringType(), "the machine, and its LAKEHOUSE_HOME"),
        ("expires_at", TimestamptzType(), "when others may take it, unless it is renewed"),
        ("run", StringType(), "what the holder does, if the next holder is to tell that it was killed"),
    ),
)


@dataclass(frozen=True)
class Killed:
    """A run that has not given its lease back, and when the lease was to end."""

    run: str
    at: datetime


class Lease:
    """What a run holds while it works; a thread renews it. `left` is what held it before and was killed."""

    def __init__(self, catalog: Catalog, name: str, run: str | None = None) -> None:
        self._catalog, self._name, self._run = catalog, name, run
        self.left: Killed | None = None
        self._holder = f"{socket.gethostname()}:{home()}"
        self._ended, self._lost = threading.Event(), threading.Event()

    def require(self) -> None:
        """Raise if another machine may be at work.

        Raises:
            UserError: the lease was not renewed in time.
        """
        if self._lost.is_set():
            raise UserError(
                f"The lease {self._name} of {TABLE.identifier} could not be renewed, and another machine may have it",
                "Nothing is lost: run it again when the catalog answers",
            )

    def take(self) -> str | None:
        """Take the lease, and return who else has it."""
        now = datetime.now(UTC)

        def change(rows: Rows) -> Rows:
            held = rows.get(self._name)
            if held and held["holder"] != self._holder and held["expires_at"] > now:
                return rows
            self.left = Killed(held["run"], held["expires_at"]) if held and held["run"] else None
            return {**rows, self._name: self._row(now)}

        holder = TABLE.change(self._catalog, change)[self._name]["holder"]
        return None if holder == self._holder else str(holder)

    def renew(self) -> bool:
        """Tell whether the lease is still this machine's, and is so for another while. One given back stays so."""
        now = datetime.now(UTC)

        def change(rows: Rows) -> Rows:
            is_mine = self._name in rows and rows[self._name]["holder"] == self._holder
            return {**rows, self._name: self._row(now)} if is_mine else rows

        held = TABLE.change(self._catalog, change).get(self._name)
        return held is not None and held["holder"] == self._holder

    def _row(self, now: datetime) -> Row:
        return {"name": self._name, "holder": self._holder, "expires_at": now + LASTS, "run": self._run}

    def give_back(self) -> None:
        """Let others have it."""
        self._ended.set()

        def change(rows: Rows) -> Rows:
            return {name: row for name, row in rows.items() if name != self._name or row["holder"] != self._holder}

        TABLE.change(self._catalog, change)

    def keep(self) -> None:
        """Renew it until it is given back; called in a thread."""
        good_until = datetime.now(UTC) + LASTS
        while not self._ended.wait(RENEWED_AFTER_SECONDS):
            started = datetime.now(UTC)
            try:
                is_mine = self.renew()
                good_until = started + LASTS
            except Exception:  # the catalog may answer again before it ends
                is_mine = True
            if not is_mine or datetime.now(UTC) >= good_until:
                self._lost.set()
                return


@contextmanager
def leased(catalog: Catalog, name: str, say: Callable[[str], None], run: str | None = None) -> Iterator[Lease]:
    """Hold a lease inside the block; `say` gets a line if another machine has to be waited for.

    `run` says what the block does, for the next holder to tell if this one is killed.

    Raises:
        DeadlineError: another machine has it all the time.
    """
    allowed = Limits.of(environment()).lock.total_seconds()
    give_up = datetime.now(UTC) + timedelta(seconds=allowed)
    lease, told = Lease(catalog, name, run), False
    while holder := lease.take():
        if datetime.now(UTC) >= give_up:
            raise DeadlineError(f"The {name} of {holder}", "LAKEHOUSE_LOCK_TIMEOUT", allowed)
        if not told:
            say(f"waiting for the {name} of {holder}")
        told = True
        threading.Event().wait(ASKED_AFTER_SECONDS)
    threading.Thread(target=lease.keep, daemon=True).start()
    try:
        yield lease
    finally:
        # If the catalog does not answer, the lease ends by itself.
        with suppress(Exception):
            lease.give_back()
