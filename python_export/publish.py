"""Makes a verified file public: a version directory renamed into place, then the pointer to the newest one.

A version appears whole or not at all, because its directory is complete and synced before the one rename; it never
changes afterwards, because the next content gets the next number.
"""

import hashlib
import json
import os
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from lakehouse.errors import UserError
from lakehouse.weeks import IsoWeek

MANIFEST = "manifest.json"


@dataclass(frozen=True)
class Manifest:
    """What stands in manifest.json, in this order.

    `rows` does not count the header; a column has name, type and number of nulls; control totals are exact decimal
    text; the snapshot id is text because it exceeds what JSON readers hold exactly.
    """

    dataset: str
    week: str
    window_start: str
    window_end: str
    version: int
    supersedes: int | None
    file: str
    bytes: int
    sha256: str
    rows: int
    columns: list[dict[str, str | int]]
    control_totals: dict[str, str]
    formula_escaped: dict[str, int]
    source_table: str
    source_snapshot_id: str
    dbt_invocation_id: str
    created_at: str


@dataclass(frozen=True)
class Published:
    """A version that readers can see; `unchanged` when it was there before this run."""

    manifest: Manifest
    file: Path
    unchanged: bool


def publish(root: Path, staged: Path, draft: Manifest) -> Published:
    """Publish a staged file and return its version.

    `draft` describes the file; its version, supersedes, file, bytes and sha256 are filled in here. A file with the
    content of the week's newest version adds nothing. `staged` stands alone in a directory on the root's file system,
    which is moved.

    Raises:
        UserError: a published version has no readable manifest.
    """
    home = root / draft.dataset
    sha256 = _hash(staged)
    newest = newest_version(home / draft.week)
    if newest and newest.sha256 == sha256:
        # A run that died between rename and pointer is healed here.
        _point_to_newest(home)
        return Published(newest, _directory(root, newest) / newest.file, unchanged=True)

    version = newest.version + 1 if newest else 1
    manifest = replace(
        draft,
        version=version,
        supersedes=newest.version if newest else None,
        file=f"{draft.dataset}_{draft.week}_v{version}.csv",
        bytes=staged.stat().st_size,
        sha256=sha256,
    )
    source = staged.parent
    staged.rename(source / manifest.file)
    _sync(source / manifest.file)
    _write(source / MANIFEST, asdict(manifest))
    _sync(source)
    target = _directory(root, manifest)
    target.parent.mkdir(parents=True, exist_ok=True)
    source.rename(target)
    for parent in (target.parent, home, root):
        _sync(parent)
    _point_to_newest(home)
    return Published(manifest, target / manifest.file, unchanged=False)


def newest_version(week_directory: Path) -> Manifest | None:
    """Return the manifest of a week's newest version, or None when there is none.

    Raises:
        UserError: the manifest is missing or damaged.
    """
    numbers = _numbers(week_directory)
    return _read(week_directory, numbers[-1]) if numbers else None


def versions(root: Path) -> list[Manifest]:
    """Return the manifests of all versions of all datasets, by dataset, week and version.

    Raises:
        UserError: a manifest is missing or damaged.
    """
    weeks = sorted(path for path in root.glob("*/*") if _is_week(path.name))
    return [_read(week, number) for week in weeks for number in _numbers(week)]


def _numbers(week_directory: Path) -> list[int]:
    return sorted(int(path.name[1:]) for path in week_directory.glob("v*") if path.name[1:].isdecimal())


def _read(week_directory: Path, number: int) -> Manifest:
    path = week_directory / f"v{number}" / MANIFEST
    try:
        return Manifest(**json.loads(path.read_text()))
    except (OSError, ValueError, TypeError):
        raise UserError(
            f"{path} is missing or damaged",
            "Restore it from a backup, or move its directory away to publish that version again",
        ) from None


def _point_to_newest(home: Path) -> None:
    """Write latest.json: the newest version of the newest week. Late data for an older week does not move it back."""
    weeks = sorted((path for path in home.iterdir() if _is_week(path.name)), reverse=True)
    # A run that died between making a week's directory and its first version leaves it empty.
    newest = next(manifest for week in weeks if (manifest := newest_version(week)))
    path = _directory(home.parent, newest).relative_to(home)
    pointer = {
        "dataset": newest.dataset,
        "week": newest.week,
        "version": newest.version,
        "file": str(path / newest.file),
        "manifest": str(path / MANIFEST),
        "sha256": newest.sha256,
    }
    draft = home / ".latest.json"
    _write(draft, pointer)
    draft.rename(home / "latest.json")
    _sync(home)


def _is_week(name: str) -> bool:
    try:
        IsoWeek.parse(name)
    except UserError:
        return False
    return True


def _directory(root: Path, manifest: Manifest) -> Path:
    return root / manifest.dataset / manifest.week / f"v{manifest.version}"


def _hash(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _write(path: Path, content: dict) -> None:
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n")
    _sync(path)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
