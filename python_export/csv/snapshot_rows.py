"""The rows of an export table at one snapshot, of the files that PyIceberg lists, as Arrow has them."""

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import parquet
from pyiceberg.expressions import AlwaysTrue, BooleanExpression, EqualTo, Reference
from pyiceberg.expressions.literals import literal
from pyiceberg.io.pyarrow import ArrowScan, schema_to_pyarrow
from pyiceberg.table import DataScan, FileScanTask

from python_export.csv.csv_file import text
from python_export.datasets.snapshot import Source

# Rows that are in memory at a time, of which each may be long.
BATCH_ROWS = 16_384


def batches(source: Source) -> pa.RecordBatchReader:
    """Return the rows of a source as PyIceberg's schema has them, withheld ones too, a few at a time."""
    scan = scan_of(source)
    schema = schema_to_pyarrow(scan.projection(), include_field_ids=False)
    return pa.RecordBatchReader.from_batches(schema, (batch.cast(schema) for batch in _batches(source, scan, schema)))


def _batches(source: Source, scan: DataScan, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    week_column = source.dataset.week_column
    for task in scan.plan_files():
        if task.delete_files:
            # PyIceberg holds the rows of a file in memory as a whole.
            yield from ArrowScan(scan.table_metadata, scan.io, scan.projection(), scan.row_filter).to_record_batches(
                [task]
            )
            continue
        with scan.io.new_input(task.file.file_path).open() as stream:
            for batch in parquet.ParquetFile(stream).iter_batches(BATCH_ROWS, columns=schema.names):
                is_of_week = pc.equal(batch[week_column], str(source.week)) if source.week and week_column else None
                yield batch if is_of_week is None else batch.filter(is_of_week)


def scan_of(source: Source) -> DataScan:
    """Return the scan of the files that have rows of a source."""
    column = source.dataset.week_column if source.week else None
    of_week = part_filter((column, str(source.week)) if column else None)
    return source.table.scan(row_filter=of_week, snapshot_id=source.snapshot_id)


def part_filter(part: tuple[str, str] | None) -> BooleanExpression:
    """Return the PyIceberg filter for the rows whose column, the first, has a text, the second; all rows without it."""
    return EqualTo(term=Reference(part[0]), value=literal(part[1])) if part else AlwaysTrue()


def whole_files(tasks: Sequence[FileScanTask]) -> str | None:
    """Return the SQL list of local files of which no row is deleted; None if there is another, or none."""
    paths = [task.file.file_path.removeprefix("file://").removeprefix("file:") for task in tasks]
    if paths and all(path.startswith("/") for path in paths) and not any(task.delete_files for task in tasks):
        return f"[{', '.join(map(text, paths))}]"
    return None
