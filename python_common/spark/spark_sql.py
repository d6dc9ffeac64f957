"""What the steps that speak to Spark share: quoting, and errors that fit on a line."""

import re
from typing import Any

from pyhive import hive
from pyhive.exc import Error
from thrift.Thrift import TException

from python_common.config.settings import CATALOG_NAME
from python_common.errors import UserError
from python_common.spark import thrift

EXCEPTION = "HiveSQLException:"
ERROR = re.compile(r"(?:\[(?P<condition>[\w.]+)\] )?[\w.$]*?(?P<type>\w+(?:Exception|Error)): (?P<text>.*)")
STATEMENT_ERRORS = ("AnalysisException", "ParseException")


def identifier(name: str) -> str:
    """Return a column or table name in backticks."""
    return "`" + name.replace("`", "``") + "`"


def relation(table: str) -> str:
    """Return the full name of a table, given as schema.name."""
    return ".".join(map(identifier, (CATALOG_NAME, *table.split("."))))


def literal(text: str) -> str:
    """Return a string literal."""
    # Spark replaces ${...} before it parses a statement.
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'").replace("$", "\\u0024") + "'"


def run(cursor: hive.Cursor, sql: str, purpose: str) -> list[tuple[Any, ...]]:
    """Run one statement and return its rows; `purpose` completes "Spark failed to ...".

    Raises:
        UserError: Spark refused the statement or the connection broke.
    """
    try:
        return thrift.rows(cursor, sql)
    except (Error, TException, OSError) as error:
        if thrift.is_timeout(error):
            raise
        status = getattr(error.args[0], "status", None) if error.args else None
        why = reason(status.errorMessage or "") if status else type(error).__name__
        raise UserError(
            f"Spark failed to {purpose}: {why}",
            "See `lakehouse stack logs thrift`, and run the command again once that is repaired",
        ) from None


def reason(message: str) -> str:
    """Return why Spark failed, on one line.

    Spark's error about the statement itself is returned as it is. An error that arose on the data may quote a value
    (`The value 'x' cannot be cast`), so of that only the name of the condition is returned.
    """
    line = message.rsplit(EXCEPTION, maxsplit=1)[-1].splitlines()[0] if message else ""
    match = ERROR.search(line)
    if not match:
        return "no reason given"
    if match["type"].endswith(STATEMENT_ERRORS):
        return match["text"]
    return match["condition"] or match["type"]
