import pytest

from python_dev.review.canonical import is_same_sql, is_volatile


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("select a.x from t.t as a, t.u as b", "select b.x from t.t as b, t.u as a"),
        ("select x.k from t.t as x", "select t.k from t.t"),
        ("with a as (select 1 as k) select k from a", "with b as (select 1 as k) select k from b"),
        ("select a <> 1 from t.t", "SELECT a != 1 FROM t.t"),
        ("select A.x from t.t as a", "select a.x from t.t as A"),
        ("select 'a -- b', x from t.t -- a 'note'", "SELECT /* it's */\n  'a -- b',x\nfrom t.t"),
    ],
)
def test_names_are_exchanged_and_format_is_ignored(before, after):
    assert is_same_sql(before, after)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("select a.x from t.t as a, t.u as b", "select b.x from t.t as a, t.u as b"),
        # c is a struct of t.t before, and the table itself after.
        ("select a.x, c.f from t.t as a", "select c.x, c.f from t.t as c"),
        ("select a.x, c from t.t as a", "select c.x, c from t.t as c"),
        ("select a.x, C from t.t as a", "select c.x, C from t.t as c"),
        # A struct is no alias, though another query has one of that name; nor is the variable of a lambda.
        ("select after.amount from t.t", "select before.amount from t.t"),
        ("with c as (select s.k from t.t as s) select s.f from t.u", 
         "with c as (select r.k from t.t as r) select r.f from t.u"),
        ("select transform(a, x -> x.k) from t.t as t", "select transform(a, y -> y.k) from t.t as t"),
        # A struct of t.u comes before an alias of the outer query, and only the tables know whether there is one.
        ("select (select max(a.f) from t.u) from t.t as a", "select (select max(b.f) from t.u) from t.t as b"),
        ("select A.x from t.t as a, t.u as b", "select B.x from t.t as a, t.u as b"),
        ("with a as (select 1 as k), b as (select 2 as k) select k from A", 
         "with a as (select 1 as k), b as (select 2 as k) select k from B"),
        ("with a as (select 1 as k), b as (select 2 as k) select k from a", 
         "with a as (select 1 as k), b as (select 2 as k) select k from b"),
        ("select x from marts.a", "select x from staging.a"),
        ("select 'a  b'", "select 'a b'"),
        # A year, and the year of a week: sqlglot reads both as the same format.
        ("select date_format(x, 'yyyy') from t.t", "select date_format(x, 'YYYY') from t.t"),
        ("select /*+ broadcast(b) */ 1 from t.a, t.b as b", "select 1 from t.a, t.b as b"),
        ("select x from t.t", "select X from t.t"),
        ("select x, y from t.t", "select y, x from t.t"),
        ("select x from t.t", "select distinct x from t.t"),
        ("select x from t.t", "select x from t.t limit 5"),
        ("select x from t.t where x = 1", "select x from t.t where x <=> 1"),
        ("select x from t.t where x and y", "select x from t.t where x or y"),
        ("select x from t.t where x and not y", "select x from t.t where x and y"),
        ("select sum(x) from t.t", "select max(x) from t.t"),
        ("select cast(x as double) from t.t", "select cast(x as float) from t.t"),
        ("select x from t.t join t.u using (k)", "select x from t.t left join t.u using (k)"),
        ("select x from t.t left semi join t.u using (k)", "select x from t.t left anti join t.u using (k)"),
        ("select x from t.t union all select y from t.u", "select x from t.t union select y from t.u"),
        ("select rank() over (partition by x order by y) from t.t", "select rank() over (order by y) from t.t"),
        ("select rank() over (order by y) from t.t", "select rank() over (order by y desc) from t.t"),
        ("it is no ( SQL", "it is no  ( SQL"),
    ],
)  # fmt: skip
def test_other_names_values_and_hints_are_not_the_same(before, after):
    assert not is_same_sql(before, after)


@pytest.mark.parametrize(
    "sql",
    [
        *(f"select {clock} as at" for clock in ("current_timestamp()", "current_date", "now()", "localtimestamp()")),
        *(f"select {clock} as at" for clock in ("unix_timestamp()", "timestamp 'now'", "date ' today UTC'")),
        *(
            f"select {chance} from marts.a"
            for chance in ("rand()", "rand(3)", "randn()", "randstr(3)", "uniform(1, 2)")
        ),
        *(f"select {chance} from marts.a" for chance in ("uuid()", "uuid(3)", "shuffle(array(1, 2))")),
        "select id from marts.a tablesample (10 percent)",
        *(f"select {how}() from marts.a" for how in ("monotonically_increasing_id", "spark_partition_id")),
        *(
            f"select {session}() as one"
            for session in ("input_file_name", "current_timezone", "current_user", "version")
        ),
        "select row_number() over (partition by current_date() order by id) from marts.a",
        "select reflect('java.util.UUID', 'randomUUID')",
        "select function_of_somebody(id) from marts.a",
        "select count(*) from marts.a.files",
        "select count(*) from marts.a.position_deletes",
        "it is no ( SQL",
        "show tables",
    ],
)
def test_sql_that_may_differ_between_two_builds_is_volatile(sql):
    assert is_volatile(sql)


@pytest.mark.parametrize(
    "sql",
    [
        "",
        "select date_add(a.at, 1), files from marts.a",
        "select date '2026-01-01', timestamp ' 2026-01-01 00:00:00', cast('now' as string)",
        "select unix_timestamp(at, 'yyyy'), xxhash64(id), try_sum(id) from marts.a group by all",
        "select row_number() over (order by id), rank() over (order by id), array() from marts.a",
        "select sha2(concat(id, (select value from spark_catalog.default.pii_pads)), 256) from marts.a",
    ],
)
def test_sql_that_depends_on_its_tables_alone_is_not_volatile(sql):
    assert not is_volatile(sql)
