"""`python -m python_dev.review.sample DIRECTORY`: the newest landed rows of a lake as Parquet, for quick reviews."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.io.pyarrow import ArrowScan
from pyiceberg.table import Table

from python_common import private_files
from python_common.catalog.catalog import load_catalog
from python_common.config.environment import environment, landed_rows
from python_common.config.settings import Settings, from_environment
from python_common.errors import UserError
from python_common.locks.lock import locked
from python_common.weeks import IsoWeek

# Rows of each topic.
NEWEST = 100_000


def write(settings: Settings, directory: Path, weeks: int = 4) -> None:
    """Write the newest rows of each bronze table, and last the weeks that a review exports, which end before them.

    Raises:
        UserError: nothing has landed.
    """
    private_files.delete(directory)
    private_files.directory(directory)
    catalog, now, landed = load_catalog(settings), datetime.now(UTC), []
    for identifier in catalog.list_tables("bronze"):
        rows = newest(catalog.load_table(identifier), NEWEST)
        pq.write_table(rows, directory / f"{'.'.join(identifier)}.parquet")
        # A producer may set a time to come.
        times = rows["kafka_timestamp"]
        landed.append(pc.max(times.filter(pc.less_equal(times, pa.scalar(now, times.type)))).as_py())
    if not any(landed):
        raise UserError("No bronze table has rows", "Run `lakehouse ingest run` first")
    last = IsoWeek.last_complete(max(filter(None, landed)))
    private_files.write(directory / "weeks", ",".join(str(last.minus(back)) for back in reversed(range(weeks))))


def newest(table: Table, most: int) -> pa.Table:
    """Return the rows that landed last, at most so many, without reading the data files of older ones."""
    scan, tasks, count = table.scan(), [], 0
    batch = table.schema().find_field("ingest_batch").field_id
    # Iceberg has the greatest long of a column in eight bytes.
    bounds = ((int.from_bytes(task.file.upper_bounds[batch], "little"), task) for task in scan.plan_files())
    for _, task in sorted(bounds, key=lambda pair: pair[0], reverse=True):
        if count < most:
            tasks.append(task)
            count += task.file.record_count
    rows = ArrowScan(table.metadata, table.io, scan.projection(), scan.row_filter).to_table(tasks)
    return rows.sort_by([("ingest_batch", "descending"), ("kafka_offset", "descending")])[:most]


@contextmanager
def of_lake(settings: Settings, weeks: int) -> Iterator[Path]:
    """Write the newest rows of the lake, and delete them at the end.

    Raises:
        UserError: it is CI, where no rows of persons belong, or nothing has landed.
    """
    if os.environ.get("CI"):
        raise UserError("--from-lake reads rows of persons, and CI is set", "Leave it out: CI reviews sample data")
    with locked("review of landed rows"):
        try:
            write(settings, landed_rows(), weeks)
            yield landed_rows()
        finally:
            private_files.delete(landed_rows())


if __name__ == "__main__":
    write(from_environment(environment()), Path(sys.argv[1]))
