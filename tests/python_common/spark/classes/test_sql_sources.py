"""What Spark answers about SQL: the relations that it reads, and why its result may not follow from them."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

Ask = Callable[[str], dict[str, Any]]

TABLES = (
    "create schema if not exists default",
    "use lake.default",
    "create schema if not exists sources",
    "create or replace table sources.sales (id int, name string, sold_at timestamp, day date) using iceberg",
    "insert into sources.sales values (1, 'a', timestamp '2026-01-01 00:00:00', date '2026-01-01')",
    "create or replace table till using iceberg as select 1 as id, 'a' as name",
    "create or replace view sources.named as select id, name from sources.sales",
    "create or replace view sources.twice as select id, name from sources.named",
    "create or replace view shown as select id, name from till",
    "create or replace view sources.clock as select id, name, now() as at from sources.sales",
    "create or replace view sources.typed as select id, name, date 'today' as at from sources.sales",
    "create or replace view sources.below as select id, name from sources.clock",
    "create or replace temporary view passing as select id, name from sources.sales",
    "create or replace global temporary view passing as select id, name from sources.sales",
    "declare or replace variable chosen int default 1",
)
# What reads a relation with columns id and name, and the relations to be noted; none if it must never be skipped.
READS: dict[str, set[str] | None] = {
    "sources.sales": {"sources.sales"},
    "lake.sources.sales": {"sources.sales"},
    "`sources`.`sales`": {"sources.sales"},
    "till": {"default.till"},
    "shown": {"default.shown", "default.till"},
    "sources.named": {"sources.named", "sources.sales"},
    "sources.twice": {"sources.twice", "sources.named", "sources.sales"},
    "(select * from till)": {"default.till"},
    "(table till)": {"default.till"},
    "(from till |> where id > 0)": {"default.till"},
    "(with inner as (select * from till) select * from inner)": {"default.till"},
    "(with unused as (select * from till) select 1 as id, 'a' as name)": {"default.till"},
    "(with till as (select 1 as id, 'a' as name) select * from till)": set(),
    "(values (1, 'a') as listed (id, name))": set(),
    "(select id, 'a' as name from range(2))": set(),
    "spark_catalog.default.sources_pads": {"spark_catalog.default.sources_pads"},
    "identifier('sources' || '.sales')": None,
    "identifier('till')": None,
    "sources.clock": None,
    "sources.typed": None,
    "sources.below": None,
    "passing": None,
    "global_temp.passing": None,
    "text.`{file}`": None,
    "sources.sales.branch_main": None,
    "sources.sales.snapshot_id_{snapshot}": None,
    "sources.sales version as of {snapshot}": None,
    "sources.sales with (`snapshot-id` = '{snapshot}')": None,
    "sources.sales tablesample (50 percent)": None,
    "sources.sales.snapshots": None,
    "lake.sources.sales.files": None,
    "(select 1 as id, at :: string as name from values (cast('12:30' as timestamp)) as listed (at))": None,
    "(select id, 'a' as name from range(unix_seconds(cast('12:30' as timestamp)) % 9))": None,
    "(select 1 as id, 'a' as name from (select id, sold_at from sources.sales)"
    " pivot (max(id) for sold_at in ('12:30' as noon)))": None,
    "sql_keywords()": None,
    "(select transform(id) using 'cat' as (id) from till)": None,
    "(with recursive counted as (select 1 as id union all select id + 1 from counted where id < 3)"
    " select * from counted)": None,
}
# Each clause in which SQL may name a relation.
READING = (
    "select * from {read} as read_here",
    "select * from sources.sales, {read} as read_here",
    "select * from sources.sales left join {read} as read_here on true",
    "select * from sources.sales, lateral (select * from {read} as read_here)",
    "select (select count(*) from {read} as read_here) as total",
    "select * from sources.sales where exists (select 1 from {read} as read_here)",
    "select * from sources.sales where id in (select 1 from {read} as read_here)",
    "select id from sources.sales group by id having count(*) > (select count(*) from {read} as read_here)",
    "select id from sources.sales union all select 1 from {read} as read_here",
    "with unused as (select * from {read} as read_here) select 1 as one",
    "with first as (select * from {read} as read_here), second as (select * from first) select * from second",
    "select * from (with inner as (select * from {read} as read_here) select * from inner)",
    "from {read} as read_here |> limit 1",
)
UNALIASED = ("version as of", "tablesample", "with (")
CLOCKS = (
    *("now()", "NOW ( )", "current_date", "current_date()", "current_timestamp", "current_timestamp()", "curdate()"),
    *("`current_date`", "`current_timestamp`", "current_timezone()", "unix_timestamp()", "localtimestamp()"),
    *("timestamp 'now'", "date 'today'", "date'tomorrow'", "timestamp 'yesterday UTC'", "timestamp_ltz 'today'"),
    *('timestamp "now"', "timestamp '12:30:00'", "timestamp 'T12:30'", r"date 'to\144ay'", "date r'today'"),
    *("timestamp_ntz 'now'", "date ' today '", "cast('now' as timestamp)", "'now' :: timestamp"),
    *("cast('to' || 'day' as date)", "date('today')", "timestamp('now')", "to_date('today')", "to_timestamp('now')"),
    *("try_cast('now' as timestamp)", "try_to_timestamp('now')", "to_timestamp_ltz('now')", "hour('now')"),
    *("cast('12:30' as timestamp)", "cast(name as timestamp)", "try_cast(name as timestamp)", "to_timestamp(name)"),
    *("day > 'today'", "sold_at > 'now'", "sold_at > name", "date_trunc('day', name)", "day between 'today' and day"),
    *("coalesce(sold_at, 'now')", "if(id = 1, day, date 'today')", "cast(array(name) as array<timestamp>)"),
    *("from_json(name, 'at timestamp')", "from_csv(name, 'at timestamp')", "parse_json(name) :: timestamp"),
    *("rand()", "rand(1)", "randn()", "random()", "uniform(1, 9)", "randstr(3)", "uuid()", "shuffle(array(1, 2))"),
    *("current_user", "current_user()", "user", "user()", "session_user", "current_catalog()", "current_schema()"),
    *("current_database()", "version()", "chosen", "session.chosen", "monotonically_increasing_id()"),
    *("spark_partition_id()", "input_file_name()", "input_file_block_start()", "aes_encrypt(name, '0123456789abcdef')"),
    *("reflect('java.lang.System', 'nanoTime')", "java_method('java.lang.System', 'nanoTime')", "'${user.name}'"),
    *("identifier('rand')()", "`rand`()", "system.bucket(4, id)", "lake.system.bucket(4, id)", "upper(name)"),
)
# Each clause in which SQL may call a function.
CALLING = (
    "select {call} as called from sources.sales",
    "select * from sources.sales where {call} is not null",
    "select count(*) filter (where {call} is null) from sources.sales",
    "select max(id) over (order by struct({call})) from (select *, {call} as called from sources.sales)",
    "select transform(array(id), one -> struct(one, {call})) from sources.sales",
    "select * from sources.sales left join (select id as other from till) on {call} is null",
    "with unused as (select {call} as called from sources.sales) select 1 as one",
    "select (select max({call} is null) from sources.sales) as called",
    "select * from sources.sales lateral view explode(array({call})) as called",
    "from sources.sales |> select {call} as called",
)
FOLLOWS = (
    *("date '2026-01-01'", "timestamp '2026-01-01 00:00:00.5 Europe/Berlin'", "cast('2026-01-01' as date)"),
    *("to_timestamp('2026-01-01T12:00:00Z')", "sold_at >= '2026-01-01'", "cast(name as date)"),
    *("to_timestamp(name, 'yyyy-MM-dd')", "cast(day as timestamp)", "interval 1 day", "x'1C'", "'now'", "'date today'"),
    *("id between 1 and 2", "extract(year from sold_at)", "try_divide(id, 0)"),
    *("sum(id) over (order by id rows between 1 preceding and current row)",),
    *("row_number() over (partition by name order by id desc nulls last)",),
    *("from_json(name, 'ids array<bigint>').ids[0]", "timestampdiff(day, sold_at, sold_at) :: string"),
    *("aggregate(filter(array(id), one -> one > 0), 0, (left, right) -> left + right)",),
    *("trim(both 'a' from substring(name from 1 for 2))", "sha2(concat_ws('-', name, lower(name)), 256)"),
)


def answer_of(session: SparkSession, text: str) -> dict[str, Any]:
    literal = text.replace("\\", "\\\\").replace("'", "\\'").replace("$", "\\u0024")
    answer: dict[str, Any] = json.loads(session.sql(f"select lakehouse_sources('{literal}')").collect()[0][0])
    return answer


@pytest.fixture(scope="module")
def ask(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ask]:
    """A function that asks Spark about a text, in which it fills in a file and a snapshot."""
    session = spark.newSession()
    file: Path = tmp_path_factory.mktemp("sources") / "lines.txt"
    file.write_text("line\n")
    session.sql("create schema if not exists spark_catalog.default")
    session.sql("drop table if exists spark_catalog.default.sources_pads")
    session.sql(f"create table spark_catalog.default.sources_pads (id string) using text location '{file}'")
    for statement in TABLES:
        session.sql(statement)
    session.udf.register("upper", str.upper)
    snapshot = session.sql("select snapshot_id from sources.sales.snapshots").collect()[0][0]

    def ask(template: str) -> dict[str, Any]:
        text = template.replace("{file}", str(file)).replace("{snapshot}", str(snapshot))
        return answer_of(session, text)

    yield ask
    for name in ("view shown", "table till"):
        session.sql(f"drop {name}")


def is_skippable(answer: dict[str, Any]) -> bool:
    return not answer["unknown"] and not answer["volatile"]


def is_sql(answer: dict[str, Any]) -> bool:
    return "does not analyse" not in answer["unknown"]


@pytest.mark.parametrize("read", READS)
def test_relations_of_sql_are_found_or_it_is_never_skipped(ask: Ask, read: str) -> None:
    assert_found(ask, READING[0], read)


@pytest.mark.parametrize("clause", READING[1:])
def test_relations_are_found_in_each_clause(ask: Ask, clause: str) -> None:
    for read in ("sources.twice", "sources.below", "sources.sales version as of {snapshot}"):
        assert_found(ask, clause, read)


def assert_found(ask: Ask, clause: str, read: str) -> None:
    relations = READS[read]
    # Such a name takes no alias.
    text = clause.replace("{read} as read_here", "{read}") if any(word in read for word in UNALIASED) else clause
    answer = ask(text.replace("{read}", read))
    assert is_sql(answer), (text, answer)
    assert is_skippable(answer) == (relations is not None), (text, answer)
    others = {"sources.sales"} if " sources.sales" in clause else set()
    assert relations is None or set(answer["relations"]) == relations | others, text


@pytest.mark.parametrize("call", CLOCKS)
def test_sql_with_clock_chance_or_session_is_never_skipped(ask: Ask, call: str) -> None:
    answers = [ask(clause.replace("{call}", call)) for clause in CALLING[:2]]
    assert any(map(is_sql, answers)), answers
    assert not any(map(is_skippable, answers)), answers


@pytest.mark.parametrize("clause", CALLING)
def test_calls_are_found_in_each_clause(ask: Ask, clause: str) -> None:
    for call, follows in (("now()", False), ("cast(name as timestamp)", False), ("trim(name)", True)):
        answer = ask(clause.replace("{call}", call))
        assert is_sql(answer), answer
        assert is_skippable(answer) == follows, answer
        assert not follows or "sources.sales" in answer["relations"]


@pytest.mark.parametrize("call", FOLLOWS)
def test_sql_that_follows_from_tables_may_be_skipped(ask: Ask, call: str) -> None:
    answer = ask(CALLING[0].replace("{call}", call))
    assert is_skippable(answer), answer
    assert "sources.sales" in answer["relations"]


@pytest.mark.parametrize("text", ["insert into till values (1)", "select 1; select 2", "show tables", "", "select"])
def test_text_that_is_no_query_is_never_skipped(spark: SparkSession, text: str) -> None:
    assert answer_of(spark, text)["unknown"]
