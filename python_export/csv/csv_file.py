"""How a published file is read with DuckDB: as text, row by row, with NULL and the empty string apart."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb

from python_common.errors import UserError

MEMORY_LIMIT = "1GB"
# DuckDB's own limit is 2 MB; its buffer, without a size, would be 16 times the limit.
LONGEST_ROW_BYTES = 32 * 1024 * 1024


def connect(scratch: Path) -> duckdb.DuckDBPyConnection:
    """Return an empty database in memory, with a directory for what outgrows it."""
    scratch.mkdir(parents=True, exist_ok=True)
    database = duckdb.connect(
        config={"memory_limit": MEMORY_LIMIT, "threads": 2, "temp_directory": str(scratch)},
    )
    database.execute("set enable_progress_bar = false")
    return database


@contextmanager
def reading(
    scratch: Path, failed: str, remedy: str, error_type: type[UserError] = UserError
) -> Iterator[duckdb.DuckDBPyConnection]:
    """Yield an empty database; an error of DuckDB is raised without its message, which may quote a row.

    Raises:
        UserError: `failed`, and the kind of DuckDB's error.
    """
    try:
        with connect(scratch) as database:
            yield database
    except duckdb.Error as error:
        raise error_type(f"{failed} ({type(error).__name__})", remedy) from None


def one_row(
    database: duckdb.DuckDBPyConnection, sql: str, parameters: Mapping[str, str] | None = None
) -> tuple[Any, ...]:
    """Return the row of a query that has exactly one."""
    [row] = database.execute(sql, parameters or {}).fetchall()
    return tuple(row)


def rows_of(file: Path, columns: Iterable[str]) -> str:
    """Return the SQL for the rows of a file, each cell as text."""
    types = ", ".join(f"{text(name)}: 'varchar'" for name in columns)
    return (
        f"read_csv({text(str(file))}, columns = {{{types}}}, auto_detect = false, header = true, "
        """delim = ',', quote = '"', escape = '"', nullstr = '', allow_quoted_nulls = false, """
        f"max_line_size = {LONGEST_ROW_BYTES}, buffer_size = {LONGEST_ROW_BYTES})"
    )


def name(identifier: str) -> str:
    """Return a column name, quoted."""
    return '"' + identifier.replace('"', '""') + '"'


def text(value: str) -> str:
    """Return a text literal."""
    return "'" + value.replace("'", "''") + "'"
