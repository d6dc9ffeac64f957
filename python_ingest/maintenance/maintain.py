"""Table maintenance: merges files and manifests, expires snapshots, deletes orphan files.

Each step is a separate commit. After a conflict it is retried, or left to the next run. Rows, their offsets and batches
never change. Readers keep a snapshot until it expires.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from py4j.protocol import Py4JError
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table
from pyspark.errors import PySparkException
from pyspark.sql import Row, SparkSession

from python_common.catalog import property_keys
from python_common.catalog.catalog import history, load_catalog, load_table, table_names
from python_common.catalog.commits import wait_for_clock
from python_common.config.settings import CATALOG_NAME, Settings
from python_common.errors import UserError
from python_common.spark.session import log_file
from python_ingest.bronze.commit import error_name, is_refusal
from python_ingest.bronze.files import TableSize, each_file, size_of, target_file_bytes
from python_ingest.bronze.positions import batch_number, last_number

ATTEMPTS = 3
# Iceberg's limit for orphan files; a snapshot must outlive the reads and the batches planned from it.
SHORTEST_ORPHAN_AGE = timedelta(days=1)
SHORTEST_SNAPSHOT_AGE = timedelta(hours=1)


@dataclass(frozen=True)
class Retention:
    """How long snapshots and orphan files are retained.

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
    before = size_of(table, [*each_file(table)])
    left = merge_files(procedures, table, before.delete_files > 0)
    least = int(table.properties.get("history.expire.min-snapshots-to-keep", 1))
    expire_snapshots(procedures, table, retention.snapshots, least)
    # Listed by the table's FileIO, because Hadoop knows no s3://.
    orphans = procedures.call("remove_orphan_files", older_than=_ago(retention.orphans), prefix_listing="true")
    table.refresh()
    return Maintained(identifier, before, size_of(table, [*each_file(table)]), len(orphans), left)


def built_tables(settings: Settings) -> list[str]:
    """Return the tables that no topic lands in: those that dbt builds, and the small ones."""
    catalog = load_catalog(settings)
    return [name for name in table_names(catalog) if not is_landed(catalog, name)]


def is_landed(catalog: Catalog, name: str) -> bool:
    """Return whether a topic lands in a table, or it is missing; a damaged one counts as one that dbt builds."""
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


def expire_snapshots(procedures: "Procedures", table: Table, older_than: timedelta | None, least: int = 1) -> None:
    """Merge manifests, and expire snapshots but the newest `least`, and those back to the last batch.

    That one has the topic's position. Without an age the table's properties decide.
    """
    procedures.call("rewrite_manifests")
    table.refresh()
    _keep_last_batch(procedures, table)
    _reset_watermark(procedures, table)
    numbers = (batch_number(snapshot) for snapshot, _ in history(table))
    to_last_batch = next((index for index, number in enumerate(numbers, 1) if number), 1)
    arguments = {} if older_than is None else {"older_than": _ago(older_than)}
    procedures.call("expire_snapshots", **arguments, retain_last=str(max(to_last_batch, least)))


def _keep_last_batch(procedures: "Procedures", table: Table) -> None:
    """Store the greatest batch number if only a snapshot outside of the history, after a rollback, has it.

    Once that has expired, the number would be reused.
    """
    of_history = max((batch_number(snapshot) for snapshot, _ in history(table)), default=0)
    if max(map(batch_number, table.snapshots()), default=0) > of_history:
        procedures.alter(f"set tblproperties ('{property_keys.LAST_BATCH}' = '{last_number(table)}')")


def _reset_watermark(procedures: "Procedures", table: Table) -> None:
    """Reset the watermark of a model, which then reads everything, if a rollback left its snapshot out of the history.

    Once that has expired, the next build could not detect it (macros/incremental/watermark.sql).
    """
    noted = table.properties.get(property_keys.NOTED_AT)
    outside = {str(snapshot.snapshot_id) for snapshot in table.snapshots()}
    outside -= {str(snapshot.snapshot_id) for snapshot, _ in history(table)}
    notes = [f"'{name}'" for name in table.properties if name.startswith(property_keys.READ)]
    if noted in outside and notes:
        procedures.alter(f"unset tblproperties ({', '.join(notes)})")


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

    def alter(self, change: str) -> None:
        """Alter the table."""
        self.sql(f"alter table {CATALOG_NAME}.{self.identifier} {change}", " ".join(change.split()[:2]))

    def sql(self, statement: str, step: str) -> list[Row]:
        """Run a statement, and retry it after a conflict; a UserError if it fails."""
        for _ in range(ATTEMPTS):
            self.require()
            try:
                return self.spark.sql(statement).collect()
            except (PySparkException, Py4JError) as error:
                failure = error
            if not is_refusal(failure):
                break
        raise UserError(
            f"{self.identifier}: {step} failed ({error_name(failure)}); what was done before stays done",
            f"Run it again when the table has less write load; `lakehouse ingest verify` names a damaged file; see"
            f" {log_file()}",
        ) from None
