"""Writes one snapshot of an export table to one CSV file, by Spark SQL on the Thrift server.

The dialect is RFC 4180 with LF between rows: NULL is nothing, the empty string is `""`, a quote is doubled. Spark's
defaults would trim blanks, escape with backslashes and write small decimals in scientific notation.
"""

import codecs
import shutil
from pathlib import Path

from pyhive import hive

from lakehouse.errors import UserError
from python_export import spark_sql
from python_export.source import Column, Source

# Never lineSep: with CRLF, Spark rewrites the line breaks inside cells.
OPTIONS = {
    "header": "true",
    "quote": '"',
    "escape": '"',
    "emptyValue": '""',
    "ignoreLeadingWhiteSpace": "false",
    "ignoreTrailingWhiteSpace": "false",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSXXX",
    "compression": "none",
}

COPY_BYTES = 4 * 1024 * 1024

# A spreadsheet runs a cell that begins with one of these, the full-width forms included, as a formula (CWE-1236).
FORMULA_STARTS = "=+-@\t\r\0\uff1d\uff0b\uff0d\uff20"


def unload(cursor: hive.Cursor, source: Source, directory: Path, bom: bool = False) -> Path:
    """Write a source to one file under `directory`, which Spark creates, and return the file.

    The file has a header, then one line per row in the dataset's order; no row gives a header alone. A byte order mark
    before the header tells older spreadsheets that the text is UTF-8.

    Raises:
        UserError: Spark failed, or left nothing where this process can see it.
    """
    spark_sql.run(cursor, statement(source, directory), f"unload {source.dataset.name}")
    parts = sorted(directory.glob("part-*.csv"))
    if not parts:
        raise UserError(
            f"Spark left no file in {directory}",
            "The export root, with an object store LAKEHOUSE_EXPORT_STAGING, must be a directory that the Thrift"
            " server and this command share",
        )
    return _joined(parts, directory / "joined.csv", codecs.BOM_UTF8 if bom else b"")


def statement(source: Source, directory: Path) -> str:
    """Return the SQL that unloads a source. Spark sorts by ranges: its parts, in turn, are in the total order."""
    options = ", ".join(f"{spark_sql.literal(name)} {spark_sql.literal(text)}" for name, text in OPTIONS.items())
    columns = ",\n    ".join(f"{_cell(column)} as {spark_sql.identifier(column.name)}" for column in source.columns)
    order = ", ".join(f"source.{spark_sql.identifier(name)} asc nulls first" for name in source.dataset.order_by)
    return f"""\
insert overwrite directory {spark_sql.literal(f"file:{directory}")} using csv options ({options})
select
    {columns}
from {spark_sql.relation(source.dataset.table)} version as of {source.snapshot_id} as source
order by {order}"""


def _joined(parts: list[Path], whole: Path, start: bytes) -> Path:
    """Join parts, each with the header, to one file with one header."""
    if len(parts) == 1 and not start:
        return parts[0]
    with whole.open("wb") as joined:
        joined.write(start)
        for number, part in enumerate(parts):
            with part.open("rb") as stream:
                header = stream.readline()
                joined.write(b"" if number else header)
                shutil.copyfileobj(stream, joined, COPY_BYTES)
            part.unlink()
    return whole


def _cell(column: Column) -> str:
    name = f"source.{spark_sql.identifier(column.name)}"
    if column.type.startswith("decimal"):
        return f"cast({name} as string)"
    if column.is_text:
        starts = ", ".join(f"char({ord(start)})" if start < " " else f"'{start}'" for start in FORMULA_STARTS)
        return f"case when left({name}, 1) in ({starts}) then concat('\\'', {name}) else {name} end"
    return name
