import pytest

from python_dev.review.canonical import is_same_sql, is_same_template, is_volatile


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("with a as (select 1 as k) select k from a", "WITH a AS (select 1 AS k)\n\nSELECT k FROM a -- all"),
        ("select a <> 1 from t.t", "SELECT a != 1 FROM t.t"),
        ("select 'a -- b', x from t.t -- a 'note'", "SELECT /* it's */\n  'a -- b',x\nfrom t.t"),
    ],
)
def test_format_and_comments_are_ignored(before, after):
    assert is_same_sql(before, after)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        # Names are not followed: such a model is built, and found equal.
        ("with a as (select 1 as k) select k from a", "with b as (select 1 as k) select k from b"),
        ("select a.x from t.t as a, t.u as b", "select b.x from t.t as a, t.u as b"),
        ("with a as (select 1 as k), b as (select 2 as k) select k from a", 
         "with a as (select 1 as k), b as (select 2 as k) select k from b"),
        ("select x from marts.a", "select x from staging.a"),
        ("select 'a  b'", "select 'a b'"),
        # A year, and the year of a week: sqlglot reads both as the same format.
        ("select date_format(x, 'yyyy') from t.t", "select date_format(x, 'YYYY') from t.t"),
        ("select x'AB'", "select x'ab'"),
        ("select /*+ broadcast(b) */ 1 from t.a, t.b as b", "select 1 from t.a, t.b as b"),
        ("select x from t.t", "select X from t.t"),
        ("select x, y from t.t", "select y, x from t.t"),
        ("it is no ( SQL", "it is no  ( SQL"),
    ],
)  # fmt: skip
def test_other_names_values_and_hints_are_not_the_same(before, after):
    assert not is_same_sql(before, after)


DAY = "select {{ week('at') }}_day from t"


@pytest.mark.parametrize(
    ("before", "after", "is_same"),
    [
        (DAY, "{# Why. #}select  {{ week('at') }}_day from t -- all", True),
        (DAY, "select {{ week('at') }} _day from t", False),
        (DAY, "select {{ week('at ') }}_day from t", False),
        (DAY, "select '{{ week('at') }}_day' from t", False),
        (DAY, "select _day{{ week('at') }} from t", False),
        (DAY, "select {{ week('at') }_day from t", False),
        (DAY, "select {{ week('at') }}_day from t -- it's all", True),
        (DAY, "select {{week( 'at' )}}_day from t", True),
        (DAY, "select {{ week('at') }}_day from t{{ x }}", False),
        (DAY, "select {{ week('at') }}_day from t '", False),
        (DAY, "select {{ week('at') }}_day from t where x = '-- all'", False),
        (DAY, "-- from t\nselect {{ week('at') }}_day {# 'of\n-- t #}\n from t", True),
        ("select a, b from t where x<=1", "select a\n    ,b from t where x <= 1 -- or less", True),
        ("select f(a, 'x') from t", "select f( a,'x' )\nfrom t", True),
        ("select a from t where x <= 1", "select a from t where x < = 1", False),
        ("select 1.5", "select 1 .5", False),
        ("select a{{ b }}", "select a {{ b }}", False),
        ("{%- if x %}a{% endif %}", "{% if x %}a{% endif %}", False),
        ("select /*+ broadcast(b) */ 1", "select 1", False),
        ("select 'a  b'", "select 'a b'", False),
    ],
)
def test_a_template_is_the_same_if_jinja_and_sql_are(before, after, is_same):
    assert is_same_template(before, after) == is_same


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
