"""Versions of events: published, damaged, and listed with all that is below the export root."""

import hashlib
import json
import re
import secrets
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any

from python_export.datasets.dictionary import Field
from python_export.publishing.manifest import Manifest
from python_export.publishing.publish import Published, publish
from python_export.publishing.s3_target import CONDITIONAL, S3Target
from python_export.publishing.target import Target
from tests.support.hostile_rows import draft
from tests.support.publishing import unlock


def stage(target: Target, content: str) -> Path:
    """Return a file that is alone in its directory, ready to be published."""
    staged = target.staging / secrets.token_hex(4) / "part-0.csv"
    staged.parent.mkdir(parents=True)
    staged.write_text(content)
    return staged


def publish_file(
    target: Target, content: str, manifest: Manifest, fields: Iterable[Field] = (), **options: Any
) -> Published:
    """Publish a file of this content, which a manifest describes."""
    return publish(target, stage(target, content), manifest, fields, target.staging / "scratch", **options)


def publish_content(target: Target, content: str, week: str = "2020-W53", restated: str | None = None) -> Published:
    described = replace(draft(week), restated=restated)
    return publish_file(target, content, described, [Field("note", "", description="A text.")])


def tree(target: Target) -> dict[str, bytes]:
    """Return every public file."""
    if isinstance(target, S3Target):
        return {path: target.read(path) for path, _ in target._objects()}
    files = (path for path in target.root.rglob("*") if path.is_file() and ".staging" not in path.parts)
    return {str(path.relative_to(target.root)): path.read_bytes() for path in files}


def without_folders(paths: Iterable[str]) -> set[str]:
    """Return paths without the folders of uploads, and without the object that shows what the store can do."""
    return {re.sub(r"/lakehouse-[0-9a-f]{16}/", "/", path) for path in paths} - {CONDITIONAL}


def overwrite(target: Target, path: str, content: bytes | None) -> None:
    """Damage what is published, as no user of it could."""
    if isinstance(target, S3Target):
        target.client.delete_object(Bucket=target.bucket, Key=target._key(path))
    else:
        unlock((target.root / path).parent)
        (target.root / path).unlink()
    if content is not None:
        target.put(path, content)


def pointer(target: Target) -> dict:
    return json.loads(target.read("events/latest.json"))


def changes(target: Target, manifest: Manifest) -> bytes:
    """Return changes.csv of a version, of which the manifest has the SHA-256."""
    content = target.read(str(PurePosixPath(manifest.path, manifest.file).with_name("changes.csv")))
    assert hashlib.sha256(content).hexdigest() == manifest.changes_sha256
    return content
