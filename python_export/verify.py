"""Reads a staged CSV with DuckDB and compares it with the Iceberg table, cell by cell, before anyone may see it.

It shares no code with the unload: PyIceberg says which files the table has, and the text each cell must have is
derived here a second time, formula guard included.
"""

import csv
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb

from lakehouse.errors import UserError
from python_export import pii_scan
from python_export.csv_file import MEMORY_LIMIT, connect, name, rows_of, text
from python_export.source import Column, Source

# The code points of = + - @ tab CR NUL, and of the full-width forms.
FORMULA = "61, 43, 45, 64, 9, 13, 0, 65309, 65291, 65293, 65312"
# What a spreadsheet holds, its header included.
SPREADSHEET_ROWS = 1_048_576
SPREADSHEET_CELL = 32_767


@dataclass(frozen=True)
class Facts:
    """What a verified file holds.

    `nulls` has every column, `control_totals` the sum of each numeric column as exact decimal text, `formula_escaped`
    the number of guarded cells of each text column, `long_cells` those that no spreadsheet holds. `suppressed` counts
    the small groups and `key_version` is that of all pseudonyms; they are None without the column that says so.
    `pii_scan` counts what was looked for and not found.
    """

    rows: int
    nulls: dict[str, int]
    control_totals: dict[str, str]
    formula_escaped: dict[str, int]
    long_cells: dict[str, int]
    suppressed: int | None
    key_version: str | None
    pii_scan: dict[str, int]

    def warnings(self) -> list[str]:
        """Return what a spreadsheet would cut off."""
        found = [
            f"{cells} cells of {column} are longer than the {SPREADSHEET_CELL:,} characters of a spreadsheet's cell"
            for column, cells in self.long_cells.items()
            if cells
        ]
        if self.rows >= SPREADSHEET_ROWS:
            found.insert(0, f"the file has more than the {SPREADSHEET_ROWS:,} rows of a spreadsheet")
        return found


def verify(file: Path, source: Source, scratch: Path) -> Facts:
    """Compare a file with its source and return its facts; `scratch` is a directory for what outgrows memory.

    Raises:
        UserError: the file differs from the table, or holds what looks like personal data. It tells how, by counts and
            column names, never by values.
    """
    try:
        with connect(scratch) as database:
            differences = _read_file(database, file, source.columns)
            if not differences:
                _read_table(database, source)
                measured = _measure(database, source.columns)
                differences = _differences(database, source, measured)
            if not differences:
                return _facts(source, measured, pii_scan.require_none(database, "staged", source))
    except duckdb.Error as error:
        # The message may quote a value; its kind does not.
        raise UserError(
            f"{source.dataset.name}: DuckDB could not compare the file with the table ({type(error).__name__})",
            f"It works in {MEMORY_LIMIT} of memory and on disk beside the file; see that there is room",
        ) from None
    raise UserError(
        f"{source.dataset.name}: the unloaded file differs from the table, so nothing is published: "
        + "; ".join(differences),
        "Run the export again; if it fails again, the table or the unload is wrong",
    )


def _read_file(database: duckdb.DuckDBPyConnection, file: Path, columns: tuple[Column, ...]) -> list[str]:
    """Load the file as text, in its order, and return why that failed."""
    names = [column.name for column in columns]
    with file.open(newline="", encoding="utf-8-sig", errors="replace") as stream:
        header = next(csv.reader(stream), [])
    if header != names:
        return ["the header does not name the table's columns"]
    with file.open("rb") as stream:
        stream.seek(-1, 2)
        if stream.read() != b"\n":
            return ["the last row is cut off"]
    try:
        database.execute(f"create table staged as select * from {rows_of(file, names)}")
    except duckdb.Error as error:
        # Only the first line: the others quote the row.
        return [f"DuckDB cannot read it ({str(error).splitlines()[0]})"]
    return []


def _read_table(database: duckdb.DuckDBPyConnection, source: Source) -> None:
    """Load the table as `expected`, in the order the file must have."""
    order = ", ".join(f"{name(column)} asc nulls first" for column in source.dataset.order_by)
    columns = ", ".join(name(column.name) for column in source.columns)
    database.execute(f"create table expected as select {columns} from {rows_in(database, source)} order by {order}")


def rows_in(database: duckdb.DuckDBPyConnection, source: Source) -> str:
    """Return the SQL for the rows of a table, as PyIceberg says which files have them.

    DuckDB reads the files by itself where it can: PyIceberg holds each of them in memory as a whole.
    """
    scan = source.table.scan(snapshot_id=source.snapshot_id)
    tasks = list(scan.plan_files())
    paths = [task.file.file_path.removeprefix("file://").removeprefix("file:") for task in tasks]
    if paths and all(path.startswith("/") for path in paths) and not any(task.delete_files for task in tasks):
        return f"read_parquet([{', '.join(map(text, paths))}])"
    database.register("reader", scan.to_arrow_batch_reader())
    return "reader"


def _measure(database: duckdb.DuckDBPyConnection, columns: tuple[Column, ...]) -> dict[tuple[str, str], Any]:
    """Return figures by kind and column, all from one pass over both tables row beside row."""
    figures: dict[tuple[str, str], str] = {("rows", ""): "count(*)"}
    for column in columns:
        staged, expected = f"staged.{name(column.name)}", f"expected.{name(column.name)}"
        shown = _expected_text(column, expected)
        figures["unequal", column.name] = f"count(*) filter ({staged} is distinct from {shown})"
        figures["cells", column.name] = f"count({expected})"
        if column.is_numeric:
            # try_cast: a damaged cell adds nothing, and the cell comparison names it.
            figures["total in file", column.name] = f"sum(try_cast({staged} as {column.type}))"
            figures["total", column.name] = f"sum({expected})"
            figures["exact total", column.name] = f"cast(coalesce(sum({expected}), 0) as varchar)"
        if column.is_text:
            figures["guarded", column.name] = f"count(*) filter ({shown} is distinct from {expected})"
            figures["long", column.name] = f"count(*) filter (length({expected}) > {SPREADSHEET_CELL})"
        if column.name == "is_suppressed":
            figures["suppressed", ""] = f"count(*) filter ({expected})"
        if column.name == "key_version":
            figures["first key", ""], figures["last key", ""] = f"min({expected})", f"max({expected})"
    row = database.execute(f"select {', '.join(figures.values())} from staged positional join expected").fetchone()
    return dict(zip(figures, row, strict=True))


def _differences(
    database: duckdb.DuckDBPyConnection, source: Source, measured: dict[tuple[str, str], Any]
) -> list[str]:
    """Return every way in which the file differs from the table, or mixes what must not be mixed."""
    in_file, in_table = (_value(database, f"select count(*) from {table}") for table in ("staged", "expected"))
    differences = []
    if in_file != in_table:
        differences.append(f"{in_file} rows instead of {in_table}")

    in_cells = {column.name for column in source.columns if measured["unequal", column.name]}
    key = ", ".join(name(column) for column in source.dataset.key)
    text_of_key = ", ".join(
        _expected_text(column, name(column.name)) for column in source.columns if column.name in source.dataset.key
    )
    staged = ", ".join(name(column.name) for column in source.columns if column.name in source.dataset.key)
    keys = f"select {staged} from staged", f"select {text_of_key} from expected"
    queries = {"keys more than once": f"select {key} from staged group by all having count(*) > 1"}
    if in_cells:
        queries = {
            "keys missing": f"({keys[1]}) except ({keys[0]})",
            "keys too many": f"({keys[0]}) except ({keys[1]})",
            **queries,
        }
    for what, query in queries.items():
        if found := _value(database, f"select count(*) from ({query})"):
            differences.append(f"{found} {what} ({', '.join(source.dataset.key)})")

    for column in (column.name for column in source.columns):
        if measured.get(("total in file", column)) != measured.get(("total", column)):
            differences.append(f"another control total of {column}")
        if in_file == in_table and column in in_cells:
            differences.append(f"{measured['unequal', column]} cells of {column}")
    if measured.get(("first key", "")) != measured.get(("last key", "")):
        differences.append("pseudonyms of more than one version of the masking key")
    return differences


def _facts(source: Source, measured: dict[tuple[str, str], Any], scanned: dict[str, int]) -> Facts:
    rows = measured["rows", ""]
    texts = [column.name for column in source.columns if column.is_text]
    return Facts(
        rows=rows,
        nulls={column.name: rows - measured["cells", column.name] for column in source.columns},
        control_totals={
            column.name: measured["exact total", column.name] for column in source.columns if column.is_numeric
        },
        formula_escaped={column: measured["guarded", column] for column in texts},
        long_cells={column: measured["long", column] for column in texts},
        suppressed=measured.get(("suppressed", "")),
        key_version=measured.get(("first key", "")),
        pii_scan=scanned,
    )


def _expected_text(column: Column, value: str) -> str:
    """Return the SQL of the text that a cell must have."""
    if column.is_text:
        return f"case when unicode({value}) in ({FORMULA}) then '''' || {value} else {value} end"
    if column.type == "timestamp":
        # A time finer than the format's milliseconds keeps its digits here and so counts as a difference.
        micros = f"strftime(make_timestamp(epoch_us({value})), '%Y-%m-%dT%H:%M:%S.%f')"
        return f"regexp_replace({micros}, '000$', '') || 'Z'"
    return f"cast({value} as varchar)"


def _value(database: duckdb.DuckDBPyConnection, sql: str) -> Any:
    return database.execute(sql).fetchone()[0]
