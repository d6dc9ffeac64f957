"""Who has been told what: the Iceberg table ops.export_outbox, one row per published version, failed run, or notice.

A row is owed to every channel that was configured when it was written, until that channel has taken it. Versions get
their rows from what is published, so one that a crash left without a row gets it from the next run.

Readers are told of the first export root, and of others that are adopted. Versions elsewhere are a trial, and those
from before the outbox knew of a root are nothing new: they have rows, and nothing is owed for them.
"""

import hashlib
import re
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from typing import Literal

from pyiceberg.catalog import Catalog
from pyiceberg.types import IntegerType, StringType, TimestamptzType

from lakehouse.small_table import Rows, SmallTable
from python_export.publishing.manifest import Manifest, ManifestError, read
from python_export.publishing.target import Target, root_id
from python_export.variables import Channels

OWED, TAKEN, NONE = "pending", "delivered", "no channel"
OLD, TRIAL, DROPPED = "before the outbox", "another export root", "dropped"
VERSION, FAILURE, NOTICE, ROOT = "version", "failure", "notice", "root"
TOLD = "told"  # of a root that readers are told of
Channel = Literal["mail", "webhook"]
MOVING = re.compile(r"(?<![\w.])\d[\d,.:-]*(?!\w)")

TABLE = SmallTable(
    "ops.export_outbox",
    (
        ("idempotency_key", StringType(), "<root>/<dataset>/<week>/v<N>, failure/<week>/<time>, notice/..."),
        ("kind", StringType(), "version, failure, notice, or root: since when the outbox knows an export root"),
        ("week", StringType(), "ISO week, except of a root"),
        ("dataset", StringType(), "of a version; of a notice, the one that is withheld, if any"),
        ("version", IntegerType(), "of a version"),
        ("sha256", StringType(), "of a version's file"),
        ("error", StringType(), "of a failure or a notice: what the command said"),
        ("recorded_at", TimestamptzType(), "when the row was written"),
        ("mail", StringType(), "pending, delivered, dropped, no channel, before the outbox, or another export root"),
        ("webhook", StringType(), "the same"),
        ("failed_attempts", IntegerType(), "how often a channel did not take the message"),
        ("last_error", StringType(), "why it did not, the last time"),
        ("settled_at", TimestamptzType(), "since when nothing is pending"),
        ("export_root", StringType(), "of a version or a root: its address"),
        ("waiting_for", StringType(), "recipients that the mail is pending for, if others have it"),
    ),
)


@dataclass(frozen=True)
class Entry:
    """A row of the outbox; the columns are described in TABLE."""

    idempotency_key: str
    kind: str
    week: str | None
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
    export_root: str | None = None
    waiting_for: str | None = None

    @property
    def path(self) -> str:
        """Where a version is under its export root."""
        return f"{self.dataset}/{self.week}/v{self.version}"


@dataclass(frozen=True)
class Notice:
    """A line that is to be told of a week: that a dataset is withheld, or a warning. It holds no data."""

    week: str
    dataset: str | None
    text: str


def know_root(catalog: Catalog, target: Target) -> Entry:
    """Return the row of an export root, which is written the first time. That comes before anything is published there.

    The first root of a lake is the one that readers are told of. Rows of a release that knew no roots belong to it if
    they are of versions that are there.
    """
    key, now = f"root/{root_id(target)}", datetime.now(UTC)
    entries_by_key = {name: Entry(**row) for name, row in TABLE.rows(catalog).items()}
    if key in entries_by_key:
        return entries_by_key[key]
    unclaimed = {
        name: entry.path
        for name, entry in entries_by_key.items()
        if entry.kind == VERSION and not entry.export_root and _is_there(target, entry)
    }

    def add(rows: Rows) -> Rows:
        if key in rows:
            return rows
        mine = {name: rows[name] for name in unclaimed if name in rows}
        others = {name: row for name, row in rows.items() if name not in mine}
        is_first = not any(row["kind"] in {ROOT, VERSION} for row in others.values())
        state = TOLD if is_first or mine else TRIAL
        since = min((row["recorded_at"] for row in mine.values()), default=now).replace(microsecond=0)
        root = Entry(key, ROOT, None, None, None, None, None, since, state, state, export_root=target.address(""))
        claimed = {
            name_of(target, unclaimed[name]): row
            | {"idempotency_key": name_of(target, unclaimed[name]), "export_root": target.address("")}
            for name, row in mine.items()
        }
        return {**others, **claimed, key: asdict(root)}

    return Entry(**TABLE.change(catalog, add)[key])


def adopt(catalog: Catalog, target: Target) -> None:
    """Tell readers of this export root too from now on."""
    key = know_root(catalog, target).idempotency_key
    _update(catalog, lambda entry: entry.idempotency_key == key, lambda entry: replace(entry, mail=TOLD, webhook=TOLD))


def name_of(target: Target, path: str) -> str:
    """Return the key of a version."""
    return f"{root_id(target)}/{path}"


def record_versions(catalog: Catalog, target: Target, channels: Channels, unreadable: list[ManifestError]) -> None:
    """Add the published versions that have no row yet; `unreadable` gets what is to be said of those left out.

    A version that was moved away and published again with other content is a new one, so it loses the row that it had.
    Only manifests of versions without a row, or written after it, are read.
    """
    root = know_root(catalog, target)
    recorded_at = {entry.idempotency_key: entry.recorded_at for entry in entries(catalog)}
    found = []
    for path, written in target.versions().items():
        recorded = recorded_at.get(name_of(target, path))
        if recorded is None or written > recorded:
            try:
                manifest = read(target, path)
                found += [] if manifest.withdrawn else [manifest]
            except ManifestError as error:
                unreadable.append(error)
    now = datetime.now(UTC)
    new = [
        Entry(
            name_of(target, manifest.path),
            VERSION,
            manifest.week,
            manifest.dataset,
            manifest.version,
            manifest.sha256,
            None,
            now,
            *_states_of(manifest, root, channels),
            export_root=target.address(""),
        )
        for manifest in found
    ]
    if new:
        _add(catalog, new)


def failure(week: str, error: str, channels: Channels, at: datetime) -> Entry:
    """Return the row of a run that failed at a time."""
    name = f"failure/{week}/{at:%Y-%m-%dT%H:%M:%S.%fZ}"
    return Entry(name, FAILURE, week, None, None, None, error, at, *_states(channels))


def record_notices(catalog: Catalog, target: Target, notices: Iterable[Notice], channels: Channels) -> None:
    """Add the notices that have no row yet: the same one of a week is told once, whatever its numbers are by then."""
    root, now = know_root(catalog, target), datetime.now(UTC)
    states = _states(channels) if root.mail == TOLD else (TRIAL, TRIAL)
    keys = {
        notice: f"{notice.week}/{hashlib.sha256(MOVING.sub('', notice.text).encode()).hexdigest()[:16]}"
        for notice in notices
    }
    new = [
        Entry(
            f"notice/{root_id(target)}/{key}",
            NOTICE,
            notice.week,
            notice.dataset,
            None,
            None,
            notice.text,
            now,
            *states,
        )
        for notice, key in keys.items()
    ]
    if new:
        _add(catalog, new)


def is_notice_of(target: Target, key: str) -> bool:
    """Tell whether a notice is about an export root, by its key."""
    return key.startswith(f"notice/{root_id(target)}/")


def record_failure(catalog: Catalog, entry: Entry) -> None:
    """Add a failed run."""
    _add(catalog, [entry])


def entries(catalog: Catalog) -> list[Entry]:
    """Return all rows but those of roots."""
    return [entry for entry in (Entry(**row) for row in TABLE.rows(catalog).values()) if entry.kind != ROOT]


def gone(catalog: Catalog, target: Target) -> list[Entry]:
    """Return the versions of an export root that have a row and are not there any more, but for dropped ones."""
    there = {name_of(target, path) for path in target.versions()}
    mine = [entry for entry in entries(catalog) if entry.export_root == target.address("") and entry.mail != DROPPED]
    return [entry for entry in mine if entry.idempotency_key not in there]


def settle(catalog: Catalog, group: Iterable[Entry], channel: Channel) -> None:
    """Note that a channel has taken these rows."""

    def settled(entry: Entry) -> Entry:
        by_mail = channel == "mail"
        return _settled(replace(entry, mail=TAKEN, waiting_for=None) if by_mail else replace(entry, webhook=TAKEN))

    _update(catalog, _one_of(group), settled)


def note_failure(catalog: Catalog, group: Iterable[Entry], attempts: int, error: str, waiting_for: str | None) -> None:
    """Note that a channel did not take these rows, or that a mail still waits for some recipients."""
    _update(
        catalog,
        _one_of(group),
        lambda entry: replace(
            entry,
            failed_attempts=entry.failed_attempts + attempts,
            last_error=error,
            waiting_for=waiting_for or entry.waiting_for,
        ),
    )


def owe(catalog: Catalog, keys: Iterable[str], channels: Channels) -> None:
    """Owe rows to all channels once more, whoever has been told of them."""
    mail, webhook = _states(channels)
    _update(
        catalog,
        lambda entry: entry.idempotency_key in {*keys},
        lambda entry: replace(entry, mail=mail, webhook=webhook, settled_at=None, waiting_for=None),
    )


def drop(catalog: Catalog, keys: Iterable[str]) -> None:
    """Owe rows to nobody any more."""
    _update(
        catalog,
        lambda entry: entry.idempotency_key in {*keys},
        lambda entry: _settled(replace(entry, mail=DROPPED, webhook=DROPPED, waiting_for=None)),
    )


def _settled(entry: Entry) -> Entry:
    return entry if OWED in {entry.mail, entry.webhook} else replace(entry, settled_at=datetime.now(UTC))


def _is_there(target: Target, entry: Entry) -> bool:
    try:
        return read(target, entry.path).sha256 == entry.sha256
    except ManifestError:
        return False


def _states_of(manifest: Manifest, root: Entry, channels: Channels) -> tuple[str, str]:
    if root.mail != TOLD:
        return TRIAL, TRIAL
    if datetime.fromisoformat(manifest.created_at) < root.recorded_at:
        return OLD, OLD
    return _states(channels)


def _one_of(group: Iterable[Entry]) -> Callable[[Entry], bool]:
    keys = {entry.idempotency_key for entry in group}
    return lambda entry: entry.idempotency_key in keys


def _states(channels: Channels) -> tuple[str, str]:
    """Return what a new row says of mail and webhook."""
    return OWED if channels.smtp else NONE, OWED if channels.webhook else NONE


def _add(catalog: Catalog, new: list[Entry]) -> None:
    added = {entry.idempotency_key: asdict(entry) for entry in new}

    def add(rows: Rows) -> Rows:
        unchanged = {key: row for key, row in rows.items() if key not in added or row["sha256"] == added[key]["sha256"]}
        return {**added, **unchanged}

    TABLE.change(catalog, add)


def _update(catalog: Catalog, chosen: Callable[[Entry], bool], change: Callable[[Entry], Entry]) -> None:
    def changed(rows: Rows) -> Rows:
        found = {name: Entry(**row) for name, row in rows.items()}
        return {name: asdict(change(entry) if chosen(entry) else entry) for name, entry in found.items()}

    TABLE.change(catalog, changed)
