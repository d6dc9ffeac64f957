"""Compares a written CSV with the Iceberg table, row by row, before anyone may see it.

It imports nothing of the writer: pyarrow parses the file and reads those of the table, and the text that each cell must
have is derived here a second time, formula guard included, by Arrow's functions. DuckDB, which never sees the file or
the table, sorts and compares what they yield, because it alone spills what outgrows memory. A row is compared by a hash
of all its cells, which are not kept; a file that differs is read again, cell by cell, to report how.
"""

from collections.abc import Collection, Iterable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv, parquet

from python_common.errors import UserError
from python_export.csv.csv_file import LONGEST_ROW_BYTES, MEMORY_LIMIT, name, one_row, reading
from python_export.csv.snapshot_rows import BATCH_ROWS, batches
from python_export.datasets.snapshot import Source, TableColumn

# What a formula begins with: = + - @ tab CR LF, and the full-width forms.
TEXT = pa.large_string()
FORMULA_STARTS = pa.array(["=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20"], TEXT)
GUARD, UTC, NO_SEPARATOR = (pa.scalar(text, TEXT) for text in ("'", "Z", ""))
# The value of a column that the file is sorted by; the column itself has its text.
SORT_KEY = "sort key "
# How DuckDB passes on that a stream of pyarrow's failed, and pyarrow itself; both messages quote the row.
UNREADABLE = (duckdb.InvalidInputException, pa.ArrowException)


def verify(file: Path, source: Source, scratch: Path) -> None:
    """Compare a file with its source, without withheld rows.

    `scratch` is a directory for what outgrows memory.

    Raises:
        UserError: the file differs from the table: by counts and column names, never by values.
    """
    failed = f"{source.dataset.name}: the file could not be compared with the table"
    room = f"It works in {MEMORY_LIMIT} of memory and on the disk of the file; check that there is room"
    with reading(scratch, failed, room) as database:
        if not (differences := _unreadable(database, file, source)) and not _is_equal(database, source):
            differences = _differences(database, file, source)
    if differences:
        raise UserError(
            f"{source.dataset.name}: the written file differs from the table, so nothing is published: "
            + "; ".join(differences),
            "Run the export again; if it fails again, the table or the writer is wrong",
        )


def is_same(file: Path, csv_file: Path, columns: Collection[TableColumn], scratch: Path) -> bool:
    """Return whether a Parquet file, which has no formula guard, has the rows of a CSV of this release in its order."""
    names = [column.name for column in columns]
    room = "See that there is room on disk"
    with reading(scratch, f"{file.name} could not be compared with the CSV", room) as database:
        try:
            in_csv = cells_of(csv_file, names)
            database.register("in_csv", in_csv)
            rows = parquet.ParquetFile(file).iter_batches(BATCH_ROWS, columns=names)
            cells = (pa.RecordBatch.from_arrays(_texts(batch, columns, True), names) for batch in rows)
            database.register("in_parquet", pa.RecordBatchReader.from_batches(_schema_of_texts(names), cells))
            sql = (
                "select count(*) filter (in_csv is distinct from in_parquet) = 0 from in_csv positional join in_parquet"
            )
            return in_csv.schema.names == names and one_row(database, sql) == (True,)
        except UNREADABLE:
            return False


def _unreadable(database: duckdb.DuckDBPyConnection, file: Path, source: Source) -> list[str]:
    """Load the hashes of the file's rows, in their order, as `staged`, and return why that failed."""
    names = [column.name for column in source.columns]
    try:
        in_file = cells_of(file, names)
        if in_file.schema.names != names:
            return ["the header does not name the table's columns"]
        database.register("in_file", in_file)
        hashes = f"{_hash(names)} as content, {_hash(source.dataset.key)} as key"
        database.execute(f"create table staged as select {hashes} from in_file")
    except UNREADABLE as error:
        return [f"pyarrow cannot read it ({type(error).__name__})"]
    with file.open("rb") as stream:
        stream.seek(-1, 2)
        return [] if stream.read() == b"\n" else ["the last row is cut off"]


def _is_equal(database: duckdb.DuckDBPyConnection, source: Source) -> bool:
    """Return whether the file has the table's rows, in the order it must have, and no key twice."""
    names = [column.name for column in source.columns]
    database.register("in_table", _cells_of_table(source))
    database.execute(
        f"create table expected as select {_hash(names)} as content from in_table order by {_order(source)}"
    )
    # The longer one has NULL for what the other lacks.
    unequal = "count(*) filter (staged.content is distinct from expected.content)"
    return one_row(
        database, f"select {unequal} = 0 and count(distinct key) = count(*) from staged positional join expected"
    ) == (True,)


def _differences(database: duckdb.DuckDBPyConnection, file: Path, source: Source) -> list[str]:
    """Return every way in which the file differs from the table, from all cells of both."""
    names = [column.name for column in source.columns]
    database.register("in_file", cells_of(file, names))
    database.execute("create or replace table staged as select * from in_file")
    database.register("in_table", _cells_of_table(source))
    cells = ", ".join(map(name, names))
    database.execute(f"create or replace table expected as select {cells} from in_table order by {_order(source)}")
    in_file, in_table = (_value(database, f"select count(*) from {table}") for table in ("staged", "expected"))
    differences = [f"{in_file} rows instead of {in_table}"] if in_file != in_table else []

    key = ", ".join(map(name, source.dataset.key))
    keys = f"select {key} from staged", f"select {key} from expected"
    for what, query in {
        "keys missing": f"({keys[1]}) except ({keys[0]})",
        "keys too many": f"({keys[0]}) except ({keys[1]})",
        "keys more than once": f"{keys[0]} group by all having count(*) > 1",
    }.items():
        if count := _value(database, f"select count(*) from ({query})"):
            differences.append(f"{count} {what} ({', '.join(source.dataset.key)})")

    for column in names if in_file == in_table else ():
        unequal = f"count(*) filter (staged.{name(column)} is distinct from expected.{name(column)})"
        if count := _value(database, f"select {unequal} from staged positional join expected"):
            differences.append(f"{count} cells of {column}")
    return differences


def cells_of(file: Path, names: list[str]) -> pa.RecordBatchReader:
    """Return the cells of a CSV as text; NULL and the empty string are apart."""
    return csv.open_csv(
        file,
        read_options=csv.ReadOptions(block_size=LONGEST_ROW_BYTES),
        # A row of one column that is NULL is an empty line.
        parse_options=csv.ParseOptions(newlines_in_values=True, ignore_empty_lines=False),
        convert_options=csv.ConvertOptions(
            column_types=dict.fromkeys(names, TEXT),
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    )


def _cells_of_table(source: Source) -> pa.RecordBatchReader:
    """Return the texts that the cells of a source must have, without withheld rows, and the values of its order."""
    names, order_by = [column.name for column in source.columns], source.dataset.order_by
    rows = batches(source)
    schema = _schema_of_texts(names)
    for column in order_by:
        schema = schema.append(pa.field(f"{SORT_KEY}{column}", rows.schema.field(column).type))

    def cells() -> Iterator[pa.RecordBatch]:
        for batch in rows:
            published = _without_withheld(batch, source)
            texts = _texts(published, source.columns, source.guards_quotes)
            yield pa.RecordBatch.from_arrays([*texts, *(published[column] for column in order_by)], schema=schema)

    return pa.RecordBatchReader.from_batches(schema, cells())


def _without_withheld(batch: pa.RecordBatch, source: Source) -> pa.RecordBatch:
    """Return the rows of a batch that are not withheld: these are named by a hash of their key's values."""
    if not source.without:
        return batch
    key = [_key_text(batch[column.name], column) for column in source.columns if column.name in source.dataset.key]
    rows = zip(*(texts.to_pylist() for texts in key), strict=True)
    hashes = (sha256("\x1f".join(text for text in row if text is not None).encode()).hexdigest() for row in rows)
    return batch.filter(pa.array([row not in source.without for row in hashes]))


def _key_text(cells: pa.Array, column: TableColumn) -> pa.Array:
    if column.is_text:
        return cells
    return pc.cast(pc.cast(cells, pa.int64()), TEXT) if column.type == "timestamp" else _value_text(cells, column)


def _texts(batch: pa.RecordBatch, columns: Iterable[TableColumn], guards_quotes: bool) -> list[pa.Array]:
    return [_text(batch[column.name], column, guards_quotes) for column in columns]


def _text(cells: pa.Array, column: TableColumn, guards_quotes: bool) -> pa.Array:
    """Return the texts that the cells of a column must have."""
    if not column.is_text:
        return _value_text(cells, column)
    clean = pc.replace_substring(pc.cast(cells, TEXT), "\0", "")
    bare = pc.ascii_ltrim(clean, "'") if guards_quotes else clean
    is_formula = pc.is_in(pc.utf8_slice_codeunits(bare, 0, 1), FORMULA_STARTS)
    return pc.if_else(is_formula, pc.binary_join_element_wise(GUARD, clean, NO_SEPARATOR), clean)


def _value_text(cells: pa.Array, column: TableColumn) -> pa.Array:
    if column.type == "timestamp":
        # Arrow takes ten times as long for texts of times with a zone.
        microseconds = pc.cast(cells, pa.timestamp("us"))
        milliseconds = pc.cast(microseconds, pa.timestamp("ms"), safe=False)
        is_whole = pc.equal(pc.cast(milliseconds, microseconds.type), microseconds)
        text = pc.if_else(is_whole, pc.cast(milliseconds, TEXT), pc.cast(microseconds, TEXT))
        text = pc.binary_replace_slice(text, len("2026-11-16"), len("2026-11-16 "), "T")
        return pc.binary_join_element_wise(text, UTC, NO_SEPARATOR)
    text = pc.cast(cells, TEXT)
    # Arrow writes small decimals with an exponent.
    if pc.any(pc.match_substring(text, "E")).as_py():
        return pa.array([None if value is None else f"{value:f}" for value in cells.to_pylist()], TEXT)
    return text


def _schema_of_texts(names: Iterable[str]) -> pa.Schema:
    return pa.schema([(column, TEXT) for column in names])


def _order(source: Source) -> str:
    return ", ".join(f"{name(f'{SORT_KEY}{column}')} asc nulls first" for column in source.dataset.order_by)


def _hash(columns: Iterable[str]) -> str:
    return f"hash({', '.join(map(name, columns))})"


def _value(database: duckdb.DuckDBPyConnection, sql: str) -> Any:
    (value,) = one_row(database, sql)
    return value
