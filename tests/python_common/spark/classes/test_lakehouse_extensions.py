"""What a model reads by bounds of the session: Spark plans with them as with literals."""

import json

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

QUERY = """
    select id from bounded.rows
    where batch > cast(lakehouse_bound('after', '0') as bigint)
        and landed_at >= cast(lakehouse_bound('since', '1970-01-01') as timestamp)
        and (id in (select max(id) from bounded.rows) or cast(lakehouse_bound('is_rebuild', 'true') as boolean))
"""


@pytest.fixture
def session(spark: SparkSession) -> SparkSession:
    session = spark.newSession()
    for statement in (
        "create schema if not exists default",
        "use lake.default",
        "create schema if not exists bounded",
        "create or replace table bounded.rows (id int, batch bigint, landed_at timestamp) using iceberg",
        "insert into bounded.rows values (1, 1, timestamp '2026-01-01 00:00:00')",
        "insert into bounded.rows values (2, 2, timestamp '2026-01-02 00:00:00')",
    ):
        session.sql(statement)
    return session


def bounded(session: SparkSession, **bounds: object) -> DataFrame:
    session.sql(f"set `lakehouse.bounds`=`{json.dumps(bounds)}`")
    return session.sql(QUERY)


def test_without_bounds_all_rows_are_read(session: SparkSession) -> None:
    assert {row.id for row in session.sql(QUERY).collect()} == {1, 2}
    assert {row.id for row in bounded(session, other_after=1).collect()} == {1, 2}


@pytest.mark.parametrize(
    ("bounds", "rows", "filters"),
    [
        ({"after": 1}, {2}, ["batch > 1", "landed_at >= 0"]),
        ({"after": 0, "since": "2026-01-02"}, {2}, ["batch > 0", "landed_at >= 1767312000000000"]),
        ({"after": 2}, set(), ["batch > 2"]),
    ],
)
def test_files_are_pruned_by_bounds_of_the_session(
    session: SparkSession, bounds: dict[str, object], rows: set[int], filters: list[str]
) -> None:
    query = bounded(session, **bounds)
    plan = query._jdf.queryExecution().executedPlan().toString()
    assert [text for text in filters if text not in plan] == [], plan
    assert {row.id for row in query.collect()} == rows


def test_a_flag_of_the_session_leaves_a_condition_out(session: SparkSession) -> None:
    assert "max" not in bounded(session, is_rebuild=True)._jdf.queryExecution().optimizedPlan().toString()
    assert {row.id for row in bounded(session, is_rebuild=False).collect()} == {2}


@pytest.mark.parametrize("arguments", ["'after'", "'after', null", "'after', id", "1, 2, 3"])
def test_other_arguments_than_two_texts_are_accepted(session: SparkSession, arguments: str) -> None:
    with pytest.raises(PySparkException, match="lakehouse_bound"):
        session.sql(f"select lakehouse_bound({arguments}) from bounded.rows").collect()
