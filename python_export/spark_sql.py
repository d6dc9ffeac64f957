"""What the steps that speak to Spark share: quoting, and errors that fit on a line."""

from typing import Any

from pyhive import hive
from pyhive.exc import Error
from thrift.Thrift import TException

from lakehouse import thrift
from lakehouse.errors import UserError
from lakehouse.settings import CATALOG_NAME
from python_export.datasets import Table


def identifier(name: str) -> str:
    """Return a column or table name in backticks."""
    return "`" + name.replace("`", "``") + "`"


def relation(table: Table) -> str:
    """Return a table's full name."""
    return ".".join(identifier(part) for part in (CATALOG_NAME, table.schema, table.name))


def literal(text: str) -> str:
    """Return a string literal."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def run(cursor: hive.Cursor, sql: str, purpose: str) -> list[tuple[Any, ...]]:
    """Run one statement and return its rows; `purpose` completes "Spark failed to ...".

    Raises:
        UserError: Spark refused the statement or the connection broke. It holds the first line of Spark's message; the
            rest is a Java stack trace.
    """
    try:
        return thrift.rows(cursor, sql)
    except (Error, TException, OSError) as error:
        status = getattr(error.args[0], "status", None) if error.args else None
        reason = (status.errorMessage if status else str(error)) or type(error).__name__
        raise UserError(
            f"Spark failed to {purpose}: {reason.splitlines()[0].strip()}",
            "See `lakehouse stack logs thrift`, and run the command again once that is repaired",
        ) from None
