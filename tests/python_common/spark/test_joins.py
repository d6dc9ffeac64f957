"""Joins with the shipped configuration."""

import pytest
from pyspark.sql import SparkSession

ROWS = 20_000_000


@pytest.mark.long
def test_a_join_of_two_long_tables_needs_neither_in_memory(spark: SparkSession) -> None:
    """The rows compress so well that Spark takes them for few: a hash join fails for want of memory."""
    compiled = spark.newSession()
    compiled.conf.set("spark.sql.codegen.wholeStage", True)
    compiled.conf.set("spark.sql.codegen.factoryMode", "FALLBACK")
    left = compiled.range(ROWS).selectExpr("id", "id * 3 as value")
    right = compiled.range(ROWS).selectExpr("id", "id * 5 as other", "cast(id as string) as text").where("text > ''")
    assert left.join(right, "id").selectExpr("sum(value + other)").collect() == [(8 * sum(range(ROWS)),)]
