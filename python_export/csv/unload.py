"""Writes one snapshot of an export table to one CSV file, by Spark SQL on the Thrift server.

The dialect is RFC 4180 with LF between rows: NULL is nothing, the empty string is `""`, a quote is doubled. Spark's
defaults would trim blanks, escape with backslashes and write small decimals in scientific notation.
"""

import codecs
import re
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import ClassVar

from pyhive import hive

from python_common.errors import UserError
from python_common.spark import spark_sql
from python_export.csv.bucket import ABANDONED_AFTER, Bucket
from python_export.datasets.dictionary import FORMULA_STARTS
from python_export.datasets.snapshot import Column, Source

# Never lineSep: with CRLF, Spark rewrites the line breaks inside cells.
OPTIONS = {
    "header": "true",
    "quote": '"',
    "escape": '"',
    "emptyValue": '""',
    "ignoreLeadingWhiteSpace": "false",
    "ignoreTrailingWhiteSpace": "false",
    "compression": "none",
}

COPY_BYTES = 4 * 1024 * 1024
# The folders in a bucket that only this project writes, and that clean-up may delete.
FOLDER = re.compile(r"(lakehouse-unload-[0-9a-f]{16})/.*")
# What Hadoop writes when all parts are there.
COMMITTED = "_SUCCESS"

# A time has milliseconds, or microseconds where it is finer: nothing is cut off.
MILLISECONDS, MICROSECONDS = (f"yyyy-MM-dd'T'HH:mm:ss.{fraction}XXX" for fraction in ("SSS", "SSSSSS"))


def unload(
    cursor: hive.Cursor, source: Source, directory: Path, bom: bool = False, by_way_of: str | None = None
) -> Path:
    """Write a source to one file under `directory`, which is not there yet, and return the file.

    Spark writes there itself, or to the s3a:// address `by_way_of`, from where the parts are taken.

    The file has a header, then one line per row in the dataset's order; no row gives a header alone. A byte order mark
    before the header makes older spreadsheets read the text as UTF-8.

    Raises:
        UserError: Spark failed, or left nothing where this process can see it.
    """
    purpose = f"unload {source.dataset.name}"
    if by_way_of:
        bucket = UnloadBucket.at(by_way_of)
        with bucket.folder() as folder:
            spark_sql.run(cursor, statement(source, bucket.for_spark(folder)), purpose)
            bucket.take(folder, directory)
    else:
        spark_sql.run(cursor, statement(source, f"file:{directory}"), purpose)
    part_files = sorted(directory.glob("part-*.csv"))
    if not part_files:
        raise UserError(
            f"Spark left no file in {directory}",
            "Set LAKEHOUSE_EXPORT_UNLOAD to s3a://bucket/prefix where the Thrift server or its executors are on other"
            " machines; else let the export root, or LAKEHOUSE_EXPORT_STAGING, be a directory that they all share",
        )
    return _concatenated(part_files, directory / "joined.csv", codecs.BOM_UTF8 if bom else b"")


def statement(source: Source, directory: str) -> str:
    """Return the SQL that unloads a source to the URL of a directory.

    Spark sorts by ranges: its parts, in turn, are in the total order. The sort is below the texts of the cells, because
    Spark computes twice what it sorts: to sample the ranges, then to sort.
    """
    options = ", ".join(f"{spark_sql.literal(name)} {spark_sql.literal(text)}" for name, text in OPTIONS.items())
    columns = ",\n    ".join(
        f"{_cell(column, source.guards_quotes)} as {spark_sql.identifier(column.name)}" for column in source.columns
    )
    order = ", ".join(f"source.{spark_sql.identifier(name)} asc nulls first" for name in source.dataset.order_by)
    return f"""\
insert overwrite directory {spark_sql.literal(directory)} using csv options ({options})
select
    {columns}
from (
    select * from {spark_sql.relation(source.dataset.table)} version as of {source.snapshot_id} as source
    {_where(source)}order by {order}
) as source"""


def _where(source: Source) -> str:
    """Return what limits the rows to the week, and leaves out those that are withheld.

    These are named by a hash, for SQL is logged.
    """
    conditions = []
    if source.week and source.dataset.week_column:
        column = spark_sql.identifier(source.dataset.week_column)
        conditions.append(f"source.{column} = {spark_sql.literal(str(source.week))}")
    if source.without:
        types = {column.name: column.type for column in source.columns}
        cells = {key: f"source.{spark_sql.identifier(key)}" for key in source.dataset.key}
        texts = (f"unix_micros({cell})" if types[key] == "timestamp" else cell for key, cell in cells.items())
        row = f"sha2(concat_ws(char(31), {', '.join(f'cast({text} as string)' for text in texts)}), 256)"
        conditions.append(f"{row} not in ({', '.join(map(spark_sql.literal, sorted(source.without)))})")
    return f"where {' and '.join(conditions)}\n    " if conditions else ""


def _concatenated(part_files: list[Path], joined: Path, start: bytes) -> Path:
    """Join parts, each with the header, to one file with one header."""
    if len(part_files) == 1 and not start:
        return part_files[0]
    with joined.open("wb") as file:
        file.write(start)
        for number, part in enumerate(part_files):
            with part.open("rb") as stream:
                header = stream.readline()
                file.write(b"" if number else header)
                shutil.copyfileobj(stream, file, COPY_BYTES)
            part.unlink()
    return joined


def _cell(column: Column, guards_quotes: bool) -> str:
    name = f"source.{spark_sql.identifier(column.name)}"
    if column.type.startswith("decimal"):
        return f"cast({name} as string)"
    if column.is_text:
        starts = ", ".join(f"char({ord(start)})" if start < " " else f"'{start}'" for start in FORMULA_STARTS)
        # Many programs end a text at a NUL, or refuse the whole file.
        clean = f"replace({name}, char(0), '')"
        # Quotes before it count too: `=1` and `'=1` must not become the same cell.
        bare = f"trim(leading '\\'' from {clean})" if guards_quotes else clean
        return f"case when left({bare}, 1) in ({starts}) then concat('\\'', {clean}) else {clean} end"
    if column.type == "timestamp":
        fine, finer = (f"date_format({name}, {spark_sql.literal(form)})" for form in (MILLISECONDS, MICROSECONDS))
        return f"if(unix_micros({name}) % 1000 = 0, {fine}, {finer})"
    return name


class UnloadBucket(Bucket):
    """The prefix that LAKEHOUSE_EXPORT_UNLOAD names: a Spark on other machines hands over its files there.

    Each unload has a folder: Spark writes there by Hadoop's s3a, this process downloads the files and deletes it.
    """

    what: ClassVar[str] = "The place of unloads"
    variable: ClassVar[str] = "LAKEHOUSE_EXPORT_UNLOAD"

    @contextmanager
    def folder(self) -> Iterator[str]:
        """Yield a folder for one unload; what is in it is deleted afterwards."""
        folder = f"lakehouse-unload-{secrets.token_hex(8)}"
        try:
            yield folder
        except BaseException:
            # The first error counts, not that the folder cannot be deleted either.
            with suppress(UserError):
                self.empty(folder)
            raise
        self.empty(folder)

    def for_spark(self, folder: str) -> str:
        """Return the URL by which Spark knows a folder."""
        return f"s3a://{self.bucket}/{self._key(folder)}"

    def take(self, folder: str, directory: Path) -> None:
        """Download the parts of an unload to a new directory; a UserError if Spark has not committed it there."""
        names = [path.removeprefix(f"{folder}/") for path, _ in self._objects(f"{folder}/")]
        if COMMITTED not in names:
            raise UserError(
                f"Spark left no file under {self.for_spark(folder)}",
                "The Thrift server, its executors and this command must have the same store in AWS_ENDPOINT_URL_S3",
            )
        directory.mkdir()
        for name in names:
            if name.startswith("part-"):
                self.download(f"{folder}/{name}", directory / name)

    def clean(self, abandoned_after: timedelta = ABANDONED_AFTER) -> None:
        """Delete the folders of runs that died: those in which nothing is young."""
        limit = datetime.now(UTC) - abandoned_after
        newest: dict[str, datetime] = {}
        for path, written in self._objects("lakehouse-unload-"):
            if match := FOLDER.fullmatch(path):
                newest[match[1]] = max(written, newest.get(match[1], written))
        for folder, written in newest.items():
            if written <= limit:
                self.empty(folder)
        self.abort_uploads("lakehouse-unload-", FOLDER, limit)
