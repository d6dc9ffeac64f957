"""Writes a version's rows in other formats: typed, without the formula guard, and the same bytes each time.

They are made of the verified CSV, so what was checked of it holds for them.
"""

import gzip
import shutil
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from datetime import date, datetime
from decimal import Decimal
from itertools import chain, islice
from pathlib import Path, PurePosixPath
from typing import Any

import duckdb

from python_common.errors import UserError
from python_export.csv.compare import FORMULA, SPREADSHEET_ROWS, is_same
from python_export.csv.csv_file import connect, name, reading, rows_of, text
from python_export.datasets import snapshot
from python_export.datasets.declared import require_library
from python_export.publishing.manifest import Column, File, Manifest
from python_export.publishing.target import digest

# A spreadsheet rounds the next digit, has no earlier date, and does not show more decimal places.
DIGITS, FIRST_YEAR, PLACES = 15, 1900, 30
ROWS_AT_ONCE = 10_000


def write(
    csv: Path, manifest: Manifest, formats: Collection[str], scratch: Path, at_most: int = SPREADSHEET_ROWS - 1
) -> list[File]:
    """Write the rows of a version's CSV next to it in some formats, and return the files for its manifest.

    A spreadsheet has `at_most` rows; more rows are in several files.

    Raises:
        UserError: a library is missing, a file cannot be written, or it does not have the rows of the CSV.
    """
    require_library(formats)
    room = "Make room in the export's staging area, and run it again"
    files = []
    for form in formats:
        file = csv.with_name(f"{PurePosixPath(manifest.file).stem}.{form}")
        rows = {file: manifest.rows}
        with reading(scratch, f"{manifest.path} cannot be written as {form}", room) as database:
            # Of several threads the first one to end would decide what is where.
            database.execute("set threads = 1")
            if form == "csv.gz":
                _write_gzip(csv, file)
            elif form == "parquet":
                typed = _typed(csv, manifest, "timestamptz")
                database.execute(f"copy ({typed}) to {text(str(file))} (format parquet)")
            else:
                rows = _write_xlsx(database, csv, manifest, file, scratch, at_most)
        for written, number in rows.items():
            if not has_rows(written, csv, manifest, scratch):
                raise UserError(f"{written.name} does not have the rows of the CSV", "Run the export again")
            path = str(PurePosixPath(manifest.file).with_name(written.name))
            files.append(File(form, path, written.stat().st_size, digest(written), number))
    return files


def has_rows(file: Path, csv: Path, manifest: Manifest, scratch: Path) -> bool:
    """Return whether a file has the rows of the CSV, in its order. One that DuckDB cannot read is not compared."""
    if file.suffix not in (".gz", ".parquet"):
        return True
    is_csv = file.suffix == ".gz"
    typed = f"({_typed(file, manifest, 'timestamptz')})" if is_csv else f"read_parquet({text(str(file))})"
    columns = [snapshot.Column(column.name, column.type) for column in manifest.columns]
    with suppress(duckdb.Error), connect(scratch) as database:
        return is_same(database, typed, csv, columns)
    return False


def _typed(csv: Path, manifest: Manifest, timestamp: str) -> str:
    """Return the SQL for the rows of a CSV with the values of its table."""
    cells = []
    for column in manifest.columns:
        cell = name(column.name)
        if column.type == "string":
            guarded = f"{cell} like '''%' and unicode(ltrim({cell}, '''')) in ({FORMULA})"
            cells.append(f"case when {guarded} then {cell}[2:] else {cell} end as {cell}")
        else:
            cells.append(f"cast({cell} as {timestamp if column.type == 'timestamp' else column.type}) as {cell}")
    return f"select {', '.join(cells)} from {rows_of(csv, manifest.column_names)}"


def _write_gzip(csv: Path, file: Path) -> None:
    with csv.open("rb") as plain, file.open("wb") as packed, gzip.GzipFile("", "wb", 6, packed, mtime=0) as stream:
        shutil.copyfileobj(plain, stream)


def _write_xlsx(
    database: duckdb.DuckDBPyConnection, csv: Path, manifest: Manifest, file: Path, scratch: Path, at_most: int
) -> dict[Path, int]:
    """Write workbooks of one sheet, named `_part1` and so on if there are several; return their numbers of rows."""
    from xlsxwriter import Workbook  # noqa: PLC0415 - an extra

    rows = _fetched(database.execute(_typed(csv, manifest, "timestamp")))
    written = {}
    for first in range(0, max(manifest.rows, 1), at_most):
        part = f"_part{first // at_most + 1}" if manifest.rows > at_most else ""
        workbook = file.with_stem(f"{file.stem}{part}")
        with Workbook(str(workbook), {"constant_memory": True, "tmpdir": str(scratch)}) as book:
            # By default it is the time of writing.
            book.set_properties({"created": datetime.fromisoformat(manifest.window_end)})
            sheet = book.add_worksheet(manifest.dataset[:31])
            sheet.freeze_panes(1, 0)
            sheet.set_column(0, len(manifest.columns) - 1, 24)
            styles = [book.add_format({"num_format": _number_format(column)}) for column in manifest.columns]
            for number, row in enumerate(chain([manifest.column_names], islice(rows, at_most))):
                written[workbook] = number
                for position, value in enumerate(row):
                    _write_cell(sheet, number, position, value, styles[position])
    return written


def _fetched(cursor: duckdb.DuckDBPyConnection) -> Iterator[Sequence[Any]]:
    while rows := cursor.fetchmany(ROWS_AT_ONCE):
        yield from rows


def _number_format(column: Column) -> str:
    """Return the format of a column's numbers and times; text has no use for it."""
    times = {"date": "yyyy-mm-dd", "timestamp": "yyyy-mm-dd hh:mm:ss.000"}
    scale = min(column.scale, PLACES)
    return times.get(column.type, "0." + "0" * scale if scale else "0")


def _write_cell(sheet: Any, row: int, column: int, value: object, style: Any) -> None:
    """Write a typed cell: never as a formula, and as text what a spreadsheet would change. NULL is an empty cell."""
    if isinstance(value, bool):
        sheet.write_boolean(row, column, value)
    elif isinstance(value, int | Decimal) and len(f"{Decimal(value):f}".replace(".", "").strip("-0")) <= DIGITS:
        sheet.write_number(row, column, value, style)
    elif isinstance(value, date) and value.year >= FIRST_YEAR:
        sheet.write_datetime(row, column, value, style)
    elif value is not None:
        sheet.write_string(row, column, f"{value:f}" if isinstance(value, Decimal) else str(value))
