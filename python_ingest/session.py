"""The ingester's Spark session, started when it is needed, its log kept off the terminal."""

import os
import sys
import threading
from pathlib import Path

from pyspark.sql import SparkSession

from lakehouse.settings import Settings, home
from lakehouse.spark import session


class QuietSpark:
    """Gives the Spark session; the first call starts it. Threads may call it at the same time."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._session: SparkSession | None = None

    def __call__(self) -> SparkSession:
        """Return the session."""
        with self._lock:
            if self._session is None:
                self._session = _start(self._settings, log_file())
            return self._session

    def gone(self) -> bool:
        """Tell whether the JVM was started and has ended, for instance killed for its memory."""
        return self._session is not None and self._session.sparkContext._gateway.proc.poll() is not None

    def stop(self) -> None:
        """Stop the session, if it was started."""
        if self._session is not None and not self.gone():
            self._session.stop()


def log_file() -> Path:
    """Return where Spark's log goes."""
    return home() / "ingest" / "spark.log"


def _start(settings: Settings, log: Path) -> SparkSession:
    log.parent.mkdir(parents=True, exist_ok=True)
    sys.stderr.flush()
    terminal = os.dup(2)
    with log.open("ab") as file:
        # The JVM inherits the descriptor when it starts; then Python gets its own back.
        os.dup2(file.fileno(), 2)
        try:
            return session(settings, "ingest")
        finally:
            os.dup2(terminal, 2)
            os.close(terminal)
