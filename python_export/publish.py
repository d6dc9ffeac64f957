"""Makes a verified file public: a version that appears as a whole, then the pointer to the newest one.

A version never changes, because the next content gets the next number; docs/export.md says why readers can rely on it.
"""

import hashlib
import json
from dataclasses import dataclass, replace
from pathlib import Path

from lakehouse.errors import UserError
from python_export.manifest import Manifest, newest
from python_export.target import MANIFEST, Target


@dataclass(frozen=True)
class Published:
    """A version that readers can see; `file` is a path or URL, `unchanged` says it was there before this run."""

    manifest: Manifest
    file: str
    unchanged: bool


def publish(target: Target, staged: Path, draft: Manifest) -> Published:
    """Publish a staged file and return its version.

    `draft` describes the file; its version, supersedes, file, bytes and sha256 are filled in here. A file with the
    content of the week's newest version adds nothing. `staged` stands alone in a directory of the target's staging,
    which is moved.

    Raises:
        UserError: a published version has no readable manifest, or another export has published other content first.
    """
    sha256 = _hash(staged)
    before = newest(target, draft.dataset, draft.week)
    if before and before.sha256 == sha256:
        return _unchanged(target, before)

    version = before.version + 1 if before else 1
    manifest = replace(
        draft,
        version=version,
        supersedes=before.version if before else None,
        file=f"{draft.dataset}_{draft.week}_v{version}.csv",
        bytes=staged.stat().st_size,
        sha256=sha256,
    )
    directory = staged.parent
    staged.rename(directory / manifest.file)
    (directory / MANIFEST).write_text(manifest.text())
    try:
        target.add(directory, manifest.path)
    except FileExistsError:
        first = newest(target, draft.dataset, draft.week)
        if first and first.sha256 == sha256:
            return _unchanged(target, first)
        raise UserError(
            f"Another export is publishing or has published {target.address(manifest.path)} with other content",
            "Run the export again: it compares with what is there then. What a dead export has left on S3 is deleted"
            " by the next run after an hour",
        ) from None
    _point_to_newest(target, draft.dataset)
    return Published(manifest, target.address(f"{manifest.path}/{manifest.file}"), unchanged=False)


def _unchanged(target: Target, manifest: Manifest) -> Published:
    # A run that died between version and pointer is healed here.
    _point_to_newest(target, manifest.dataset)
    return Published(manifest, target.address(f"{manifest.path}/{manifest.file}"), unchanged=True)


def _point_to_newest(target: Target, dataset: str) -> None:
    """Write latest.json: the newest version of the newest week. Late data for an older week does not move it back."""
    shown = None
    # Another machine may have published meanwhile, and pointed to it before this one did.
    while (found := newest(target, dataset)) != shown:
        pointer = {
            "dataset": found.dataset,
            "week": found.week,
            "version": found.version,
            "file": f"{found.week}/v{found.version}/{found.file}",
            "manifest": f"{found.week}/v{found.version}/{MANIFEST}",
            "sha256": found.sha256,
        }
        target.put(f"{dataset}/latest.json", (json.dumps(pointer, indent=2) + "\n").encode())
        shown = found


def _hash(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
