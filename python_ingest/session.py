"""The ingester's Spark session, with what the JVM writes to the terminal led to a log file."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import SparkSession

from lakehouse.settings import Settings, home
from lakehouse.spark import session


@contextmanager
def quiet_session(settings: Settings) -> Iterator[SparkSession]:
    """Yield a Spark session and stop it; its log is `ingest/spark.log` in the state directory."""
    log = home() / "ingest" / "spark.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    sys.stderr.flush()
    terminal = os.dup(2)
    with log.open("ab") as file:
        # The JVM inherits the descriptor when it starts; Python gets its own back.
        os.dup2(file.fileno(), 2)
        try:
            spark = session(settings, "ingest")
        finally:
            os.dup2(terminal, 2)
            os.close(terminal)
    try:
        yield spark
    finally:
        spark.stop()
