import random
from itertools import pairwise

import pytest
import sqlglot
from sqlglot import exp

from python_dev.review.canonical import is_same_sql, is_volatile


def compiled(side):
    return [node.compiled_code for node in side.manifest.nodes.values() if node.compiled_code]


def reformatted(sql, chance):
    """The same tokens with other white space and comments between them."""
    tokens = sqlglot.tokenize(sql, read="spark")
    texts = [sql[token.start : token.end + 1] for token in tokens]
    gaps = [sql[token.end + 1 : following.start] for token, following in pairwise(tokens)]
    blanks = [chance.choice(["\n", "  ", " /* it's */ ", " -- a 'note'\n"]) if gap else "" for gap in gaps]
    return "".join(text + blank for text, blank in zip(texts, [*blanks, ""], strict=True))


def test_compiled_sql_is_the_same_in_any_format(side):
    chance = random.Random(1)
    for sql in compiled(side):
        assert is_same_sql(sql, reformatted(sql, chance)), sql


def renamed(tree):
    """A copy of a statement whose CTEs all have other names."""
    copy = tree.copy()
    names = {cte.alias: f"{cte.alias}_renamed" for cte in copy.find_all(exp.CTE)}
    for identifier in copy.find_all(exp.Identifier):
        if identifier.name in names and isinstance(identifier.parent, exp.TableAlias | exp.Table | exp.Column):
            is_column = isinstance(identifier.parent, exp.Column) and identifier.arg_key != "table"
            is_stored = isinstance(identifier.parent, exp.Table) and identifier.parent.args.get("db")
            if not is_column and not is_stored:
                identifier.set("this", names[identifier.name])
    return copy


def test_compiled_sql_is_the_same_with_aliases_in_upper_case(side):
    for sql in compiled(side):
        tree = sqlglot.parse_one(sql, dialect="spark")
        before = tree.sql("spark")
        for query in tree.find_all(exp.Select):
            for column in query.find_all(exp.Column):
                if column.table in aliases(query):
                    column.args["table"].set("this", column.table.upper())
        assert is_same_sql(before, tree.sql("spark")), sql


def aliases(query):
    """The names of what a query selects from; a qualifier that is none of them is a struct."""
    tables = [query.args.get("from_"), *query.args.get("joins", ())]
    return [table.alias_or_name for table in tables if table and table.alias_or_name]


def another_qualifier(node):
    """Another alias of the same query, in upper case."""
    query = node.find_ancestor(exp.Select) if isinstance(node, exp.Column) else None
    if query is None or node.table not in aliases(query):
        return None
    others = {*aliases(query)} - {node.table}
    return exp.column(node.name, min(others).upper()) if others else None


def another_struct(node):
    """A query whose fields of one struct are those of another one."""
    if not isinstance(node, exp.Select):
        return None
    copy = node.copy()
    own = [column for column in copy.find_all(exp.Column) if column.table and column.table not in aliases(copy)]
    for column in own:
        if column.table == own[0].table:
            column.args["table"].set("this", "other")
    return copy if own else None


def test_compiled_sql_is_the_same_with_other_names_of_its_ctes(side):
    with_ctes = [sql for sql in compiled(side) if sqlglot.parse_one(sql, dialect="spark").find(exp.CTE)]
    same = [is_same_sql(sql, renamed(sqlglot.parse_one(sql, dialect="spark")).sql("spark")) for sql in with_ctes]
    # A name that is also a column's is not exchanged: that errs on the safe side.
    assert sum(same) > 0.7 * len(same)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("select a.x from t.t as a, t.u as b", "select b.x from t.t as b, t.u as a"),
        ("select x.k from t.t as x", "select t.k from t.t"),
        ("with a as (select 1 as k) select k from a", "with b as (select 1 as k) select k from b"),
        ("select a <> 1 from t.t", "SELECT a != 1 FROM t.t"),
        ("select A.x from t.t as a", "select a.x from t.t as A"),
    ],
)
def test_names_are_exchanged_one_for_one(before, after):
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
    ("sql", "expected"),
    [
        ("select current_timestamp() as at", True),
        ("select now() as at", True),
        ("select rand() from marts.a", True),
        ("select count(*) from marts.a.files", True),
        ("it is no ( SQL", True),
        ("select date_add(a.at, 1), files from marts.a", False),
    ],
)
def test_sql_that_reads_clock_chance_or_metadata_is_volatile(sql, expected):
    assert is_volatile(sql) == expected


def swap(one, other):
    return lambda node: other(**node.args) if type(node) is one else None


def changed_arg(kind, key, change):
    """A node of a kind with another value of an argument; none if that is the same."""

    def changed(node):
        if not isinstance(node, kind):
            return None
        copy = node.copy()
        before = copy.args.get(key)
        after = change(before)
        if after == before:
            return None
        copy.set(key, after)
        return copy

    return changed


def without(kind, key):
    return changed_arg(kind, key, lambda argument: None if argument else argument)


def with_arg(kind, key, value):
    return changed_arg(kind, key, lambda argument: value)


def without_one(kind, key):
    return changed_arg(kind, key, lambda arguments: arguments[1:] if len(arguments or ()) > 1 else arguments)


def swapped_two(kind, key):
    def swapped(arguments):
        if len(arguments or ()) < 2:
            return arguments
        return [arguments[1], arguments[0], *arguments[2:]]

    return changed_arg(kind, key, swapped)


def literal(node):
    if not isinstance(node, exp.Literal):
        return None
    return exp.Literal(this=f"{node.name}1", is_string=node.is_string)


def column(node):
    return exp.column("other", node.table) if isinstance(node, exp.Column) and node.name != "other" else None


def operand(node):
    return node.this if isinstance(node, exp.And | exp.Or | exp.Coalesce | exp.Nullif) else None


# The kinds of change that a review must never take for a change of format.
MUTATIONS = {
    "inner join becomes left": with_arg(exp.Join, "side", "LEFT"),
    "left join becomes full": with_arg(exp.Join, "side", "FULL"),
    "join becomes anti": with_arg(exp.Join, "kind", "ANTI"),
    "cross join": without(exp.Join, "on"),
    "= becomes <>": swap(exp.EQ, exp.NEQ),
    "<> becomes =": swap(exp.NEQ, exp.EQ),
    "< becomes <=": swap(exp.LT, exp.LTE),
    "<= becomes <": swap(exp.LTE, exp.LT),
    "> becomes >=": swap(exp.GT, exp.GTE),
    ">= becomes >": swap(exp.GTE, exp.GT),
    "= becomes null safe": swap(exp.EQ, exp.NullSafeEQ),
    "null safe becomes =": swap(exp.NullSafeEQ, exp.EQ),
    "and becomes or": swap(exp.And, exp.Or),
    "or becomes and": swap(exp.Or, exp.And),
    "a condition or argument is dropped": operand,
    "not is dropped": lambda node: node.this if isinstance(node, exp.Not) else None,
    "where is dropped": without(exp.Select, "where"),
    "having is dropped": without(exp.Select, "having"),
    "group by is dropped": without(exp.Select, "group"),
    "a group is dropped": without_one(exp.Group, "expressions"),
    "distinct": with_arg(exp.Select, "distinct", exp.Distinct()),
    "distinct is dropped": without(exp.Select, "distinct"),
    "limit": with_arg(exp.Select, "limit", exp.Limit(expression=exp.Literal.number(5))),
    "union all becomes union": with_arg(exp.Union, "distinct", True),
    "union becomes union all": with_arg(exp.Union, "distinct", False),
    "union becomes except": swap(exp.Union, exp.Except),
    "a column is dropped": without_one(exp.Select, "expressions"),
    "columns are exchanged": swapped_two(exp.Select, "expressions"),
    "arguments are exchanged": swapped_two(exp.Coalesce, "expressions"),
    "a partition of a window is dropped": without_one(exp.Window, "partition_by"),
    "all partitions of a window are dropped": without(exp.Window, "partition_by"),
    "the order of a window is dropped": without(exp.Window, "order"),
    "keys of an order are exchanged": swapped_two(exp.Order, "expressions"),
    "descending": with_arg(exp.Ordered, "desc", True),
    "nulls last": lambda node: with_arg(exp.Ordered, "nulls_first", not node.args.get("nulls_first"))(node),
    "min becomes max": swap(exp.Min, exp.Max),
    "max becomes min": swap(exp.Max, exp.Min),
    "sum becomes count": swap(exp.Sum, exp.Count),
    "count becomes sum": lambda node: exp.Sum(this=node.this) if isinstance(node, exp.Count) else None,
    "+ becomes -": swap(exp.Add, exp.Sub),
    "- becomes +": swap(exp.Sub, exp.Add),
    "* becomes /": swap(exp.Mul, exp.Div),
    "another literal": literal,
    "another column": column,
    "another qualifier": another_qualifier,
    "another struct": another_struct,
    "another type": with_arg(exp.Cast, "to", exp.DataType.build("float")),
    "another name of a column": with_arg(exp.Alias, "alias", exp.to_identifier("other")),
    "another table": lambda node: (
        exp.to_table("marts.other", dialect="spark") if isinstance(node, exp.Table) and node.args.get("db") else None
    ),
    "null": lambda node: exp.Null() if isinstance(node, exp.Column) else None,
    "case without else": without(exp.Case, "default"),
    "if without else": without(exp.If, "false"),
    "a hash is dropped": lambda node: node.this if isinstance(node, exp.SHA2) else None,
    "a field is dropped": lambda node: node.this if isinstance(node, exp.Dot) else None,
}


@pytest.mark.parametrize("of_each", [3, pytest.param(20, marks=pytest.mark.slow)])
def test_no_planted_change_of_compiled_sql_is_taken_for_the_same(side, of_each):
    chance = random.Random(of_each)
    planted = dict.fromkeys(MUTATIONS, 0)
    trees = [sqlglot.parse_one(sql, dialect="spark") for sql in dict.fromkeys(compiled(side))]
    for kind, mutate in MUTATIONS.items():
        for tree in chance.sample(trees, len(trees)):
            indexes = [index for index, node in enumerate(tree.walk()) if mutate(node) is not None]
            if not indexes:
                continue
            copy = tree.copy()
            chosen = chance.choice(indexes)
            node = next(node for index, node in enumerate(copy.walk()) if index == chosen)
            if node.parent is None:
                continue
            node.replace(mutate(node))
            sql = copy.sql("spark")
            if copy == tree or sql == tree.sql("spark"):
                continue
            assert not is_same_sql(tree.sql("spark"), sql), (kind, chosen, sql)
            planted[kind] += 1
            if planted[kind] == of_each:
                break
    assert len([kind for kind, times in planted.items() if times]) >= 40, planted
    assert sum(planted.values()) >= 30 * of_each
