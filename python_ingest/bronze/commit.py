"""The commit by compare-and-swap, which is why every offset lands exactly once.

A batch is planned from one snapshot, its base: the next offset of a partition is the one after the
greatest in the base, the batch's number the one after the greatest ever given. The rows are
committed together with a claim on all numbers that the base does not hold: Iceberg commits only if no
file added after the base can hold such a number. Every batch, replay and erasure since the base has one.

- A crash before the commit leaves the table as it was; the same ranges are planned again.
- A crash after it leaves rows in the table; the next plan starts behind them.
- A second ingester, or one that was assumed dead, has the same base or an older one, so the
  first commit has a number that its base lacks; the second commit is refused and planned again.
- A commit whose answer was lost is looked for by its mark in the snapshots.

The whole argument is in docs/exactly-once.md.
"""

import errno
import json
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from py4j.protocol import Py4JError, Py4JJavaError
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from python_common.catalog import property_keys
from python_common.catalog.catalog import history
from python_common.catalog.commits import CommitConflict
from python_common.config.settings import CATALOG_NAME
from python_common.spark.session import root_cause
from python_ingest.bronze.positions import Position
from python_ingest.kafka.offset_range import OffsetRange

REFUSALS = (
    "org.apache.iceberg.exceptions.ValidationException",
    "org.apache.iceberg.exceptions.CommitFailedException",
)


@dataclass(frozen=True)
class BatchMetadata:
    """The metadata of a batch in the summary of its snapshot, under `lakehouse.*`.

    `read_until` maps every partition read so far to its next offset, None if it is not known where partitions without
    rows began. `schema_ids` are the value schemas that the batch could decode. The number of rows is Iceberg's
    `added-records`; dead letters are counted from the statistics of the added files.
    """

    writer: str
    batch: int
    ranges: tuple[OffsetRange, ...]
    read_until: Mapping[int, int] | None
    schema_ids: tuple[int, ...]
    generation: int = 0

    def properties(self) -> dict[str, str]:
        """Return the entries of the snapshot's summary."""
        ranges = {str(span.partition): [span.start, span.until] for span in self.ranges}
        return {
            property_keys.WRITER: self.writer,
            property_keys.BATCH: str(self.batch),
            property_keys.RANGES: json.dumps(ranges),
            property_keys.SCHEMA_IDS: json.dumps(self.schema_ids),
            **({} if self.read_until is None else {property_keys.READ_UNTIL: json.dumps(self.read_until)}),
            **({property_keys.GENERATION: str(self.generation)} if self.generation else {}),
        }


@dataclass(frozen=True)
class Landed:
    """The rows of one committed batch, and what to note of schemas it brought.

    `dead_letters` counts the dead letters among them, `key_errors` the rows with a key that could not be decoded.
    """

    rows: int
    dead_letters: int
    key_errors: int = 0
    notes: tuple[str, ...] = ()


def overwrite(rows: DataFrame, identifier: str, base: Position, metadata: BatchMetadata) -> None:
    """Commit rows to the table, if nothing was landed or replayed since the base.

    `base` is the position that the batch was planned from; if that has no snapshot, Iceberg validates
    against the table's whole history. The offsets are not claimed as well: that would refuse nothing more, and cost
    partitions times files.

    Raises:
        CommitConflict: another commit came first.
        PySparkException, Py4JError: the job failed, or it is unknown whether it was committed.
    """
    writer = rows.writeTo(f"{CATALOG_NAME}.{identifier}").option("isolation-level", "serializable")
    if base.snapshot_id is not None:
        writer = writer.option("validate-from-snapshot-id", str(base.snapshot_id))
    for name, value in metadata.properties().items():
        writer = writer.option(f"snapshot-property.{name}", value)
    try:
        # Not the batch's number alone: of two batches on one base, one may know of a branch with a number, and be
        # assigned a greater one than the other.
        writer.overwrite(F.col("ingest_batch") > base.held_batch)
    except (PySparkException, Py4JError) as error:
        if is_refusal(error):
            raise CommitConflict("another commit came first") from None
        raise


def is_refusal(error: PySparkException | Py4JError) -> bool:
    """Return whether Iceberg refused a commit because another one came first."""
    return any(refusal in str(error) for refusal in REFUSALS)


def committed(table: Table, metadata: BatchMetadata) -> Snapshot | None:
    """Return the snapshot in which a batch was committed, found by its mark."""
    mark = metadata.properties().items()
    return next((snapshot for snapshot, summary in history(table) if mark <= summary.items()), None)


def landed(table: Table, snapshot: Snapshot) -> Landed:
    """Count the rows, dead letters and undecoded keys of one batch from the statistics of its files."""
    number = snapshot.snapshot_id
    manifests = [manifest for manifest in snapshot.manifests(table.io) if manifest.added_snapshot_id == number]
    entries = [entry for manifest in manifests for entry in manifest.fetch_manifest_entry(table.io)]
    files = [entry.data_file for entry in entries if entry.snapshot_id == number]
    rows = sum(file.record_count for file in files)
    return Landed(rows, not_null(files, table, "decode_error"), not_null(files, table, "key_error"))


def not_null(files: Iterable[DataFile], table: Table, column: str) -> int:
    """Count the rows that have a value in a column, from the statistics of the files; one without it has none."""
    field = table.schema().find_field(column).field_id
    return sum(file.record_count - (file.null_value_counts or {}).get(field, file.record_count) for file in files)


# Parts of messages of the file system and of S3, which never quote a record.
CODES = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EMFILE, errno.EROFS)
CAUSES = re.compile("|".join(re.escape(os.strerror(code)) for code in CODES) + "|Service: S3, Status Code: [0-9]{3}")


def error_name(error: PySparkException | Py4JError) -> str:
    """Name an error and, if file system or S3 refused, that; without its message, which may quote a record."""
    name = type(error).__name__
    if isinstance(error, PySparkException):
        name = error.getCondition() or name
    elif isinstance(error, Py4JJavaError):
        name = str(root_cause(error).getClass().getName())
    cause = CAUSES.search(str(error))
    return f"{name}: {cause[0]}" if cause else name
