"""SQL on the Spark Thrift server, for the commands that need no Spark of their own."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pyhive import hive
from thrift.transport.TTransport import TTransportException

from lakehouse.errors import UserError
from lakehouse.settings import THRIFT_USER, Settings


@contextmanager
def connect(settings: Settings) -> Iterator[hive.Cursor]:
    """Yield a cursor on the Thrift server.

    Raises:
        UserError: the server does not answer or refuses the password.
    """
    address = f"{settings.thrift_host}:{settings.thrift_port}"
    try:
        connection = hive.connect(
            settings.thrift_host,
            port=settings.thrift_port,
            username=THRIFT_USER,
            password=settings.thrift_password,
            auth="CUSTOM",
        )
    except TTransportException:
        raise UserError(
            f"The Spark Thrift server at {address} does not answer or refused the password",
            "Check `lakehouse stack status` and LAKEHOUSE_THRIFT_PASSWORD",
        ) from None
    try:
        yield connection.cursor()
    finally:
        connection.close()


def rows(cursor: hive.Cursor, sql: str) -> list[tuple[Any, ...]]:
    """Run one statement and return all its rows."""
    cursor.execute(sql)
    return cursor.fetchall() if cursor.description else []
