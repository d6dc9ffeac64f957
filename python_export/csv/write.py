"""Writes one snapshot of an export table to one CSV file, by DuckDB's COPY over the table's data files.

The dialect is RFC 4180 with LF between rows: NULL is nothing, the empty string is `""`, a quote is doubled, and only
cells that need quotes have them. compare.py derives the same texts a second time, without this module.
"""

from pathlib import Path

import duckdb

from python_export.csv import exact
from python_export.csv.csv_file import MEMORY_LIMIT, name, reading, text
from python_export.csv.snapshot_rows import batches, scan_of, whole_files
from python_export.datasets.dictionary import FORMULA_STARTS
from python_export.datasets.snapshot import Source, TableColumn

# DuckDB's default of a comment, `#`, would put each cell that holds one in quotes.
OPTIONS = """format csv, header, delimiter ',', quote '"', escape '"', nullstr '', comment ''"""
# The code points that a formula begins with.
FORMULA = ", ".join(str(ord(start)) for start in FORMULA_STARTS)
BYTE_ORDER_MARK = "\ufeff"


def write(source: Source, file: Path, scratch: Path, bom: bool = False) -> None:
    """Write a source to a file, which has a header, then one line per row in the dataset's order.

    A byte order mark before the header makes older spreadsheets read the text as UTF-8. `scratch` is a directory for
    what outgrows memory.

    Raises:
        UserError: the table cannot be read, or the file cannot be written.
    """
    failed = f"{source.dataset.name}: DuckDB could not write the file"
    room = f"It works in {MEMORY_LIMIT} of memory and on the disk of the file; check that there is room"
    with reading(scratch, failed, room) as database:
        load_table(database, source)
        database.execute(f"copy ({statement(source, bom)}) to {text(str(file))} ({OPTIONS})")


def statement(source: Source, bom: bool = False) -> str:
    """Return the SQL of the file's cells in its order, from `snapshot_rows`."""
    # COPY writes no byte order mark: it is the start of the first name.
    marks = (BYTE_ORDER_MARK if bom and not position else "" for position in range(len(source.columns)))
    cells = ", ".join(
        f"{cell_text(column, source.guards_quotes)} as {name(mark + column.name)}"
        for mark, column in zip(marks, source.columns, strict=True)
    )
    # The columns of `snapshot_rows`: a text may have the same name.
    order = ", ".join(f"snapshot_rows.{name(column)} asc nulls first" for column in source.dataset.order_by)
    return f"select {cells} from snapshot_rows order by {order}"


def cell_text(column: TableColumn, guards_quotes: bool) -> str:
    """Return the SQL of the text of a cell."""
    cell = name(column.name)
    if column.is_text:
        clean = without_nul(cell)
        # Quotes before it count too: `=1` and `'=1` must not become the same cell.
        bare = f"ltrim({clean}, '''')" if guards_quotes else clean
        return f"case when unicode({bare}) in ({FORMULA}) then '''' || {clean} else {clean} end"
    if column.type == "timestamp":
        # A time has milliseconds, or microseconds where it is finer: nothing is cut off.
        micros = f"strftime(make_timestamp(epoch_us({cell})), '%Y-%m-%dT%H:%M:%S.%f')"
        return f"regexp_replace({micros}, '000$', '') || 'Z'"
    return exact.text(cell, column)


def without_nul(cell: str) -> str:
    """Return the SQL of a text without NUL: many programs end a text there, or refuse the whole file."""
    return f"replace({cell}, chr(0), '')"


def load_table(database: duckdb.DuckDBPyConnection, source: Source) -> None:
    """Load the rows of a source as `snapshot_rows`, without those that are withheld.

    DuckDB reads the files by itself where it can.
    """
    if paths := whole_files(list(scan_of(source).plan_files())):
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


def row_hash(source: Source) -> str:
    """Return the SQL that names a row of `snapshot_rows` without its key; compare.py has it for Arrow."""
    columns = {column.name: column for column in source.columns}
    return f"sha256(concat_ws(chr(31), {', '.join(_as_text(columns[key]) for key in source.dataset.key)}))"


def _as_text(column: TableColumn) -> str:
    cell = f"snapshot_rows.{name(column.name)}"
    return exact.text(f"epoch_us({cell})" if column.type == "timestamp" else cell, column)
