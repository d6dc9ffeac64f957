"""A Spark session in a JVM of its own: one that the test process has would keep its environment."""

from collections.abc import Iterator
from contextlib import contextmanager

from pyspark import SparkContext
from pyspark.sql import SparkSession

from lakehouse.settings import Settings
from spark_server.spark import session


@contextmanager
def session_of_its_own(settings: Settings, name: str) -> Iterator[SparkSession]:
    """Have a session that logs nothing, and end its JVM after the block."""
    _end_jvm()
    spark = session(settings, name)
    spark.sparkContext.setLogLevel("OFF")
    yield spark
    spark.stop()
    _end_jvm()


def _end_jvm() -> None:
    if gateway := SparkContext._gateway:
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait(60)
    SparkContext._gateway = SparkContext._jvm = None
