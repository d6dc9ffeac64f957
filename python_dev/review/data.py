"""What differs between two states of a table, exactly, reading no more files than can differ.

Equal snapshots and equal files need no reading. Files of both states, with the same delete files, hold the same rows;
those of all other files are compared.
"""

from collections.abc import Collection, Sequence
from pathlib import Path

import duckdb
import pyarrow as pa
from pyiceberg.io.pyarrow import ArrowScan, schema_to_pyarrow
from pyiceberg.table import FileScanTask, Table

from python_dev.review.table_diff import SIDES, TableChange, table_diff
from python_export.csv.csv_file import name, one_row, reading, text
from python_export.csv.snapshot_rows import part_filter, whole_files

Part = tuple[str, str]
"""The rows of a table whose column, the first, has a text, the second."""


def compare(
    before: Table,
    after: Table,
    key: Sequence[str],
    scratch: Path,
    part: Part | None = None,
    sampled: Collection[str] = (),
) -> TableChange:
    """Compare the current states of two tables, of all rows or of a part.

    `scratch` is a directory for what outgrows memory. Samples have the columns of `sampled` alone.

    Raises:
        UserError: DuckDB fails. It quotes no row.
    """
    tables = (before, after)
    # In the same file a column with another id has other values.
    schemas = [[(one.field_id, one.name, one.field_type) for one in table.schema().fields] for table in tables]
    states = [(table.metadata.table_uuid, table.metadata.current_snapshot_id) for table in tables]
    if states[0] == states[1] and schemas[0] == schemas[1]:
        return TableChange()
    scans = [table.scan(row_filter=part_filter(part)) for table in tables]
    tasks = [{_files(task): task for task in scan.plan_files()} for scan in scans]
    if schemas[0] == schemas[1]:
        shared = tasks[0].keys() & tasks[1].keys()
        tasks = [{files: task for files, task in side.items() if files not in shared} for side in tasks]
        if not any(tasks):
            return TableChange()
    rows = scans[0].count(), scans[1].count()
    with reading(scratch, "DuckDB could not compare the tables", "See that there is room on disk") as database:
        for side, table, its_tasks in zip(SIDES, tables, tasks, strict=True):
            _load(database, side, table, list(its_tasks.values()), part)
        return table_diff(database, "memory.before", "memory.after", key, sampled, rows)


def described(
    table: Table, columns: Sequence[str], scratch: Path, shown: Collection[str], summed: Collection[str]
) -> tuple[int, dict[str, str]]:
    """Return the number of rows of a table, and by column a phrase; one that is not `shown` has its NULLs alone.

    Raises:
        UserError: DuckDB fails. It quotes no row.
    """
    rows = table.scan(selected_fields=tuple(columns)).to_arrow_batch_reader()
    figures = ["count(*)"]
    for column in rows.schema:
        cell, kind = name(column.name), column.type
        is_ranged = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_temporal(kind)
        phrase = [f"'NULLs ', count(*) - count({cell})"]
        if column.name in shown:
            phrase.append(f"', distinct ', count(distinct {cell})")
            phrase += [f"', ' || min({cell}) || ' to ' || max({cell})"] * (is_ranged or pa.types.is_decimal(kind))
            phrase += [f"', sum ' || sum({cell})"] * (pa.types.is_decimal(kind) and column.name in summed)
        # NULL, as of a column without a value, is left out.
        figures.append(f"concat({', '.join(phrase)})")
    with reading(scratch, "DuckDB could not describe a table", "See that there is room on disk") as database:
        database.register("described", rows)
        count, *phrases = one_row(database, f"select {', '.join(figures)} from described")
        return count, dict(zip(rows.schema.names, phrases, strict=True))


def _files(task: FileScanTask) -> tuple[str, ...]:
    return task.file.file_path, *sorted(file.file_path for file in task.delete_files)


def _load(
    database: duckdb.DuckDBPyConnection,
    side: str,
    table: Table,
    tasks: Sequence[FileScanTask],
    part: Part | None,
) -> None:
    """Name the rows of some files: a view of files that DuckDB can read by itself, or a table."""
    schema = schema_to_pyarrow(table.schema(), include_field_ids=False)
    files = None if any(pa.types.is_nested(field.type) for field in schema) else whole_files(tasks)
    if files:
        types = database.from_arrow(schema.empty_table()).types
        fields = [
            f"{field.field_id}: {{name: {text(field.name)}, type: {text(str(of_field))}, default_value: null}}"
            for field, of_field in zip(table.schema().fields, types, strict=True)
        ]
        rows, relation = f"read_parquet({files}, schema = map {{{', '.join(fields)}}})", "view"
    else:
        batches = ArrowScan(table.metadata, table.io, table.schema(), part_filter(part)).to_record_batches(tasks)
        database.register(
            "reader", pa.RecordBatchReader.from_batches(schema, (batch.cast(schema) for batch in batches))
        )
        rows, relation = "reader", "table"
    where = f"{name(part[0])} = {text(part[1])}" if part else "true"
    database.execute(f"create {relation} {side} as select * from {rows} where {where}")
