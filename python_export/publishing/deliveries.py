"""Writes deliveries/<week>/<n>.json: the current versions of all datasets of a week, to be read as one.

The newest delivery of a week names exactly its current versions, so a run completes what a dead one has left. A
delivery never changes, and the numbers of a week have no gaps.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from python_common.errors import UserError
from python_export.publishing.audit import CheckResult
from python_export.publishing.bucket import READS_AT_ONCE
from python_export.publishing.layout import DELIVERIES, MANIFEST
from python_export.publishing.manifest import Manifest, paths
from python_export.publishing.target import Target

# Raised when a field gets another meaning; a new field alone does not.
FORMAT = 1


def write(target: Target, listed: Sequence[Manifest], newest: Mapping[str, int]) -> None:
    """Write the next delivery of each week whose current versions changed; delete those of weeks without a version.

    `listed` are the manifests of all current versions, and of withdrawn ones, by dataset. `newest` are the numbers of
    the newest deliveries, read before these: a run that another one overtook meanwhile must not write the next number.

    Raises:
        UserError: another run has written a delivery meanwhile.
    """
    for path, content in _missing(target, listed, newest):
        try:
            target.create(path, content)
        except FileExistsError:
            # The answer to the write may have been lost, on NFS for instance, or another run has found the same.
            if target.read(path) == content:
                continue
            raise UserError(
                f"Another run has written {target.address(path)}",
                "Run the export again: it compares with what is there then",
            ) from None
    if gone := newest.keys() - {manifest.week for manifest in listed}:
        # A manifest that cannot be read is not listed.
        gone -= {path.split("/")[1] for path in paths(target)}
        for path in target.deliveries():
            if path.split("/")[1] in gone:
                target.delete(path)


def audit(target: Target, listed: Sequence[Manifest]) -> CheckResult:
    """Verify that the newest delivery of each week names its current versions."""
    missing = [path for path, _ in _missing(target, listed, newest_numbers(target))]
    return CheckResult(DELIVERIES, tuple(f"{path} is missing; the next export writes it" for path in missing))


def newest_with(
    target: Target, week: str, versions: Iterable[Manifest], withdrawn: Iterable[tuple[str | None, int | None]] = ()
) -> str | None:
    """Return the path of a week's newest delivery; None if it lacks some versions, or names one that is withdrawn.

    So it is after a run that failed. None, too, if it cannot be read: no message waits for it.
    """
    try:
        number = newest_numbers(target).get(week)
        named = {one["dataset"]: one["version"] for one in _named(target, week, number) or ()}
    except Exception:  # a store may fail, and a damaged file be wrong, in any way
        return None
    has_all = all(named.get(version.dataset, 0) >= version.version for version in versions)
    is_current = has_all and named.items().isdisjoint(withdrawn)
    return f"{DELIVERIES}/{week}/{number}.json" if number and is_current else None


def newest_numbers(target: Target) -> dict[str, int]:
    """Return the highest number of a delivery by week."""
    newest: dict[str, int] = {}
    for path in target.deliveries():
        _, week, file = path.split("/")
        newest[week] = max(int(file.removesuffix(".json")), newest.get(week, 0))
    return newest


def _missing(target: Target, listed: Sequence[Manifest], newest: Mapping[str, int]) -> Iterator[tuple[str, bytes]]:
    """Yield path and content of the next delivery of each week whose newest one does not name its current versions."""
    current: dict[str, list[dict[str, object]]] = {manifest.week: [] for manifest in listed}
    for manifest in listed:
        if not manifest.withdrawn:
            version = {name: getattr(manifest, name) for name in ("dataset", "version", "rows", "sha256")}
            current[manifest.week].append(version | {"manifest": f"{manifest.path}/{MANIFEST}"})
    with ThreadPoolExecutor(READS_AT_ONCE) as pool:
        delivered = pool.map(lambda week: _named(target, week, newest.get(week)), current)
        for (week, versions), named in zip(current.items(), delivered, strict=True):
            if named != versions:
                number = newest.get(week, 0) + 1
                delivery = {"delivery_format": FORMAT, "week": week, "delivery": number, "datasets": versions}
                yield f"{DELIVERIES}/{week}/{number}.json", (json.dumps(delivery, indent=2) + "\n").encode()


def _named(target: Target, week: str, number: int | None) -> Any:
    """Return the versions that a delivery names, those of no delivery an empty list; None if it is damaged."""
    if number is None:
        return []
    try:
        return json.loads(target.read(f"{DELIVERIES}/{week}/{number}.json"))["datasets"]
    except (ValueError, LookupError, TypeError):
        return None
