from functools import partial

import pytest
import sqlglot
from sqlglot import exp

from python_dev.review.canonical import is_same_sql, is_volatile


def compiled(side):
    return [node.compiled_code for node in side.manifest.nodes.values() if node.compiled_code]


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


# Nodes that are exchanged for each other.
KINDS = [
    (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.NullSafeEQ),
    (exp.And, exp.Or),
    (exp.Add, exp.Sub, exp.Mul, exp.Div),
    (exp.Min, exp.Max, exp.Sum, exp.Count),
    (exp.Union, exp.Except),
]
ADDED = [
    (exp.Select, "distinct", exp.Distinct()),
    (exp.Select, "limit", exp.Limit(expression=exp.Literal.number(5))),
    (exp.Join, "side", "LEFT"),
    (exp.Join, "side", "FULL"),
    (exp.Join, "kind", "ANTI"),
    (exp.Cast, "to", exp.DataType.build("float")),
]
# Names that may be others on both sides, and what SQL can write in two ways or not leave out.
NOT_CHANGED = {
    *((exp.TableAlias, "this"), (exp.Column, "table"), (exp.Table, "alias"), (exp.Table, "this")),
    *((exp.DataType, "nested"), (exp.RegexpReplace, "replacement"), (exp.Lateral, "alias")),
}


def changes(node):
    """The changes that can be planted at a node: a name, and what returns the other node of a copy."""
    name = type(node).__name__
    if (type(node.parent), node.arg_key) in NOT_CHANGED:
        return
    for kind in next((kinds for kinds in KINDS if type(node) in kinds), ()):
        if kind is not type(node):
            yield f"{name} becomes {kind.__name__}", partial(exchanged, kind=kind)
    if isinstance(node, exp.Condition) and isinstance(node.this, exp.Expr):
        yield f"{name} is left out", lambda copy: copy.this
    for kind, key, value in ADDED:
        if type(node) is kind and node.args.get(key) != value:
            yield f"{name}.{key} becomes {value}", partial(with_arg, key=key, value=value)
    for key, value in node.args.items():
        if not value or (type(node), key) in NOT_CHANGED:
            continue
        others = [not value] if isinstance(value, bool) else [f"{value}1"] if isinstance(value, str) else []
        for other in [*others, *([] if node.arg_types.get(key) else [None])]:
            yield f"{name}.{key} becomes {type(other).__name__}", partial(with_arg, key=key, value=other)
        if isinstance(value, list) and len(value) > 1:
            yield f"{name}.{key} lacks one", lambda copy, key=key: with_arg(copy, key, copy.args[key][1:])
            yield f"{name}.{key} in another order", lambda copy, key=key: with_arg(copy, key, copy.args[key][::-1])


def exchanged(copy, kind):
    return kind(**copy.args)


def with_arg(copy, key, value):
    copy.set(key, value.copy() if isinstance(value, exp.Expr) else value)
    return copy


def test_no_planted_change_is_taken_for_the_same(side):
    """Each kind of change that this project's SQL allows, in the shortest statement that does."""
    trees = [sqlglot.parse_one(sql, dialect="spark") for sql in dict.fromkeys(compiled(side))]
    planted = {}
    for tree in sorted(trees, key=lambda tree: sum(1 for _ in tree.walk())):
        for index, node in enumerate(tree.walk()):
            for name, change in changes(node) if node.parent else ():
                planted.setdefault(name, (tree, index, change))
    assert len(planted) > 150
    for name, (tree, index, change) in planted.items():
        copy = tree.copy()
        node = next(node for number, node in enumerate(copy.walk()) if number == index)
        node.replace(change(node.copy()))
        before, after = tree.sql("spark"), copy.sql("spark")
        assert before == after or not is_same_sql(before, after), (name, after)
