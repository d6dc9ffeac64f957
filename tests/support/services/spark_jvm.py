"""A Spark session in a new JVM: one that the test process has would keep its environment."""

from collections.abc import Iterator
from contextlib import contextmanager

from pyspark import SparkContext
from pyspark.sql import SparkSession

from python_common.config.settings import Settings
from python_common.spark.spark_conf import session

# By these PySpark finds the one JVM and the one session of a process.
OF_PROCESS = (
    (SparkContext, "_gateway"),
    (SparkContext, "_jvm"),
    (SparkContext, "_active_spark_context"),
    (SparkSession, "_instantiatedSession"),
    (SparkSession, "_activeSession"),
)


@contextmanager
def separate_session(settings: Settings, name: str) -> Iterator[SparkSession]:
    """Start a session that logs nothing, and end its JVM after the block. A session of other tests stays."""
    before = [getattr(owner, attribute) for owner, attribute in OF_PROCESS]
    for owner, attribute in OF_PROCESS:
        setattr(owner, attribute, None)
    try:
        spark = session(settings, name)
        spark.sparkContext.setLogLevel("OFF")
        yield spark
        spark.stop()
    finally:
        if gateway := SparkContext._gateway:
            gateway.shutdown()
            gateway.proc.stdin.close()
            gateway.proc.wait(60)
        for (owner, attribute), value in zip(OF_PROCESS, before, strict=True):
            setattr(owner, attribute, value)
