"""Deletes what still holds rows from before an erasure: tags, branches, snapshots and orphan files.

`maintain` keeps these for days, which is too long for rows of an erased person.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from pyiceberg.catalog import Catalog
from pyspark.sql import SparkSession

from python_common.catalog import property_keys
from python_common.catalog.catalog import history
from python_common.config.settings import CATALOG_NAME
from python_ingest.bronze.files import each_file, size_of
from python_ingest.maintenance.erase import WRITER
from python_ingest.maintenance.maintain import Procedures, expire_snapshots, merge_files

PUBLISHED = "export-"


@dataclass(frozen=True)
class Purged:
    """The deleted tags, and the numbers of deleted snapshots and orphan files."""

    tags: list[str]
    snapshots: int
    orphans: int


def purge_table(
    catalog: Catalog,
    spark: SparkSession,
    identifier: str,
    written_before: datetime,
    require: Callable[[], None] = lambda: None,
) -> Purged:
    """Expire all snapshots of a table but the current one and that of the last batch, and delete orphan files.

    Only orphan files written before a time, by the clock of their store, are deleted: later ones may belong to a
    running commit. For bronze it is the time of the erasure, because a batch that was planned before it is refused.
    `require` raises if another run may have the lease.

    Raises:
        UserError: a step failed; it can be repeated.
    """
    table = catalog.load_table(identifier)
    procedures = Procedures(spark, identifier, require)
    name = f"{CATALOG_NAME}.{identifier}"
    before = {snapshot.snapshot_id for snapshot in table.snapshots()}
    current = table.current_snapshot()
    tags = []
    for ref, at in table.refs().items():
        ref_type = at.snapshot_ref_type.value
        # A branch also keeps the snapshots before its head; one that a killed erasure left is at the current one.
        if ref == "main" or (ref_type == "tag" and current is not None and at.snapshot_id == current.snapshot_id):
            continue
        if ref_type == "tag":
            tags.append(ref)
            if ref.startswith(PUBLISHED):
                noted = f"'{property_keys.ERASED_SNAPSHOT}{at.snapshot_id}' = '{datetime.now(UTC):%Y-%m-%d}'"
                procedures.alter(f"set tblproperties ({noted})")
        procedures.alter(f"drop {ref_type} if exists `{ref}`")
    if current is not None:
        if size_of(table, [*each_file(table)]).delete_files:
            merge_files(procedures, table, deletes=True)
        expire_snapshots(procedures, table, timedelta())
    require()
    orphans = len(delete_orphans(spark, name, written_before))
    after = {snapshot.snapshot_id for snapshot in table.refresh().snapshots()}
    return Purged(tags, len(before - after), orphans)


def erased_at(catalog: Catalog, spark: SparkSession, identifier: str) -> datetime:
    """Return the time of a table's last erasure, by the clock of its store; 1970 without a snapshot of one."""
    table = catalog.load_table(identifier)
    for snapshot, summary in history(table):
        if summary.get(property_keys.WRITER, "").startswith(WRITER):
            jvm, java_table = _in_java(spark, f"{CATALOG_NAME}.{identifier}")
            listed = java_table.io().listPrefix(snapshot.manifest_list)
            first = jvm.org.apache.iceberg.relocated.com.google.common.collect.Iterables.getFirst(listed, None)
            return datetime.fromtimestamp(first.createdAtMillis() / 1000, UTC)
    return datetime.fromtimestamp(0, UTC)


def delete_orphans(spark: SparkSession, name: str, written_before: datetime) -> list[str]:
    """Delete orphan files, also those of the last day, which Iceberg's procedure refuses, and return them."""
    jvm, table = _in_java(spark, name)
    action = jvm.org.apache.iceberg.spark.actions.SparkActions.get(spark._jsparkSession).deleteOrphanFiles(table)
    # Listed by the table's FileIO, because Hadoop knows no s3://.
    action = action.usePrefixListing(True).olderThan(int(written_before.timestamp() * 1000))
    return list(action.execute().orphanFileLocations())


def _in_java(spark: SparkSession, name: str) -> tuple[Any, Any]:
    """Return Spark's JVM, and its object of an Iceberg table."""
    jvm: Any = spark._jvm
    return jvm, jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(spark._jsparkSession, name)
