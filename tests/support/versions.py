"""Versions of events: published, damaged, and listed with all that is below the export root."""

import json
import re
import secrets
from collections.abc import Collection, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from python_export.datasets.dictionary import Field
from python_export.publishing.directory import STAGING
from python_export.publishing.layout import CONDITIONAL
from python_export.publishing.manifest import Manifest
from python_export.publishing.publish import Published, publish
from python_export.publishing.target import Target
from tests.support.hostile_rows import draft


def stage(target: Target, content: str) -> Path:
    """Return a file that is alone in its directory, ready to be published."""
    staged = target.staging / secrets.token_hex(4) / "part-0.csv"
    staged.parent.mkdir(parents=True)
    staged.write_bytes(content.encode())
    return staged


def publish_file(
    target: Target, content: str, manifest: Manifest, fields: Iterable[Field] = (), **options: Any
) -> Published:
    """Publish a file of this content, which a manifest describes, without a lock, as another machine does."""
    staged = stage(target, content)
    return publish(target, staged, manifest, fields, staged.parent.with_suffix(".scratch"), **options)


def publish_content(
    target: Target, content: str, week: str = "2020-W53", formats: Collection[str] = (), **fields: Any
) -> Published:
    """Publish a file of this content, whose manifest has these fields, for tests that are not about the others."""
    described = [Field("note", "", description="A text.")]
    return publish_file(target, content, replace(draft(week), **fields), described, other_formats=formats)


def tree(target: Target) -> dict[str, bytes]:
    """Return every public file, but for the one that shows what the store can do."""
    depths = ("/".join("*" * depth) for depth in range(1, 8))
    files = {path for path, _ in target.store.listed("", *depths) if not path.startswith(STAGING)}
    return {path: target.read(path) for path in files - {CONDITIONAL}}


def without_folders(paths: Iterable[str]) -> set[str]:
    """Return paths without the folders of uploads."""
    return {re.sub(r"/lakehouse-[0-9a-f]{16}/", "/", path) for path in paths}


def overwrite(target: Target, path: str, content: bytes | None) -> None:
    """Damage what is published, as no user of it could."""
    target.delete(path)
    if content is not None:
        target.put(path, content)


def pointer(target: Target) -> dict:
    return json.loads(target.read("events/latest.json"))
