"""Keeps the snapshot of each published version, by a tag that expiry respects, and writes its file again from it."""

from pathlib import Path

from pyhive import hive
from pyiceberg.catalog import Catalog

from lakehouse.commits import until_committed
from lakehouse.errors import UserError
from python_export.files import pii_scan
from python_export.files.unload import unload
from python_export.publishing import origin
from python_export.publishing.manifest import Manifest
from python_export.publishing.target import Target, digest, root_id


def retain(catalog: Catalog, target: Target, manifest: Manifest) -> None:
    """Tag the snapshot that a version was made from, unless it is tagged or gone. An export root has tags of its own.

    Raises:
        UserError: others commit to the table all the time.
    """
    name, snapshot_id = tag_of(target, manifest), int(manifest.source_snapshot_id)

    def tagged() -> None:
        table = catalog.load_table(manifest.source_identifier)
        tag = table.refs().get(name)
        if table.snapshot_by_id(snapshot_id) is None or (tag and tag.snapshot_id == snapshot_id):
            return
        with table.manage_snapshots() as change:
            # There is one of this name if the version was taken away and published again.
            (change.remove_tag(name) if tag else change).create_tag(snapshot_id, name)

    until_committed(
        tagged,
        f"The snapshot of {manifest.source_table} that {manifest.path} is made from could not be tagged {name}",
        "Run the export again when nothing else writes to the table",
    )


def tag_of(target: Target, manifest: Manifest) -> str:
    """Return the name of the tag that keeps a version's snapshot."""
    return f"export-{root_id(target)}-{manifest.week}-v{manifest.version}"


def reproduce(
    cursor: hive.Cursor, catalog: Catalog, manifest: Manifest, directory: Path, by_way_of: str | None = None
) -> Path:
    """Write the file of a version once more, from the snapshot of its table, and return it.

    Raises:
        UserError: the snapshot has expired, Spark failed, or not every byte is the same.
    """
    scratch = directory.with_name(f"{directory.name}.scanned")
    source = pii_scan.as_published(origin.at(catalog, manifest), manifest.withheld_rows, scratch)
    if source is None:
        raise UserError(
            f"{manifest.path} was made by another search for personal data, which has withheld other rows",
            "Its release writes it again",
        )
    file = unload(cursor, source, directory, manifest.bom, by_way_of)
    if digest(file) != manifest.sha256:
        raise UserError(
            f"The file of {manifest.path} that its snapshot gives is not the published one",
            "`lakehouse export verify` tells whether the published file or the table was changed",
        )
    return file
