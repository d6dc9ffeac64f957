"""The ingester's Spark session, started when it is needed, its log in a file, not on the terminal."""

import os
import shutil
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError, Py4JNetworkError
from pyspark.errors import PySparkException
from pyspark.errors.exceptions.captured import CapturedException, convert_exception
from pyspark.sql import SparkSession

from python_common import private_files
from python_common.config.environment import home
from python_common.config.settings import CATALOG_NAME, Settings
from python_common.errors import UserError
from python_common.spark.spark_conf import master, session

LOG_BYTES = 64 * 1024 * 1024
# A cluster that starts machines on demand needs minutes for the first executor.
EXECUTOR_SECONDS = 600.0


class LazySparkSession:
    """Gives the Spark session; the first call starts it. Threads may call it at the same time."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._session: SparkSession | None = None

    def __call__(self) -> SparkSession:
        """Return the session; a UserError if Spark does not start, or cannot open the catalog."""
        with self._lock:
            rotate(log_file())
            if self._session is None:
                self._session = _start(self._settings, log_file())
            return self._session

    def gone(self) -> bool:
        """Return whether the JVM was started and has ended or is ending, for instance for its memory."""
        gateway = self._session.sparkContext._gateway if self._session is not None else None
        if gateway is None:
            return False
        try:
            # Its process outlives its socket by a moment.
            gateway.jvm.System.nanoTime()
        except (Py4JError, OSError):
            return True
        return False

    def stop(self) -> None:
        """Stop the session, if it was started."""
        if self._session is not None and not self.gone():
            # The JVM may end in between.
            with suppress(Py4JNetworkError, OSError):
                self._session.stop()


def log_file() -> Path:
    """Return where Spark's log goes."""
    return home() / "ingest" / "spark.log"


def rotate(log: Path) -> None:
    """Empty a log of more than LOG_BYTES into `<name>.1`. A JVM may go on: it appends to what it has open."""
    if log.exists() and log.stat().st_size > LOG_BYTES:
        shutil.copyfile(log, log.with_name(f"{log.name}.1"))
        os.truncate(log, 0)


def _start(settings: Settings, log: Path) -> SparkSession:
    private_files.directory(log.parent)
    with log.open("ab") as file:
        try:
            started = session(settings, "ingest", file)
        except PySparkException as error:
            name = error.getCondition() or type(error).__name__
            raise UserError(f"Spark does not start ({name})", f"See the end of {log}") from None
        except Py4JJavaError as error:
            raise UserError(
                f"Spark does not start on {master(settings)} ({root_message(error)})",
                f"Check that it answers, and the file of LAKEHOUSE_SPARK_CONF; see the end of {log}",
            ) from None
    try:
        _open_catalog(started, settings)
        if not master(settings).startswith("local"):
            _await_executor(started, settings)
    except UserError:
        # It would hold cores of a cluster.
        started.stop()
        raise
    return started


def _await_executor(spark: SparkSession, settings: Settings) -> None:
    """Have the cluster run a task, so that one which gives no executor is named, and not waited for without end."""
    over = threading.Timer(EXECUTOR_SECONDS, spark.sparkContext.cancelAllJobs)
    over.daemon = True
    over.start()
    try:
        spark.range(1).count()
    except (CapturedException, Py4JJavaError) as error:
        raise UserError(
            f"{master(settings)} runs no task for the ingester within {EXECUTOR_SECONDS:.0f} s ({root_message(error)})",
            "Check that it has workers with cores and memory left, which other programs may hold",
        ) from None
    finally:
        over.cancel()


def _open_catalog(spark: SparkSession, settings: Settings) -> None:
    """Open the catalog before a record is read, while the message of an error cannot quote one.

    Of a batch that fails, only the kind of the error is reported.
    """
    try:
        spark._jsparkSession.sessionState().catalogManager().catalog(CATALOG_NAME)
    except (CapturedException, Py4JJavaError) as error:
        raise UserError(
            f"Spark cannot open the catalog at {settings.catalog_uri} ({root_message(error)})",
            "Check LAKEHOUSE_CATALOG_URI and LAKEHOUSE_WAREHOUSE",
        ) from None


def root_message(error: CapturedException | Py4JJavaError) -> str:
    """Return class and message of the Java throwable that an error was caused by in the end, without other lines."""
    cause = root_cause(error)
    return f"{cause.getClass().getSimpleName()}: {cause.getMessage()}".partition("\n")[0]


def root_cause(error: PySparkException | Py4JError) -> Any:
    """Return the Java throwable that an error was caused by in the end; None for one of Python."""
    throwable = error.java_exception if isinstance(error, Py4JJavaError) else getattr(error, "_origin", None)
    while throwable is not None and throwable.getCause() is not None:
        throwable = throwable.getCause()
    return throwable


def raised_message(error: PySparkException | Py4JError) -> str | None:
    """Return the message of the `raise_error` that ended a job; None if something else did."""
    cause = root_cause(error)
    raised = None if cause is None else convert_exception(cause)
    if raised is None or raised.getCondition() != "USER_RAISED_EXCEPTION":
        return None
    return (raised.getMessageParameters() or {})["errorMessage"]
