"""Joins with the shipped configuration."""

import pytest
from pyspark.sql import SparkSession

FEW, MANY = 2_000_000, 20_000_000


@pytest.mark.slow
@pytest.mark.parametrize(("rows", "join"), [(FEW, "ShuffledHashJoin"), (MANY, "SortMergeJoin")])
def test_only_a_join_of_few_rows_needs_a_side_in_memory(spark: SparkSession, rows: int, join: str) -> None:
    """Sides too large to broadcast; many such rows compress so well that a hash join of them runs out of memory."""
    compiled = spark.newSession()
    compiled.conf.set("spark.sql.codegen.wholeStage", True)
    compiled.conf.set("spark.sql.codegen.factoryMode", "FALLBACK")
    left = compiled.range(rows).selectExpr("id", "id * 3 as value")
    right = compiled.range(rows).selectExpr("id", "id * 5 as other")
    joined = left.join(right, "id").selectExpr("sum(value + other)")
    assert joined.collect() == [(8 * sum(range(rows)),)]
    assert join in joined._jdf.queryExecution().executedPlan().toString()
