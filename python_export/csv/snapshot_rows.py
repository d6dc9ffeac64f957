"""The rows of an export table at one snapshot, of the files that PyIceberg lists: as Arrow's, and in DuckDB's table."""

from collections.abc import Iterator, Sequence

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import parquet
from pyiceberg.expressions import AlwaysTrue, BooleanExpression, EqualTo, Reference
from pyiceberg.expressions.literals import literal
from pyiceberg.io.pyarrow import ArrowScan, schema_to_pyarrow
from pyiceberg.table import DataScan, FileScanTask

from python_export.csv import exact
from python_export.csv.csv_file import name, one_row, text
from python_export.datasets.snapshot import Source, TableColumn

# Rows that are in memory at a time, of which each may be long.
BATCH_ROWS = 16_384


def load_table(database: duckdb.DuckDBPyConnection, source: Source) -> None:
    """Load the rows of a source as `snapshot_rows`, without those that are withheld.

    DuckDB reads the files by itself where it can.
    """
    if paths := whole_files(list(_scan(source).plan_files())):
        rows = f"read_parquet({paths})"
        relation = "view"
    else:
        database.register("reader", batches(source))
        rows, relation = "reader", "table"
    column = source.dataset.week_column
    conditions = [f"snapshot_rows.{name(column)} = {text(str(source.week))}"] if source.week and column else []
    if source.without:
        database.execute("create table withheld (row varchar)")
        database.executemany("insert into withheld values (?)", [[row] for row in sorted(source.without)])
        conditions.append(f"{row_hash(source)} not in (select row from withheld)")
    where = " and ".join(conditions) or "true"
    database.execute(f"create {relation} snapshot_rows as select * from {rows} as snapshot_rows where {where}")


def batches(source: Source) -> pa.RecordBatchReader:
    """Return the rows of a source as PyIceberg's schema has them, withheld ones too, a few at a time."""
    scan = _scan(source)
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


def _scan(source: Source) -> DataScan:
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


def k_anonymity(database: duckdb.DuckDBPyConnection, source: Source) -> int | None:
    """Return the fewest persons per combination of quasi-identifiers in `snapshot_rows`; None without either."""
    names = [column.name for column in source.columns]
    quasi = [field.name for field in source.dataset.fields if field.is_quasi_identifier and field.name in names]
    persons = [f"nullif(count(distinct {name(column)}), 0)" for column in source.dataset.persons if column in names]
    if not quasi or not persons:
        return None
    # The column with the fewest persons decides; a row without a person singles out none.
    fewest = persons[0] if len(persons) == 1 else f"least({', '.join(persons)})"
    groups = f"select {fewest} as persons from snapshot_rows group by {', '.join(map(name, quasi))}"
    smallest: int | None = one_row(database, f"select min(persons) from ({groups})")[0]
    return smallest


def row_hash(source: Source) -> str:
    """Return the SQL that names a row of `snapshot_rows` without its key; compare.py has it for Arrow."""
    columns = {column.name: column for column in source.columns}
    return f"sha256(concat_ws(chr(31), {', '.join(_as_text(columns[key]) for key in source.dataset.key)}))"


def _as_text(column: TableColumn) -> str:
    cell = f"snapshot_rows.{name(column.name)}"
    return exact.text(f"epoch_us({cell})" if column.type == "timestamp" else cell, column)
