"""What a published version was made from: its table, at the snapshot that its manifest names."""

from dataclasses import replace

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchTableError

from lakehouse import property_keys
from lakehouse.errors import UserError
from lakehouse.weeks import IsoWeek
from python_export.datasets import source
from python_export.datasets.declared import Dataset, Table
from python_export.datasets.source import Source
from python_export.publishing.manifest import FORMULA_GUARD, Manifest


class SnapshotErasedError(UserError):
    """The snapshot that a version was made from was let go of because somebody was erased from it."""


def at(catalog: Catalog, manifest: Manifest) -> Source:
    """Return the table of a published version at the snapshot that the version was made from.

    Raises:
        UserError: the table or the snapshot is gone.
    """
    dataset = Dataset(
        name=manifest.dataset,
        model=manifest.source_table,
        table=Table(*manifest.source_identifier),
        key=tuple(manifest.key),
        order_by=tuple(manifest.order_by),
        topics=(),
        unscanned=manifest.pii_scan_off,
        week_column=manifest.week_column,
    )
    snapshot_id = int(manifest.source_snapshot_id)
    try:
        table = catalog.load_table(manifest.source_identifier)
    except NoSuchTableError:
        table = None
    erased_on = table and table.properties.get(f"{property_keys.ERASED_SNAPSHOT}{snapshot_id}")
    if erased_on:
        raise SnapshotErasedError(
            f"its snapshot was erased on {erased_on}, with a person whom it held: nothing to compare the file with",
            "Its file is as published; such a version cannot be written again",
        )
    if table is None or table.snapshot_by_id(snapshot_id) is None or not manifest.key:
        raise UserError(
            f"{manifest.source_table} no longer has the snapshot that {manifest.path} was made from",
            "Versions of release 0.3 were not kept; nothing else should drop the table or its tags",
        )
    week = IsoWeek.parse(manifest.week) if manifest.week_column else None
    found = source.of_snapshot(dataset, table, snapshot_id, week)
    return replace(found, guards_quotes=manifest.formula_guard >= FORMULA_GUARD)
