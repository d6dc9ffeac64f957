"""SQL on the Spark Thrift server."""

import logging
import math
import ssl
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

from pyhive import hive
from TCLIService.ttypes import TOperationState
from thrift.Thrift import TException
from thrift.transport.TSocket import TSocket
from thrift.transport.TSSLSocket import TSSLSocket
from thrift.transport.TTransport import TTransportException
from thrift_sasl import TSaslClientTransport

from python_common.catalog import catalog_properties
from python_common.config.settings import THRIFT_USER, Settings
from python_common.errors import DeadlineError, UserError

# Statements of exports and checks take minutes. dbt connects by itself and is not bound by it.
STATEMENT_SECONDS = 3600.0
# The server cancels a statement that takes too long before the client gives up.
GRACE_SECONDS = 30.0
QUERY_TIMEOUT = "spark.sql.thriftServer.queryTimeout"
TIMED_OUT = ("Query timed out", "found TIMEDOUT")


class SessionError(UserError):
    """The server answers, but opens no session: that opens the catalog."""


@contextmanager
def connect(settings: Settings) -> Iterator[hive.Cursor]:
    """Yield a cursor on the Thrift server; a statement may take STATEMENT_SECONDS.

    Raises:
        SessionError: the server cannot open the catalog.
        UserError: it does not answer or refuses the password.
    """
    address = f"{settings.thrift_host}:{settings.thrift_port}"
    socket = _socket(settings)
    socket.setTimeout((STATEMENT_SECONDS + GRACE_SECONDS) * 1000)
    login = {"username": THRIFT_USER, "password": settings.thrift_password}
    sasl = partial(hive.get_installed_sasl, settings.thrift_host, "PLAIN", **login)
    try:
        connection = hive.connect(
            thrift_transport=TSaslClientTransport(sasl, "PLAIN", socket),
            username=THRIFT_USER,
            configuration={f"set:hiveconf:{QUERY_TIMEOUT}": str(math.ceil(STATEMENT_SECONDS))},
        )
    except (TTransportException, OSError):
        tls = " and LAKEHOUSE_THRIFT_SSL_CA_LOCATION" if settings.thrift_security.is_on else ""
        raise UserError(
            f"The Spark Thrift server at {address} does not answer or refused the password",
            f"Check `lakehouse stack status` and LAKEHOUSE_THRIFT_PASSWORD{tls}",
        ) from None
    except hive.OperationalError as error:
        # The message is about settings and quotes no statement.
        message = getattr(getattr(error.args[0], "status", None), "errorMessage", type(error).__name__)
        raise SessionError(
            f"The Thrift server cannot open the catalog at {settings.catalog_uri} ({str(message).splitlines()[0]})",
            "Run `lakehouse stack down`, check LAKEHOUSE_CATALOG_URI, LAKEHOUSE_WAREHOUSE and the files of"
            f" {catalog_properties.FILE} and LAKEHOUSE_SPARK_CONF, and start it again",
        ) from None
    try:
        yield connection.cursor()
    except (TTransportException, hive.Error) as error:
        if not is_timeout(error):
            raise
        raise DeadlineError(f"A statement on {address}", STATEMENT_SECONDS) from None
    finally:
        socket.setTimeout(GRACE_SECONDS * 1000)
        # The session ends with the connection if the server does not answer.
        with suppress(TException, OSError):
            connection.close()


def is_timeout(error: Exception) -> bool:
    """Return whether the server cancelled a statement after its time, or did not answer in time."""
    if isinstance(error, TTransportException):
        return error.type == TTransportException.TIMED_OUT or isinstance(error.inner, TimeoutError)
    return any(words in str(error) for words in TIMED_OUT)


class _TlsSocket(TSSLSocket):  # type: ignore[misc]  # thrift comes without types
    """A socket that can be closed before it was opened."""

    def close(self) -> None:
        """Close the connection, if there is one."""
        if self.handle is not None:
            super().close()


def _socket(settings: Settings) -> TSocket:
    """Return an unopened socket, over TLS if the server speaks it."""
    address = (settings.thrift_host, settings.thrift_port)
    # Both log refused connections and untrusted certificates, which `connect` reports.
    for name in ("thrift.transport.TSocket", "thrift.transport.TSSLSocket"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    if not settings.thrift_security.is_on:
        return TSocket(*address)
    context = ssl.create_default_context(cafile=settings.thrift_security.ca or None)
    # The context compares the host; thrift's comparison needs a function that Python 3.12 removed.
    return _TlsSocket(*address, ssl_context=context, validate_callback=lambda *_: None)


def rows(cursor: hive.Cursor, sql: str) -> list[tuple[Any, ...]]:
    """Run one statement and return all its rows."""
    cursor.execute(sql)
    # The server reports a cancelled statement only when asked.
    if cursor.poll(get_progress_update=False).operationState == TOperationState.TIMEDOUT_STATE:
        raise hive.OperationalError(TIMED_OUT[0])
    return cursor.fetchall() if cursor.description else []


def error_of(cursor: hive.Cursor, sql: str) -> Exception | None:
    """Run one statement; return why it failed, None if it did not."""
    try:
        rows(cursor, sql)
    except (hive.Error, TException, OSError) as error:
        return error
    return None
