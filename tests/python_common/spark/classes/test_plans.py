"""What Spark answers about plans: operators, and the columns by which Iceberg skips files."""

import json
from collections.abc import Callable

import pytest
from pyspark.sql import SparkSession

Plan = Callable[[str], dict[str, dict]]


@pytest.fixture(scope="module")
def plan(spark: SparkSession) -> Plan:
    session = spark.newSession()
    for statement in (
        "create schema if not exists default",
        "use lake.default",
        "create schema if not exists plans",
        "create or replace table plans.orders (id int, week string, line struct<sku: int>) using iceberg",
        "create or replace table plans.skus (sku int, name string) using iceberg",
        "create or replace view plans.recent as select id from plans.orders where week > '2026-W40'",
        "insert into plans.orders values (1, '2026-W47', named_struct('sku', 7))",
        "insert into plans.skus values (7, 'it''s, a \\\\ $name')",
    ):
        session.sql(statement)

    def ask(sql: str) -> dict[str, dict]:
        text = sql.replace("\\", "\\\\").replace("'", "\\'")
        return json.loads(session.sql(f"select lakehouse_plan('{text}')").first()[0])

    return ask


@pytest.mark.parametrize(
    ("where", "columns"),
    [
        ("true", []),
        ("week is not null", []),
        ("week = '2026-W47'", ["week"]),
        ("week in ('2026-W46', '2026-W47') and id > 3", ["id", "week"]),
        ("week is null or id <= 2", ["id", "week"]),
        ("line.sku = 7", ["line.sku"]),
        ("week like '2026%'", ["week"]),
        ("upper(week) = '2026-W47'", []),
        ("week = '\\' filters=id > 3, runtimeFilters='", ["week"]),
    ],
)
def test_a_filter_that_reaches_iceberg_is_not_named(plan: Plan, where: str, columns: list[str]) -> None:
    for query in (
        f"select id from plans.orders where {where}",
        f"select sum(id) from (select * from plans.orders where {where}) union all select 1",
        f"select 1 where exists (select 1 from plans.orders where {where})",
    ):
        assert plan(query)["filters"] == {"plans.orders": columns}, query


def test_a_table_below_a_view_or_in_a_subquery_is_not_named(plan: Plan) -> None:
    assert plan("select * from plans.recent")["filters"] == {"plans.orders": ["week"]}
    in_a_subquery = "select (select max(sku) from plans.skus where name > 'a') as newest from plans.orders"
    assert plan(in_a_subquery)["filters"] == {"plans.orders": [], "plans.skus": ["name"]}


@pytest.mark.parametrize(
    ("condition", "operator"),
    [
        ("orders.line.sku = skus.sku", "BroadcastHashJoin"),
        ("orders.week like skus.name", "BroadcastNestedLoopJoin"),
        ("orders.line.sku = skus.sku or orders.week = skus.name", "BroadcastNestedLoopJoin"),
    ],
)
def test_a_join_is_named_by_another_operator(plan: Plan, condition: str, operator: str) -> None:
    joined = plan(f"select id from plans.orders as orders join plans.skus as skus on {condition}")["operators"]
    assert {name: number for name, number in joined.items() if "Join" in name} == {operator: 1}


def test_shuffles_are_not_counted(plan: Plan) -> None:
    for number, query in enumerate(("select week from plans.orders", "select distinct week from plans.orders")):
        assert plan(query)["operators"].get("Exchange", 0) == number, query


@pytest.mark.parametrize("query", ["select", "select missing from plans.orders", "select * from plans.gone"])
def test_a_query_that_cannot_be_planned_has_a_plan(plan: Plan, query: str) -> None:
    assert plan(query) == {}
