"""The outbox, the Iceberg table ops.export_outbox: a row per published or withdrawn version, or notice.

A row is pending for every channel that was configured when it was written, until that channel has accepted it. Versions
get their rows from what is under the export root, so one that a crash left without a row gets it from the next run.
"""

import hashlib
import re
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Literal

from pyiceberg.catalog import Catalog

from python_common.catalog.small_table import SmallTable
from python_common.errors import Issue
from python_export.publishing.manifest import Manifest, ManifestError, paths, read_all
from python_export.publishing.target import Target, root_id
from python_export.variables import Channels

PENDING, DELIVERED, NO_CHANNEL, DROPPED = "pending", "delivered", "no channel", "dropped"
VERSION, NOTICE, WITHDRAWN, ALARM = "version", "notice", "withdrawn", "alarm"
# Sent without the outbox, in which only earlier versions of this program have left such rows.
ALERT = "failure"
# The first notification of a lake with an export root of years must not repeat these years.
ANNOUNCED_WITHIN = timedelta(days=30)
Channel = Literal["mail", "webhook"]
# Each has a column of the outbox by its name, and this field of Channels.
CHANNELS: dict[Channel, str] = {"mail": "smtp", "webhook": "webhook"}
MOVING_NUMBER = re.compile(r"(?<![\w.])\d[\d,.:-]*(?!\w)")


@dataclass(frozen=True)
class Entry:
    """A row of the outbox."""

    idempotency_key: Annotated[str, "<root>/<dataset>/<week>/v<N>; of another kind: <kind>/<root>/..."]
    kind: Annotated[str, "version, notice, withdrawn or alarm"]
    week: Annotated[str | None, "ISO week"]
    dataset: Annotated[str | None, "of a version or alarm; of a notice, the one that is withheld, if any"]
    version: Annotated[int | None, "of a version"]
    sha256: Annotated[str | None, "of a version's file"]
    error: Annotated[str | None, "the text of a notice, a withdrawal or an alarm"]
    recorded_at: Annotated[datetime, "when the row was written"]
    mail: Annotated[str, "pending, delivered, dropped, no channel, or withdrawn before it was delivered"]
    webhook: Annotated[str, "the same"]
    export_root: Annotated[str | None, "of a version: the address of its root"] = None

    @property
    def path(self) -> str:
        """Where a version is under its export root."""
        return f"{self.dataset}/{self.week}/v{self.version}"

    @property
    def is_pending(self) -> bool:
        """Whether a channel has not delivered it yet."""
        return any(getattr(self, channel) == PENDING for channel in CHANNELS)


TABLE = SmallTable("ops.export_outbox", Entry)


def key_of(target: Target, path: str) -> str:
    """Return the key of a version."""
    return f"{root_id(target)}/{path}"


def record_versions(
    catalog: Catalog, target: Target, channels: Channels, unreadable: list[ManifestError]
) -> dict[str, Manifest]:
    """Add the published and withdrawn versions that have no row yet, and return all manifests by the versions' keys.

    `unreadable` gets the errors of damaged ones, but of those that are delivered. A version that was moved away and
    published again with other content is a new one, so it loses the row that it had.
    """
    now = datetime.now(UTC)
    by_path, errors = read_all(target, paths(target))
    manifests = {key_of(target, path): manifest for path, manifest in by_path.items()}
    damaged = {key_of(target, path): error for path, error in errors.items()}

    def record(before: dict[str, Entry]) -> dict[str, Entry]:
        rows = dict(before)
        for version, manifest in manifests.items():
            entry = _version(target, version, manifest, channels, now)
            if (row := before.get(entry.idempotency_key)) and row.sha256 == entry.sha256:
                continue
            if manifest.withdrawn and version in rows:
                # A version that is withdrawn before readers have heard of it is not announced.
                states: dict[str, Any] = {n: WITHDRAWN for n in CHANNELS if getattr(rows[version], n) == PENDING}
                rows[version] = replace(rows[version], **states)
            rows[entry.idempotency_key] = entry
        return rows

    rows = TABLE.change(catalog, record)
    unreadable += [error for key, error in damaged.items() if key not in rows or rows[key].is_pending]
    return manifests


def _version(target: Target, key: str, manifest: Manifest, channels: Channels, now: datetime) -> Entry:
    """Return the row of a version; nothing is pending for one that was published or withdrawn long ago."""
    withdrawn, text = manifest.withdrawn, None
    at = manifest.created_at
    if withdrawn:
        key, at = f"{WITHDRAWN}/{key}", withdrawn.on
        text = f"{manifest.path} was withdrawn on {withdrawn.on}: {withdrawn.reason}. Delete your copies."
    is_new = datetime.fromisoformat(at).replace(tzinfo=UTC) > now - ANNOUNCED_WITHIN
    return Entry(
        key,
        WITHDRAWN if withdrawn else VERSION,
        manifest.week,
        manifest.dataset,
        manifest.version,
        manifest.sha256,
        text,
        now,
        **_states(channels if is_new else Channels()),
        export_root=target.address(""),
    )


def alert(week: str, error: str, channels: Channels, at: datetime) -> Entry:
    """Return what is sent of a run that failed at a time, in the form of a row."""
    key = f"{ALERT}/{week}/{at:%Y-%m-%dT%H:%M:%S.%fZ}"
    return Entry(key, ALERT, week, None, None, None, error, at, **_states(channels))


def record_notices(
    catalog: Catalog, target: Target, notices: Iterable[Issue], channels: Channels, weeks: Iterable[str]
) -> None:
    """Add the new notices; another number alone, as 31 in place of 30, makes no new one.

    A notice is a line of a week's mail: an issue of a withheld dataset, or a warning without an object. `weeks` are
    those that the notices are complete for: a delivered one that they lack is over. It loses its row, so that it is new
    when it comes back.
    """
    now, root, checked = datetime.now(UTC), f"{NOTICE}/{root_id(target)}/", {*weeks}
    by_name = {
        f"{root}{notice.week}/{hashlib.sha256(MOVING_NUMBER.sub('', notice.message).encode()).hexdigest()[:16]}": notice
        for notice in notices
    }

    def record(rows: dict[str, Entry]) -> dict[str, Entry]:
        names = {key: key.rpartition("/")[0] for key in rows if key.startswith(root)}
        over = {key for key, name in names.items() if name not in by_name and rows[key].week in checked}
        new = {
            key: Entry(
                key, NOTICE, notice.week, notice.object or None, None, None, notice.message, now, **_states(channels)
            )
            for name, notice in by_name.items()
            if name not in names.values()
            for key in [f"{name}/{now:%Y-%m-%dT%H:%M:%S.%fZ}"]
        }
        return {key: row for key, row in rows.items() if key not in over or row.is_pending} | new

    if by_name or checked:
        TABLE.change(catalog, record)


def record_alarms(catalog: Catalog, target: Target, week: str, texts: Mapping[str, str], channels: Channels) -> None:
    """Add an alarm, by its text, for each dataset of a week that has none yet."""
    now = datetime.now(UTC)
    new = {
        key: Entry(key, ALARM, week, dataset, None, None, text, now, **_states(channels))
        for dataset, text in texts.items()
        for key in [f"{ALARM}/{root_id(target)}/{week}/{dataset}"]
    }
    TABLE.change(catalog, lambda rows: new | rows)


def belongs_to(target: Target, entry: Entry) -> bool:
    """Return whether a row is about an export root; an alert is about all."""
    root = entry.idempotency_key.removeprefix(f"{entry.kind}/").partition("/")[0]
    return entry.kind == ALERT or root == root_id(target)


def entries(catalog: Catalog) -> list[Entry]:
    """Return all rows."""
    return [*TABLE.rows(catalog).values()]


def notices(catalog: Catalog, target: Target, week: str) -> list[Issue]:
    """Return the recorded notices of a week of an export root, the newest last."""
    rows = [row for row in entries(catalog) if row.kind == NOTICE and row.week == week and belongs_to(target, row)]
    rows.sort(key=lambda row: row.recorded_at)
    return [Issue(row.error or "", object=row.dataset or "", week=week) for row in rows]


def missing_versions(catalog: Catalog, target: Target) -> list[Entry]:
    """Return the versions of an export root that have a row, not a dropped one, and are missing."""
    there = {key_of(target, path) for path in target.versions()}
    versions = [entry for entry in entries(catalog) if entry.kind == VERSION and belongs_to(target, entry)]
    return [entry for entry in versions if entry.mail != DROPPED and entry.idempotency_key not in there]


def mark_delivered(catalog: Catalog, group: Iterable[Entry], channel: Channel) -> None:
    """Record that a channel has accepted the message of these rows."""
    _mark(catalog, {entry.idempotency_key for entry in group}, {channel: DELIVERED})


def drop(catalog: Catalog, keys: Iterable[str]) -> None:
    """Mark rows as dropped: they are not delivered, and `export verify` does not miss their versions."""
    _mark(catalog, {*keys}, dict.fromkeys(CHANNELS, DROPPED))


def _mark(catalog: Catalog, keys: Container[str], states: dict[str, Any]) -> None:
    TABLE.change(
        catalog, lambda rows: {key: replace(row, **states) if key in keys else row for key, row in rows.items()}
    )


def _states(channels: Channels) -> dict[str, Any]:
    return {name: PENDING if getattr(channels, field) else NO_CHANNEL for name, field in CHANNELS.items()}
