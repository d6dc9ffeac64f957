"""Each known difference of Spark's SQL and DuckDB's: restored, or refused."""

from decimal import Decimal

import duckdb
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from python_dev.review.duckdb_sql import MACROS, NeedsSpark, re2, translate


def answer(sql: str, are_bounds_open: bool = False) -> object:
    """Return the one value of Spark's SQL, or the names of the types of errors."""
    with duckdb.connect() as database:
        database.execute(f"set timezone = 'UTC'; {MACROS.read_text()}")
        try:
            rows = database.execute(translate(sql, {}, are_bounds_open)).fetchall()
        except NeedsSpark:
            return NeedsSpark
        except duckdb.InvalidInputException as error:
            return NeedsSpark if "needs Spark" in str(error) else type(error)
        except duckdb.Error as error:
            return type(error)
        return rows[0][0] if len(rows) == 1 else [row[0] for row in rows]


BIG = "(select 9223372036854775807 as x union all select 1 as x) as rows"
FACTORS = "(select 9223372036854775807 as a, cast('99999999999999999999999999.99' as decimal(28, 2)) as b) as rows"
WITH_NULL = "(select null as x, 1 as y union all select 2 as x, 2 as y) as rows"
VALUES = [
    # Casts: an error in ANSI mode, NULL in try_cast; DuckDB would round text and numbers.
    ("cast('a' as bigint)", duckdb.ConversionException),
    ("try_cast('a' as bigint)", None),
    ("cast('1.7' as bigint)", duckdb.ConversionException),
    ("try_cast('1.7' as bigint)", None),
    ("cast(1.7 as bigint)", 1),
    ("cast(-1.7 as int)", -1),
    ("cast(1.7e0 as bigint)", 1),
    ("cast(3000000000 as int)", duckdb.ConversionException),
    ("try_cast(3000000000 as int)", None),
    ("cast(1.005e0 as decimal(10, 2))", Decimal("1.01")),
    ("cast('1.005' as decimal(10, 2))", Decimal("1.01")),
    ("try_cast(123456 as decimal(4, 2))", None),
    ("cast(cast('2026-11-16 08:30:00.500' as timestamp) as string)", "2026-11-16 08:30:00.5"),
    ("cast(1.5e0 as string)", NeedsSpark),
    ("cast(array(1) as string)", NeedsSpark),
    ("cast('yes' as boolean)", NeedsSpark),
    ("cast('2026-W46' as date)", NeedsSpark),
    ("try_cast('never' as date)", None),
    ("cast('16.11.2026' as timestamp)", NeedsSpark),
    ("cast(cast(0 as timestamp) as string)", "1970-01-01 00:00:00"),
    ("cast(X'01' as string)", NeedsSpark),
    # Quotients: of decimals exact, of integers a double; no divisor is NULL.
    ("cast(12345 as decimal(20, 0)) / 100", Decimal("123.45")),
    ("unix_millis(timestamp '1970-01-01 00:00:01') / 3000", 1 / 3),
    ("1 / 0", NeedsSpark),
    ("cast('1' as decimal(4, 2)) / cast('3' as decimal(4, 2))", NeedsSpark),
    # Counts: NULL is no row that counts, nor are no rows at all.
    ("(select count_if(one = null) from (select 1 as one union all select 2 as one) as rows)", 0),
    ("(select count_if(one > 1) from (select 2 as one union all select null as one) as rows)", 1),
    ("(select count_if(one > 1) from (select 1 as one) as rows where one > 1)", 0),
    ("(select max(counted) from (select count_if(one = null) over () as counted from (select 1 as one)))", 0),
    # Sums and products that do not fit are NULL or an error.
    (f"(select sum(x) from {BIG})", duckdb.InvalidInputException),
    (f"(select try_sum(x) from {BIG})", None),
    (f"(select try_sum(x - 1) from {BIG})", 9223372036854775806),
    (f"(select try_multiply(a, b) from {FACTORS})", None),
    (f"(select a * b from {FACTORS})", duckdb.OutOfRangeException),
    # NULL comes first, in structs too; positions begin at 0.
    (f"(select max(y) from (select y, row_number() over (order by x) as place from {WITH_NULL}) where place = 1)", 1),
    (f"(select max(struct(x, y)).y from {WITH_NULL})", 2),
    (f"(select min(struct(x, y)).y from {WITH_NULL})", 1),
    (f"(select min_by(y, struct(x, y)) from {WITH_NULL})", 1),
    (f"(select min_by(y, x) from {WITH_NULL})", NeedsSpark),
    (f"(select array_max(array_sort(collect_list(struct(x, y)))).y from {WITH_NULL})", NeedsSpark),
    (f"(select collect_list(y) from {WITH_NULL})", NeedsSpark),
    ("(select min(at) from (select array('a', 'b') as x) as t lateral view posexplode(x) as at, value)", 0),
    # Text.
    ("concat('a', null)", None),
    ("concat_ws('-', 'a', null, 1)", "a-1"),
    ("upper('straße')", NeedsSpark),
    ("lower('ÄB')", "äb"),
    ("'50%' like '50\\\\%'", NeedsSpark),
    # Time.
    ("weekofyear(timestamp '2027-01-01 00:00:00')", 53),
    ("extract(yearofweek from date '2027-01-01')", 2026),
    ("extract(dayofweek_iso from date '2026-11-15')", 7),
    ("date_format(date '2026-11-16', 'EEEE')", "Monday"),
    ("date_format(date '2026-11-16', 'dd.MM.')", NeedsSpark),
    ("year(timestamp '2025-12-31 23:59:59+00:00')", 2025),
    ("timestamp '2026-03-29 02:30:00' = timestamp '2026-03-29 02:30:00Z'", True),
    ("current_timestamp()", NeedsSpark),
    ("try_add(timestamp '294246-12-31 00:00:00', interval 96 hours) is null", NeedsSpark),
    # Whose meaning differs, or that was never compared.
    ("from_json('{}', 'a int').a", NeedsSpark),
    ("xxhash64(1)", NeedsSpark),
    ("mode(x) from values (1) as t (x)", NeedsSpark),
    ("stack(2, 1, 2)", NeedsSpark),
    ("some_udf(1)", NeedsSpark),
    ("percentile(x, 0.5) from values (1) as t (x)", NeedsSpark),
    ("array(1)[3]", NeedsSpark),
    ("count(distinct x, x) from values (1) as t (x)", NeedsSpark),
]


@pytest.mark.parametrize(("sql", "value"), VALUES)
def test_a_value_is_spark_s_or_refused(sql: str, value: object) -> None:
    assert answer(f"select {sql}") == value


def test_bounds_of_a_run_are_those_from_the_beginning() -> None:
    rows = "(select 1 as x union all select null as x)"
    sql = f"select count(*) from {rows} as rows where x > cast(lakehouse_bound('t_after', '0') as bigint)"
    assert answer(sql) == 1
    assert answer(sql, are_bounds_open=True) == 2


def test_a_table_that_is_not_given_is_refused() -> None:
    for table in ("bronze.sales", "bronze.sales.snapshots", "other.bronze.sales"):
        with pytest.raises(NeedsSpark):
            translate(f"select * from {table}", {"bronze.orders": "x.bronze.orders"})
    assert '"x"."bronze"."orders"' in translate("select * from bronze.orders", {"bronze.orders": "x.bronze.orders"})


@pytest.mark.parametrize("pattern", ["(?i)a", "a++", "[a&&b]", "[a[b]]", "\\bword", "a$b", "\\Aa", "\\p{Alpha}+\\h"])
def test_a_pattern_of_java_alone_is_refused(pattern: str) -> None:
    with pytest.raises(NeedsSpark):
        re2(pattern, is_replacing=False)


PATTERNS = [
    # A vertical tab is white space, `.` is no line end, `$` is before a last line end, `$1` is a group.
    (r"regexp_replace('\u000B a \u000B', '^\\s+|\\s+$', '')", "a"),
    (r"regexp_extract('ab\r', '^(..)$', 1)", "ab"),
    (r"regexp_extract('a\u2028b', '^(...)$', 1)", ""),
    (r"'AB\n' rlike '^AB$'", True),
    (r"'AB\n' rlike '^AB\\z'", False),
    (r"regexp_replace('Ann Lee', '([^ ])[^ ]{2,}', '$1***')", "A*** L***"),
    (r"regexp_replace('王 b', '[\\p{IsHan}]', 'x')", "x b"),
    (r"regexp_replace('a', 'a', '\\$')", NeedsSpark),
    (r"regexp_replace('ab', 'b$', '')", NeedsSpark),
    (r"regexp_replace('ab', 'b*', '-')", NeedsSpark),
]


@pytest.mark.parametrize(("sql", "value"), PATTERNS)
def test_patterns_of_java_mean_the_same(sql: str, value: object) -> None:
    assert answer(f"select {sql}") == value


def test_spark_has_these_values(spark: SparkSession) -> None:
    other = {}
    for sql, value in [*VALUES, *PATTERNS]:
        if value is NeedsSpark:
            continue
        try:
            found: object = spark.sql(f"select {sql} as x").collect()[0][0]
        # One in a subquery has no class of PySpark's.
        except (PySparkException, Py4JJavaError):
            found = "an error"
        if found != ("an error" if isinstance(value, type) else value):
            other[sql] = found
    assert other == {}
