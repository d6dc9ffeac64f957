"""Writes the rows of a verified CSV in other formats: typed, without the formula guard, the same bytes each time."""

import gzip
import hashlib
import shutil
import zlib
from collections.abc import Collection, Iterator
from datetime import date, datetime
from decimal import Decimal
from importlib.util import find_spec
from itertools import chain, islice, zip_longest
from pathlib import Path, PurePosixPath
from typing import Any
from xml.etree.ElementTree import iterparse
from zipfile import ZipFile

from python_common.errors import UserError
from python_export.csv.compare import is_same
from python_export.csv.csv_file import name, reading, rows_of, text
from python_export.csv.facts import SPREADSHEET_ROWS
from python_export.csv.write import FORMULA
from python_export.publishing.manifest import File, Manifest
from python_export.publishing.target import digest

# A spreadsheet rounds the next digit, and shows no more decimal places. Before this month programs count days
# differently: Excel has a 29 February 1900.
DIGITS, PLACES, FIRST_MONTH = 15, 30, "1900-03"
ROOM = "Make room in the export's staging area, and run it again"
TIMES = {"date": "yyyy-mm-dd", "timestamp": "yyyy-mm-dd hh:mm:ss.000"}


def require(formats: Collection[str]) -> None:
    """Raise a UserError if what writes a format is not installed."""
    if "xlsx" in formats and not find_spec("xlsxwriter"):
        raise UserError("XlsxWriter is not installed, which writes xlsx", "Run `uv sync --inexact --extra xlsx`")


def write(
    csv: Path, manifest: Manifest, formats: Collection[str], scratch: Path, at_most: int = SPREADSHEET_ROWS - 1
) -> list[File]:
    """Write the rows of a version's CSV next to it in some formats, and return the files for its manifest.

    A spreadsheet has `at_most` rows; more rows are in several files.

    Raises:
        UserError: a file cannot be written, or Parquet does not have the rows of the CSV.
    """
    if not formats:
        return []
    require(formats)
    rows: dict[Path, int] = {}
    with reading(scratch, f"{manifest.path} cannot be written in other formats", ROOM) as database:
        # Several threads: the first one to end would decide what is where.
        database.execute("set threads = 1")
        for form in formats:
            file = csv.with_name(f"{PurePosixPath(manifest.file).stem}.{form}")
            if form == "xlsx":
                typed = iter(database.execute(_typed(csv, manifest, "timestamp")).fetchone, None)
                rows |= _write_xlsx(typed, manifest, file, scratch, at_most)
                continue
            rows[file] = manifest.rows
            if form == "csv.gz":
                with csv.open("rb") as cells, file.open("wb") as raw, gzip.GzipFile("", "wb", 6, raw, 0) as packed:
                    shutil.copyfileobj(cells, packed)
            else:
                rows_of_csv = _typed(csv, manifest, "timestamptz")
                database.execute(f"copy ({rows_of_csv}) to {text(str(file))} (format parquet)")
                if not is_same(file, csv, manifest.columns, scratch):
                    raise UserError(f"{file.name} does not have the rows of the CSV", "Run the export again")
    path = PurePosixPath(manifest.file)
    return [
        File(file.name.partition(".")[2], str(path.with_name(file.name)), file.stat().st_size, digest(file), number)
        for file, number in rows.items()
    ]


def unpacks_to(file: Path, sha256: str) -> bool:
    """Return whether a gzip file has the bytes with a SHA-256."""
    try:
        with gzip.open(file) as content:
            return hashlib.file_digest(content, "sha256").hexdigest() == sha256
    except (OSError, EOFError, zlib.error):
        return False


def has_same_cells(file: Path, other: Path) -> bool:
    """Return whether two workbooks have the same sheets, with the same values in their cells."""
    try:
        return all(one == another for one, another in zip_longest(_cells(file), _cells(other)))
    except Exception:  # a damaged workbook may fail in any way
        return False


def _cells(file: Path) -> Iterator[tuple[str | None, ...]]:
    """Yield the name of each sheet, then position, type and content of its cells."""
    with ZipFile(file) as book:
        for sheet in (name for name in book.namelist() if name.startswith("xl/worksheets/")):
            yield (sheet,)
            for _, element in iterparse(book.open(sheet)):  # noqa: S314 - expat limits what entities expand to
                if element.tag.endswith("}c"):
                    yield element.get("r"), element.get("t"), *element.itertext()
                elif element.tag.endswith("}row"):
                    element.clear()


def _typed(csv: Path, manifest: Manifest, timestamp: str) -> str:
    """Return the SQL for the rows of a CSV with the values of its table."""
    cells = []
    for column in manifest.columns:
        cell = name(column.name)
        guarded = f"{cell} like '''%' and unicode(ltrim({cell}, '''')) in ({FORMULA})"
        bare = f"case when {guarded} then {cell}[2:] else {cell} end"
        typed = f"cast({cell} as {timestamp if column.type == 'timestamp' else column.type})"
        cells.append(f"{bare if column.is_text else typed} as {cell}")
    return f"select {', '.join(cells)} from {rows_of(csv, manifest.column_names)}"


def _write_xlsx(rows: Iterator[Any], manifest: Manifest, file: Path, scratch: Path, at_most: int) -> dict[Path, int]:
    """Write workbooks of one sheet, named `_part1` and so on if there are several; return their numbers of rows."""
    from xlsxwriter import Workbook, exceptions  # noqa: PLC0415 - an extra

    written = {}
    try:
        for first in range(0, max(manifest.rows, 1), at_most):
            part = file.with_stem(f"{file.stem}_part{first // at_most + 1}") if manifest.rows > at_most else file
            with Workbook(str(part), {"constant_memory": True, "tmpdir": str(scratch)}) as book:
                # By default it is the time of writing.
                book.set_properties({"created": datetime.fromisoformat(manifest.window_end)})
                sheet = book.add_worksheet(manifest.dataset[:31])
                # Text between <r> and </r> would be taken for markup, and could be a formula.
                sheet._xml_rich_inline_string = lambda cell, attributes, xml=sheet: xml._xml_inline_string(
                    cell, True, attributes
                )
                sheet.freeze_panes(1, 0)
                sheet.set_column(0, len(manifest.columns) - 1, 24)
                numbers = [TIMES.get(column.type, f"{0:.{min(column.scale, PLACES)}f}") for column in manifest.columns]
                styles = [book.add_format({"num_format": number}) for number in numbers]
                for number, row in enumerate(chain([manifest.column_names], islice(rows, at_most))):
                    written[part] = number
                    for position, value in enumerate(map(_exact, row)):
                        # Text is never a formula or a link, whatever it begins with.
                        write_cell = sheet.write_string if isinstance(value, str) else sheet.write
                        write_cell(number, position, value, styles[position])
    except exceptions.XlsxWriterException as error:
        raise UserError(f"{file.name} cannot be written ({type(error).__name__})", ROOM) from None
    return written


def _exact(value: object) -> object:
    """Return the value of a cell, as text if a spreadsheet would change it."""
    if isinstance(value, int | Decimal) and len(f"{Decimal(value):f}".replace(".", "").strip("-0")) > DIGITS:
        return f"{Decimal(value):f}"
    return str(value) if isinstance(value, date) and str(value) < FIRST_MONTH else value
