"""Who has been told what: the Iceberg table ops.export_outbox, one row per published version or failed run.

A row is owed to every channel that was configured when it was written, until that channel has taken it. Versions get
their rows from what is published, so one that a crash left without a row gets it from the next run.
"""

from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime

from pyiceberg.catalog import Catalog
from pyiceberg.types import IntegerType, StringType, TimestamptzType

from lakehouse.small_table import Rows, SmallTable
from python_export.channels import Channels
from python_export.manifest import Manifest

OWED, TAKEN, NONE = "pending", "delivered", "no channel"
VERSION, FAILURE = "version", "failure"

TABLE = SmallTable(
    "ops.export_outbox",
    (
        ("idempotency_key", StringType(), "<dataset>/<week>/v<N>, or failure/<week>/<time>: in every message"),
        ("kind", StringType(), "version or failure"),
        ("week", StringType(), "ISO week"),
        ("dataset", StringType(), "of a version"),
        ("version", IntegerType(), "of a version"),
        ("sha256", StringType(), "of a version's file"),
        ("error", StringType(), "of a failure: what the command said"),
        ("recorded_at", TimestamptzType(), "when the row was written"),
        ("mail", StringType(), "pending, delivered, or no channel: none was configured when the row was written"),
        ("webhook", StringType(), "the same"),
        ("failed_attempts", IntegerType(), "how often a channel did not take the message"),
        ("last_error", StringType(), "why it did not, the last time"),
        ("settled_at", TimestamptzType(), "since when nothing is pending"),
    ),
)


@dataclass(frozen=True)
class Entry:
    """A row of the outbox; the columns are described in TABLE."""

    idempotency_key: str
    kind: str
    week: str
    dataset: str | None
    version: int | None
    sha256: str | None
    error: str | None
    recorded_at: datetime
    mail: str
    webhook: str
    failed_attempts: int = 0
    last_error: str | None = None
    settled_at: datetime | None = None


def record_versions(catalog: Catalog, published: Iterable[Manifest], channels: Channels) -> list[Entry]:
    """Add the published versions that have no row yet, and return all rows.

    A version that was moved away and published again with other content is news, so it loses the row that it had.
    """
    now, states = datetime.now(UTC), _states(channels)
    return _add(
        catalog,
        [
            Entry(one.path, VERSION, one.week, one.dataset, one.version, one.sha256, None, now, **states)
            for one in published
        ],
    )


def record_failure(catalog: Catalog, week: str, error: str, channels: Channels) -> None:
    """Add a failed run."""
    now = datetime.now(UTC)
    name = f"failure/{week}/{now:%Y-%m-%dT%H:%M:%S.%fZ}"
    _add(catalog, [Entry(name, FAILURE, week, None, None, None, error, now, **_states(channels))])


def entries(catalog: Catalog) -> list[Entry]:
    """Return all rows."""
    return [Entry(**row) for row in TABLE.rows(catalog).values()]


def settle(catalog: Catalog, group: Iterable[Entry], channel: str) -> None:
    """Note that a channel ("mail" or "webhook") has taken these rows."""

    def settled(entry: Entry) -> Entry:
        changed = replace(entry, **{channel: TAKEN})
        return changed if OWED in {changed.mail, changed.webhook} else replace(changed, settled_at=datetime.now(UTC))

    _update(catalog, {entry.idempotency_key for entry in group}, settled)


def note_failure(catalog: Catalog, group: Iterable[Entry], attempts: int, error: str) -> None:
    """Note that a channel did not take these rows."""
    _update(
        catalog,
        {entry.idempotency_key for entry in group},
        lambda entry: replace(entry, failed_attempts=entry.failed_attempts + attempts, last_error=error),
    )


def _states(channels: Channels) -> dict[str, str]:
    mail, webhook = (OWED if channel else NONE for channel in (channels.smtp, channels.webhook))
    return {"mail": mail, "webhook": webhook}


def _add(catalog: Catalog, new: list[Entry]) -> list[Entry]:
    added = {entry.idempotency_key: asdict(entry) for entry in new}

    def add(rows: Rows) -> Rows:
        known = {key: row for key, row in rows.items() if key not in added or row["sha256"] == added[key]["sha256"]}
        return {**added, **known}

    return [Entry(**row) for row in TABLE.change(catalog, add).values()]


def _update(catalog: Catalog, keys: set[str], change: Callable[[Entry], Entry]) -> None:
    def changed(rows: Rows) -> Rows:
        return {name: asdict(change(Entry(**row))) if name in keys else row for name, row in rows.items()}

    TABLE.change(catalog, changed)
