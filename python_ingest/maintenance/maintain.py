"""Table maintenance: merges files and manifests, expires snapshots, deletes orphan files.

Each step commits on its own. After a conflict it is retried, or left to the next run. Rows, their offsets and batches
never change. Readers keep a snapshot until it expires.
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

from python_common.catalog import property_keys
from python_common.catalog.catalog import load_catalog, load_table
from python_common.catalog.commits import wait_for_clock
from python_common.config.settings import CATALOG_NAME, Settings
from python_common.errors import UserError
from python_common.spark.session import log_file
from python_ingest.bronze.commit import REFUSALS, error_name
from python_ingest.bronze.files import TableSize, files_of, size_of, target_file_bytes

ATTEMPTS = 3
# Iceberg's limit for orphan files; a snapshot must outlive the reads and the batches planned from it.
SHORTEST_ORPHAN_AGE = timedelta(days=1)
SHORTEST_SNAPSHOT_AGE = timedelta(hours=1)


@dataclass(frozen=True)
class Retention:
    """How long snapshots and orphan files are kept.

    `snapshots` is None for the table's `history.expire.*` properties. Files younger than `orphans` may belong to a
    running commit.
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
    """A table before and after. `left` data files were not merged: another commit changed them, or one is damaged."""

    table: str
    before: TableSize
    after: TableSize
    orphans_deleted: int
    left: int

    def line(self) -> str:
        """Return the outcome in a line."""
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
    """Maintain one table; return None if it does not exist. `require` raises if another run may have the lease.

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
    # Listed by the table's FileIO, because Hadoop knows no s3://.
    orphans = procedures.call("remove_orphan_files", older_than=_ago(retention.orphans), prefix_listing="true")
    table.refresh()
    return Maintained(identifier, before, size_of(table, files_of(table)), len(orphans), left)


def built_tables(settings: Settings) -> list[str]:
    """Return the tables that no topic lands in: those that dbt builds, and the small ones."""
    catalog = load_catalog(settings)
    names = [".".join(name) for schema in catalog.list_namespaces() for name in catalog.list_tables(schema)]
    return [name for name in sorted(names) if not _is_landed(catalog, name)]


def _is_landed(catalog: Catalog, name: str) -> bool:
    try:
        table = load_table(catalog, name)
    except UserError:  # reported when the table is maintained
        return False
    return table is None or property_keys.TOPIC in table.properties


def merge_files(procedures: "Procedures", table: Table, deletes: bool) -> int:
    """Merge small files, and data files with their delete files; return how many files were left."""
    options = {
        "target-file-size-bytes": str(target_file_bytes(table)),
        "min-input-files": "2",
        # One commit per partition: a conflict costs one partition.
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
    """Store the greatest batch number if only a snapshot outside of the history, after a rollback, has it.

    Once that has expired, the number would be reused.
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
    """Reset the watermark of a model, which then reads everything, if a rollback left its snapshot out of the history.

    Once that has expired, the next build could not detect it (macros/incremental/watermark.sql).
    """
    noted = table.properties.get(property_keys.NOTED_AT)
    outside = {str(snapshot.snapshot_id) for snapshot in table.snapshots()}
    outside -= {str(snapshot.snapshot_id) for snapshot in _history(table)}
    notes = [f"'{name}'" for name in table.properties if name.startswith(property_keys.READ)]
    if noted in outside and notes:
        name = f"{CATALOG_NAME}.{procedures.identifier}"
        procedures.sql(f"alter table {name} unset tblproperties ({', '.join(notes)})", "unset tblproperties")


def _expiry(table: Table, keep: timedelta | None) -> dict[str, str]:
    """Return the arguments of expire_snapshots that keep the snapshot of the last batch."""
    least = int(table.properties.get("history.expire.min-snapshots-to-keep", 1))
    arguments = {"retain_last": str(max(snapshots_in_use(table), least))}
    return arguments if keep is None else {**arguments, "older_than": _ago(keep)}


def snapshots_in_use(table: Table) -> int:
    """Return the number of newest snapshots back to that of the last batch, which has the topic's position."""
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
    """Iceberg's procedures for one table. `require`, called before each, raises if another run may have the lease."""

    spark: SparkSession
    identifier: str
    require: Callable[[], None] = lambda: None

    def call(self, procedure: str, **arguments: str) -> list[Row]:
        """Call a procedure with arguments in SQL, and return its rows."""
        named = {"table": f"'{self.identifier}'", **arguments}
        listed = ", ".join(f"{name} => {value}" for name, value in named.items())
        return self.sql(f"call {CATALOG_NAME}.system.{procedure}({listed})", procedure)

    def sql(self, statement: str, step: str) -> list[Row]:
        """Run a statement, and retry it after a conflict; a UserError if it fails."""
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
