"""What Spark answers about relations: what tables and views are, and that each change of one is seen."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pyspark.sql import SparkSession

Described = Callable[..., dict[str, dict[str, Any]]]

QUERY = "select id, `the note` from relations.notes"
TABLE = """
    create or replace table relations.notes (
        id int not null comment "its number, or 'none'",
        `the note` string,
        lines array<struct<sku: int, at: timestamp>>
    ) using iceberg partitioned by (bucket(4, id)) tblproperties ('a.b' = 'c=d,e.f=g')
"""
# Of these each changes what the table is.
CHANGES = (
    "insert into relations.notes values (2, 'b', null)",
    "alter table relations.notes alter column id comment 'another'",
    "alter table relations.notes alter column id type bigint",
    "alter table relations.notes alter column id drop not null",
    "alter table relations.notes alter column lines.element.sku comment 'below'",
    "alter table relations.notes drop column `the note`",
    "alter table relations.notes add column `the note` string",
    "alter table relations.notes alter column `the note` first",
    "alter table relations.notes rename column `the note` to text",
    "alter table relations.notes set tblproperties ('a.b' = 'c')",
    "alter table relations.notes unset tblproperties ('a.b')",
    "alter table relations.notes add partition field id",
    "alter table relations.notes write ordered by id",
    "delete from relations.notes where id = 2",
)


@pytest.fixture(scope="module")
def session(spark: SparkSession) -> Iterator[SparkSession]:
    session = spark.newSession()
    for statement in (
        "create schema if not exists default",
        "use lake.default",
        "create schema if not exists relations",
        TABLE,
        "insert into relations.notes values (1, 'a', null)",
        f"create or replace view relations.named as {QUERY}",
        "create or replace table relations.dropped using iceberg as select 1 as id",
        "create or replace view relations.broken as select id from relations.dropped",
        "drop table relations.dropped",
    ):
        session.sql(statement)
    yield session
    session.sql("drop view relations.named")
    session.sql("drop view relations.broken")
    session.sql("drop table relations.notes")


@pytest.fixture
def described(session: SparkSession) -> Described:
    def ask(*names: str) -> dict[str, dict[str, Any]]:
        [[answer]] = session.sql(f"select lakehouse_relations('{' '.join(names)}')").collect()
        return json.loads(answer)

    return ask


def test_a_table_is_described_by_its_metadata(session: SparkSession, described: Described) -> None:
    table = described("relations.notes")["relations.notes"]
    assert [(name, comment) for name, _, comment in table["columns"]] == [
        ("id", "its number, or 'none'"),
        ("the note", ""),
        ("lines", ""),
    ]
    # As the table has it: a value may hold what divides pairs where properties are printed.
    assert table["properties"]["a.b"] == "c=d,e.f=g"
    [[snapshot]] = session.sql("select snapshot_id from relations.notes.snapshots").collect()
    assert (table["snapshot"], table["properties"]["current-snapshot-id"]) == (str(snapshot), str(snapshot))
    assert (table["is_view"], table["rows"]) == (False, "1")


def test_a_view_is_described_by_its_text(described: Described) -> None:
    answer = described("relations.named", "relations.broken")
    assert {name: view["text"] for name, view in answer.items()} == {
        "relations.named": QUERY,
        # What it reads is missing, and it is there.
        "relations.broken": "select id from relations.dropped",
    }


def test_what_is_missing_or_no_relation_of_the_lake_is_left_out(described: Described) -> None:
    names = ("relations.dropped", "missing.notes", "notes", "spark_catalog.default.notes", "relations.notes")
    assert described(*names).keys() == {"relations.notes"}


def test_each_change_of_a_table_is_seen(session: SparkSession, described: Described) -> None:
    seen = [described("relations.notes")]
    for change in CHANGES:
        assert described("relations.notes") == seen[-1]
        session.sql(change)
        seen.append(described("relations.notes"))
        assert seen[-1] not in seen[:-1], change
