"""Seeded mutations of models: a quick review finds those that Spark finds, on the same landed rows."""

import random
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import duckdb
import pytest
import sqlglot
from sqlglot import exp

from python_common.config.environment import PROJECT_ROOT, changed_environment, home
from python_common.spark import thrift
from python_dbt.compile import compiled_manifest
from python_dev.review import sample
from python_dev.review.duckdb_sql import NeedsSpark, translate
from python_dev.review.quick import WRONG_VALUES, Engine, Places
from tests.support.lake import Lake

pytestmark = pytest.mark.slow

NUMBER = 60
# What quick and Spark find; quick can also decline.
SAME, DIFFERS, FAILS, NEEDS_SPARK = "same rows", "other rows", "fails", "needs Spark"


def becomes(kind: type[exp.Expr]) -> Callable[[Any], exp.Expr]:
    return lambda node: kind(**{name: value for name, value in node.args.items() if name in ("this", "expression")})


def next_literal(node: exp.Literal) -> exp.Literal:
    text = str(int(node.name) + 1) if node.name.isdigit() else f"{node.name}x"
    return exp.Literal(this=text, is_string=node.is_string)


def changed(node: exp.Expr, **arguments: object) -> exp.Expr:
    copy = node.copy()
    for name, value in arguments.items():
        copy.set(name, value)
    return copy


MUTATIONS: dict[type[exp.Expr], Callable[[Any], exp.Expr]] = {
    **{one: becomes(other) for one, other in ((exp.EQ, exp.NEQ), (exp.NEQ, exp.EQ), (exp.Is, exp.EQ))},
    **{
        one: becomes(other)
        for one, other in ((exp.GT, exp.GTE), (exp.GTE, exp.GT), (exp.LT, exp.LTE), (exp.LTE, exp.LT))
    },
    **{
        one: becomes(other)
        for one, other in ((exp.And, exp.Or), (exp.Or, exp.And), (exp.Add, exp.Sub), (exp.Sub, exp.Add))
    },
    **{one: becomes(other) for one, other in ((exp.Min, exp.Max), (exp.Max, exp.Min), (exp.Lower, exp.Upper))},
    **dict.fromkeys((exp.Not, exp.Coalesce, exp.Case), lambda node: node.this or node.args["ifs"][0].args["true"]),
    exp.Where: lambda _: exp.Where(this=exp.true()),
    exp.Having: lambda _: exp.Having(this=exp.true()),
    exp.Join: lambda node: changed(node, side="" if node.side else "left", kind=None),
    exp.Union: lambda node: changed(node, distinct=not node.args["distinct"]),
    exp.Select: lambda node: changed(node, distinct=None if node.args.get("distinct") else exp.Distinct()),
    exp.Ordered: lambda node: changed(node, desc=not node.args.get("desc")),
    exp.Count: lambda node: exp.Count(
        this=node.this.expressions[0] if isinstance(node.this, exp.Distinct) else exp.Star()
    ),
    exp.Literal: next_literal,
}


def mutants(models: dict[str, str], seed: int) -> Iterator[tuple[str, str, str]]:
    """Yield as many models of each kind of mutation as there are: the name, what is mutated, and the SQL."""
    chance, places = random.Random(seed), defaultdict(list)
    for name, sql in models.items():
        tree = sqlglot.parse_one(sql, dialect="spark")
        # Only an increment evaluates these.
        bounded = {id(one) for cte in tree.find_all(exp.CTE) if cte.alias == "affected" for one in cte.walk()}
        for at, node in enumerate(tree.walk()):
            if id(node) not in bounded and "LAKEHOUSE_BOUND" not in node.sql("spark"):
                places[type(node)].append((name, at))
    waiting = {kind: chance.sample(places[kind], len(places[kind])) for kind in MUTATIONS}
    while any(waiting.values()):
        for kind, of_kind in waiting.items():
            if of_kind:
                name, at = of_kind.pop()
                tree = sqlglot.parse_one(models[name], dialect="spark")
                node = [*tree.walk()][at]
                before, after = node.sql("spark"), MUTATIONS[kind](node)
                what = f"{before} -> {after.sql('spark')}"
                mutated = after if node is tree else tree
                node.replace(after)
                yield name, what, mutated.sql("spark")


def differing(before: str, after: str) -> str:
    """Return a query of how many rows differ."""
    old, new = (f"(select * from ({sql}) as rows)" for sql in (before, after))
    return f"select count(*) from (({old} except all {new}) union all ({new} except all {old})) as differing"


def quick_finds(engine: Engine, tables: dict[str, str], before: str, after: str) -> str:
    try:
        [[rows]] = engine.run(differing(translate(before, tables), translate(after, tables)))
    except WRONG_VALUES:
        return FAILS
    except (NeedsSpark, duckdb.Error):
        return NEEDS_SPARK
    return DIFFERS if rows else SAME


@pytest.fixture(scope="module")
def built(lake: Lake, first_wave: object, tmp_path_factory: pytest.TempPathFactory) -> tuple[Engine, Places]:
    """The models that a quick review builds of the landed rows of the lake."""
    directory = tmp_path_factory.mktemp("landed")
    sample.write(lake.settings, directory)
    with changed_environment({"LAKEHOUSE_WEEKS": str(lake.last_week)}):
        manifest = compiled_manifest(PROJECT_ROOT)
    engine, places = Engine(directory, (home() / "pii.key").read_text().strip()), Places(manifest, PROJECT_ROOT)
    engine.build(places, [node.unique_id for node in manifest.models])
    return engine, places


def test_quick_finds_the_mutations_that_spark_finds(lake: Lake, built: tuple[Engine, Places]) -> None:
    engine, places = built
    # Rows of ops are of the runs so far.
    models = [
        one for one in places.manifest.models if places.key(one.unique_id) in engine.built and one.schema != "ops"
    ]
    sql = {one.name: str(one.compiled_code) for one in models if one.materialized != "ephemeral"}
    found: dict[str, tuple[str, str]] = {}
    with thrift.connect(lake.settings) as cursor:
        for name, what, mutated in mutants(sql, seed=7):
            of_quick = quick_finds(engine, places.tables, sql[name], mutated)
            if of_quick != NEEDS_SPARK:
                query = differing(sql[name], mutated)
                if thrift.error_of(cursor, query):
                    of_spark = FAILS
                else:
                    of_spark = DIFFERS if thrift.rows(cursor, query)[0][0] else SAME
                found[f"{name}: {what}"] = of_quick, of_spark
            if len(found) == NUMBER:
                break
    assert {what: finds for what, finds in found.items() if len({*finds}) > 1} == {}
    assert sum(of_quick == DIFFERS for of_quick, _ in found.values()) > NUMBER / 2
