"""One run at a time on a lake, also where several machines share its catalog: the Iceberg table ops.leases.

The lock of one machine ends with its holder. A lease ends when it is given back, or when it has not been renewed for a
while; a run on the machine and with the home of its holder takes it at once, because it has that machine's lock.
"""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta

from pyiceberg.catalog import Catalog
from pyiceberg.types import StringType, TimestamptzType

from lakehouse.deadline import Limits
from lakehouse.environment import environment, home
from lakehouse.errors import DeadlineError, UserError
from lakehouse.small_table import Rows, SmallTable

LASTS = timedelta(minutes=30)
RENEWED_AFTER_SECONDS = 600.0
ASKED_AFTER_SECONDS = 5.0

TABLE = SmallTable(
    "ops.leases",
    (
        ("name", StringType(), "what one run at a time may do"),
        ("holder", StringType(), "the machine, and its LAKEHOUSE_HOME"),
        ("expires_at", TimestamptzType(), "when others may take it, unless it is renewed"),
    ),
)


class Lease:
    """What a run holds while it works; a thread renews it."""

    def __init__(self, catalog: Catalog, name: str) -> None:
        self._catalog, self._name = catalog, name
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
        """Take the lease, or renew it, and return who else has it."""
        now = datetime.now(UTC)
        mine = {"name": self._name, "holder": self._holder, "expires_at": now + LASTS}

        def change(rows: Rows) -> Rows:
            held = rows.get(self._name)
            is_free = held is None or held["holder"] == self._holder or held["expires_at"] <= now
            return {**rows, self._name: mine} if is_free else rows

        holder = TABLE.change(self._catalog, change)[self._name]["holder"]
        return None if holder == self._holder else str(holder)

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
            try:
                taken_by = self.take()
                good_until = datetime.now(UTC) + LASTS
            except Exception:  # the catalog may answer again before it ends
                taken_by = None
            if taken_by or datetime.now(UTC) >= good_until:
                self._lost.set()
                return


@contextmanager
def leased(catalog: Catalog, name: str, say: Callable[[str], None]) -> Iterator[Lease]:
    """Hold a lease inside the block; `say` gets a line if another machine has to be waited for.

    Raises:
        DeadlineError: another machine has it all the time.
    """
    allowed = Limits.of(environment()).lock.total_seconds()
    give_up = datetime.now(UTC) + timedelta(seconds=allowed)
    lease, told = Lease(catalog, name), False
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
