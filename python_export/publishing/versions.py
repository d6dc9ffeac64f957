"""Tags the snapshot of each published version, which expiry then keeps, reads it again, and removes old versions."""

import shutil
from dataclasses import replace
from pathlib import Path

from pyiceberg.catalog import Catalog

from python_common.catalog import commits, property_keys
from python_common.catalog.catalog import load_table
from python_common.errors import UserError
from python_common.log import log
from python_common.weeks import IsoWeek
from python_export.csv import pii_scan
from python_export.csv.write import write
from python_export.datasets import snapshot
from python_export.datasets.declared import Dataset
from python_export.datasets.snapshot import Source
from python_export.publishing import formats
from python_export.publishing.manifest import FORMULA_GUARD, Manifest
from python_export.publishing.target import Target, digest, root_id, staging


class SnapshotErasedError(UserError):
    """The snapshot that a version was made from was expired because a person was erased from it."""


def tag_snapshot(catalog: Catalog, target: Target, manifest: Manifest) -> None:
    """Tag the snapshot that a version was made from, unless it is tagged or gone. Each export root has other tags.

    Raises:
        UserError: others commit to the table all the time.
    """
    # Another snapshot has the tag if the version was moved away and published again.
    commits.tag(catalog, manifest.source_identifier, tag_name(target, manifest), int(manifest.source_snapshot_id))


def remove_version(catalog: Catalog, target: Target, path: str, manifest: Manifest) -> None:
    """Remove the version at a path, and the tag that keeps its snapshot; done again, it completes what was cut off.

    Raises:
        UserError: others commit to the table all the time.
    """
    commits.remove_tag(catalog, manifest.source_identifier, tag_name(target, manifest))
    target.remove(path)


def tag_name(target: Target, manifest: Manifest) -> str:
    """Return the name of the tag that keeps a version's snapshot."""
    return f"export-{root_id(target)}-{manifest.week}-v{manifest.version}"


def source_snapshot(catalog: Catalog, manifest: Manifest) -> Source:
    """Return the table of a published version at the snapshot that it was made from; a UserError if that is gone."""
    dataset = Dataset(
        name=manifest.dataset,
        model=manifest.source_table,
        table=manifest.source_identifier,
        key=tuple(manifest.key),
        order_by=tuple(manifest.order_by),
        topics=(),
        unscanned=manifest.pii_scan_off,
        week_column=manifest.week_column,
    )
    snapshot_id = int(manifest.source_snapshot_id)
    table = load_table(catalog, manifest.source_identifier)
    erased_on = table and table.properties.get(f"{property_keys.ERASED_SNAPSHOT}{snapshot_id}")
    if erased_on:
        raise SnapshotErasedError(
            f"its snapshot was erased on {erased_on}, with a person whom it held: nothing to compare the file with",
            "Its file is as published; such a version cannot be written again",
        )
    if table is None or table.snapshot_by_id(snapshot_id) is None:
        raise UserError(
            f"{manifest.source_table} no longer has the snapshot that {manifest.path} was made from",
            "Nothing should drop the table or its tags: restore the lake from a backup",
        )
    week = IsoWeek.parse(manifest.week) if manifest.week_column else None
    source = snapshot.of_snapshot(dataset, table, snapshot_id, week)
    return replace(source, guards_quotes=manifest.formula_guard >= FORMULA_GUARD)


def rewrite(catalog: Catalog, target: Target, manifest: Manifest, to: Path) -> None:
    """Write the files of a version again, from the snapshot of its table, into a directory.

    Raises:
        UserError: the snapshot has expired, the file cannot be written, or not every byte of the CSV is the same.
    """
    to.mkdir(parents=True, exist_ok=True)
    with staging(target.staging) as directory:
        scratch = directory / "scratch"
        source = pii_scan.as_published(source_snapshot(catalog, manifest), manifest.withheld_rows, scratch)
        if source is None:
            raise UserError(
                "it was made by another search for personal data, which has withheld other rows",
                "Its release writes it again",
            )
        csv = directory / Path(manifest.file).name
        write(source, csv, scratch, manifest.bom)
        if digest(csv) != manifest.sha256:
            raise UserError("its snapshot gives another file", "Restore the lake from a backup")
        if formats.write(csv, manifest, dict.fromkeys(one.format for one in manifest.files), scratch) != manifest.files:
            log.warning("%s: a library of another release writes other bytes of the same rows", manifest.path)
        shutil.copyfile(csv, to / Path(manifest.file).name)
        for name in (Path(one.file).name for one in manifest.files):
            shutil.copyfile(csv.with_name(name), to / name)
