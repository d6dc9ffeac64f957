"""Spark in a JVM of its own: that of the ingester's tests would not survive the tests in between."""

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from lakehouse.settings import Settings
from tests.support.spark_jvm import session_of_its_own


@pytest.fixture(scope="module")
def spark(services: Settings) -> Iterator[SparkSession]:
    with session_of_its_own(services, "erasure-tests") as spark:
        yield spark
