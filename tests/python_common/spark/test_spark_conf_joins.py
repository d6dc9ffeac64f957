"""Joins with the shipped configuration."""

import pytest
from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow

FEW, MANY = 2_000_000, 20_000_000


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


def test_a_join_of_buckets_leaves_tables_below_it_complete(spark: SparkSession) -> None:
    """Spark would cut the orders to the buckets that hold an item: most items would have no order."""
    session = spark.newSession()
    session.sql("create schema if not exists lake.small")
    session.sql("use lake.small")
    keys = "id bigint, order_id bigint"
    session.sql(f"create table items ({keys}) using iceberg partitioned by (bucket(16, id))")
    session.sql(f"create table orders ({keys}) using iceberg partitioned by (bucket(16, order_id))")
    session.sql("insert into items values (1, 1), (2, 50), (3, 77)")
    session.sql("insert into orders select id, id from range(100)")
    joined = """
        select ordered.id, ordered.order_id, known.id
        from (
            select items.id, orders.order_id
            from items
            left join (select order_id from orders where id >= 0) as orders on items.order_id = orders.order_id
        ) as ordered
        full outer join (select distinct id from items) as known on ordered.id = known.id
        order by 1
    """
    assert session.sql(joined).collect() == [(1, 1, 1), (2, 50, 2), (3, 77, 3)]
    for table in ("items", "orders"):
        session.sql(f"drop table {table}")
