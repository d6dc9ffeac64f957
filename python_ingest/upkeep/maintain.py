"""Keeps a table fast and small: merges files and manifests, expires snapshots, deletes what nothing refers to.

Each step is a commit of its own that a writer can come before: then it is tried again, or left to the next run. Rows,
their offsets and their batches never change. Readers keep what they read as long as its snapshot is kept.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from py4j.protocol import Py4JError
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot, ancestors_of
from pyspark.errors import PySparkException
from pyspark.sql import Row, SparkSession

from lakehouse import property_keys
from lakehouse.catalog import load_catalog, load_table
from lakehouse.commits import wait_for_clock
from lakehouse.errors import UserError
from lakehouse.settings import CATALOG_NAME, Settings
from python_ingest.landing.commit import REFUSALS, error_name
from python_ingest.landing.session import log_file
from python_ingest.upkeep.table_files import TableSize, files_of, size_of, target_file_bytes

ATTEMPTS = 3
# Iceberg's own limit for orphan files; a snapshot has to outlive the reads and the batches planned from it.
SHORTEST_ORPHAN_AGE = timedelta(days=1)
SHORTEST_SNAPSHOT_AGE = timedelta(hours=1)


@dataclass(frozen=True)
class Retention:
    """How long snapshots and files that nothing refers to are kept.

    `snapshots` is None for what the table's `history.expire.*` properties say. `orphans` is the age of files to delete,
    for a running commit may be about to refer to younger ones.
    """

    snapshots: timedelta | None = None
    orphans: timedelta = timedelta(days=3)

    def check(self) -> None:
        """Raise a UserError unless running readers and writers are safe."""
        if self.orphans < SHORTEST_ORPHAN_AGE:
            raise UserError("Orphan files younger than a day may belong to a running commit", "Give at least 1d")
        if self.snapshots is not None and self.snapshots < SHORTEST_SNAPSHOT_AGE:
            raise UserError("Snapshots younger than an hour may be in use by a reader", "Give at least 1h")


@dataclass(frozen=True)
class Maintained:
    """A table before and after. `left` data files could not be merged: others changed them first, or one is damaged."""

    table: str
    before: TableSize
    after: TableSize
    orphans_deleted: int
    left: int

    def line(self) -> str:
        """Return what happened in a line."""
        before, after = self.before, self.after
        text = (
            f"{self.table}: {before.data_files:,} files ({before.data_bytes / 1e6:,.1f} MB) are now"
            f" {after.data_files:,} ({after.data_bytes / 1e6:,.1f} MB),"
            f" manifests {before.manifests:,} -> {after.manifests:,},"
            f" snapshots {before.snapshots:,} -> {after.snapshots:,}, {self.orphans_deleted:,} orphan files deleted"
        )
        if self.left:
            text += (
                f"; {self.left:,} files could not be merged: others changed them first, or one is damaged"
                " (`lakehouse ingest verify` names it)"
            )
        return text


def maintain_table(
    settings: Settings,
    spark: Callable[[], SparkSession],
    identifier: str,
    retention: Retention,
    require: Callable[[], None] = lambda: None,
) -> Maintained | None:
    """Maintain one table; return None if it does not exist. `require` raises if another run may be at work.

    Raises:
        UserError: one of its files is damaged, a step fails, or the clock is behind the table's last change.
    """
    table = load_table(load_catalog(settings), identifier)
    if table is None:
        return None
    wait_for_clock(identifier, table.metadata)
    procedures = Procedures(spark(), identifier, require)
    before = size_of(table, files_of(table))
    left = merge_files(procedures, table, before.delete_files > 0)
    procedures.call("rewrite_manifests")
    table.refresh()
    keep_last_batch(procedures, table)
    reset_watermark(procedures, table)
    procedures.call("expire_snapshots", **_expiry(table, retention.snapshots))
    # Listed as the table's own files are read: Hadoop knows no s3://.
    orphans = procedures.call("remove_orphan_files", older_than=_ago(retention.orphans), prefix_listing="true")
    table.refresh()
    return Maintained(identifier, before, size_of(table, files_of(table)), len(orphans), left)


def built_tables(settings: Settings) -> list[str]:
    """Return every table of the catalog that no topic lands in: what dbt builds, and the histories beside it."""
    catalog = load_catalog(settings)
    names = [".".join(name) for schema in catalog.list_namespaces() for name in catalog.list_tables(schema)]
    return [name for name in sorted(names) if not _is_landed(catalog, name)]


def _is_landed(catalog: Catalog, name: str) -> bool:
    try:
        table = load_table(catalog, name)
    except UserError:  # whoever maintains the table says so, and goes on with the others
        return False
    return table is None or property_keys.TOPIC in table.properties


def merge_files(procedures: "Procedures", table: Table, deletes: bool) -> int:
    """Merge small files, and data files with their delete files; return how many files were left."""
    options = {
        "target-file-size-bytes": str(target_file_bytes(table)),
        "min-input-files": "2",
        # Partitions are committed on their own, so that a conflict does not cost the others' work.
        "partial-progress.enabled": "true",
        "delete-file-threshold": "1",
        "remove-dangling-deletes": "true",
    }
    how = {"strategy": "'binpack'"}
    if table.sort_order().fields:
        how = {"strategy": "'sort'"}
    elif property_keys.TOPIC in table.properties:
        how = {"strategy": "'sort'", "sort_order": "'kafka_partition, kafka_offset'"}
    left = 0
    for _ in range(ATTEMPTS):
        (result,) = procedures.call("rewrite_data_files", **how, options=_map(options))
        left = result["failed_data_files_count"]
        if not left:
            break
    if deletes:
        procedures.call("rewrite_position_delete_files", options=_map({"rewrite-all": "true"}))
    return left


def keep_last_batch(procedures: "Procedures", table: Table) -> None:
    """Note the greatest batch number if only a snapshot knows it that a rollback left outside of the history.

    Once that has expired, the number would be given again.
    """
    numbers = [number for number in map(_batch, table.snapshots()) if number is not None]
    current = [number for number in map(_batch, _history(table)) if number is not None]
    if max(numbers, default=0) > max(current, default=0):
        noted = max(*numbers, int(table.properties.get(property_keys.LAST_BATCH, 0)))
        name = f"{CATALOG_NAME}.{procedures.identifier}"
        procedures.sql(
            f"alter table {name} set tblproperties ('{property_keys.LAST_BATCH}' = '{noted}')", "set tblproperties"
        )


def reset_watermark(procedures: "Procedures", table: Table) -> None:
    """Have a model read everything again if a rollback left the snapshot of its notes outside of the history.

    Once that has expired, the next build could not tell (macros/incremental/watermark.sql).
    """
    noted = table.properties.get(property_keys.NOTED_AT)
    outside = {str(snapshot.snapshot_id) for snapshot in table.snapshots()}
    outside -= {str(snapshot.snapshot_id) for snapshot in _history(table)}
    notes = [f"'{name}'" for name in table.properties if name.startswith(property_keys.READ)]
    if noted in outside and notes:
        name = f"{CATALOG_NAME}.{procedures.identifier}"
        procedures.sql(f"alter table {name} unset tblproperties ({', '.join(notes)})", "unset tblproperties")


def _expiry(table: Table, keep: timedelta | None) -> dict[str, str]:
    """Return how to expire, so that the snapshot of the last batch stays."""
    least = int(table.properties.get("history.expire.min-snapshots-to-keep", 1))
    arguments = {"retain_last": str(max(snapshots_in_use(table), least))}
    return arguments if keep is None else {**arguments, "older_than": _ago(keep)}


def snapshots_in_use(table: Table) -> int:
    """Return how many of the newest snapshots have to stay.

    They reach back to that of the last batch, which says how far its topic was read.
    """
    return next((index for index, snapshot in enumerate(_history(table), 1) if _batch(snapshot) is not None), 1)


def _history(table: Table) -> list[Snapshot]:
    return list(ancestors_of(table.current_snapshot(), table.metadata))


def _batch(snapshot: Snapshot) -> int | None:
    number = snapshot.summary.get(property_keys.BATCH) if snapshot.summary else None
    return None if number is None else int(number)


def _ago(age: timedelta) -> str:
    return f"timestamp '{(datetime.now(UTC) - age).isoformat(' ')}'"


def _map(options: dict[str, str]) -> str:
    entries = (f"'{name}', '{value}'" for name, value in options.items())
    return f"map({', '.join(entries)})"


@dataclass(frozen=True)
class Procedures:
    """Iceberg's procedures for one table. `require`, asked before each, raises if another run may be at work."""

    spark: SparkSession
    identifier: str
    require: Callable[[], None] = lambda: None

    def call(self, procedure: str, **arguments: str) -> list[Row]:
        """Call a procedure with arguments in SQL, and return its answer."""
        named = {"table": f"'{self.identifier}'", **arguments}
        listed = ", ".join(f"{name} => {value}" for name, value in named.items())
        return self.sql(f"call {CATALOG_NAME}.system.{procedure}({listed})", procedure)

    def sql(self, statement: str, step: str) -> list[Row]:
        """Run a statement, again if another commit comes first; a UserError if it fails."""
        for _ in range(ATTEMPTS):
            self.require()
            try:
                return self.spark.sql(statement).collect()
            except (PySparkException, Py4JError) as error:
                failure = error
            if not any(refusal in str(failure) for refusal in REFUSALS):
                break
        raise UserError(
            f"{self.identifier}: {step} failed ({error_name(failure)}); what was done before stays done",
            f"Run it again when the table has less write load; `lakehouse ingest verify` names a damaged file; see"
            f" {log_file()}",
        ) from None
