"""Random queries: what one changed classified value changes in a result, lineage reports as reached by it."""

import random
from collections import Counter
from collections.abc import Iterator

import duckdb
import pytest
import sqlglot

from python_dbt.pii.flows import NONE, Flow, Relation
from python_dbt.pii.lineage import follow
from python_dbt.pii.parse import UnsupportedSql
from tests.support.seeds import SEED

TABLES = {
    "raw.people": Relation(
        (("person", NONE), ("country", NONE), ("email", frozenset({Flow("people.email", "email")})))
    ),
    "raw.orders": Relation((("person", NONE), ("note", NONE))),
}
PEOPLE = [("a", "p", "x"), ("b", "p", "y"), ("c", "q", "x"), ("d", "q", "z")]
ORDERS = [("a", "x"), ("a", "p"), ("b", "y"), ("c", "q"), ("c", "z"), ("e", "x")]
LITERALS = ("'x'", "'y'", "'p'", "'a'", "'1'", "'2'")

# So many that no seed misses the shares at the end by chance.
NUMBER_OF_QUERIES = 100


class Queries:
    """Makes queries in Spark's dialect over the two tables; every column is a text."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._names = 0

    def query(self, depth: int) -> tuple[str, int]:
        """Return a query whose columns are c0, c1, ... and how many these are."""
        if depth == 0:
            table = self._random.choice([*TABLES, "raw.people"])
            columns = [name for name, _ in TABLES[table].columns]
            chosen = self._random.sample(columns, self._random.randint(1, len(columns)))
            return self._select(chosen, f"from {table}{self._where(columns)}"), len(chosen)
        return self._random.choice([self._plain, self._grouped, self._joined, self._set, self._window])(depth - 1)

    def _source(self, depth: int) -> tuple[str, list[str]]:
        """Return an item of FROM and its columns."""
        sql, count = self.query(depth)
        self._names += 1
        name = f"t{self._names}"
        return f"({sql}) as {name}", [f"{name}.c{number}" for number in range(count)]

    def _select(self, expressions: list[str], rest: str, how: str = "select") -> str:
        listed = ", ".join(f"{expression} as c{number}" for number, expression in enumerate(expressions))
        return f"{how} {listed} {rest}"

    def _value(self, columns: list[str]) -> str:
        pick = self._random.choice
        return pick(
            [
                pick(columns),
                pick(columns),
                f"concat({pick(columns)}, {pick([*columns, *LITERALS])})",
                f"case when {self._condition(columns)} then {pick([*columns, *LITERALS])} else {pick(LITERALS)} end",
                f"coalesce(nullif({pick(columns)}, {pick(LITERALS)}), {pick([*columns, *LITERALS])})",
                pick(LITERALS),
            ]
        )

    def _values(self, columns: list[str]) -> list[str]:
        return [self._value(columns) for _ in range(self._random.randint(1, 3))]

    def _condition(self, columns: list[str]) -> str:
        pick = self._random.choice
        simple = f"{pick(columns)} {pick(['=', '<', '<>', '>='])} {pick([*columns, *LITERALS])}"
        inner, _ = self.query(0)
        subquery = f"{pick(columns)} in (select c0 from ({inner}))"
        return pick([simple, simple, subquery, f"not ({simple})", f"{simple} or {pick(columns)} = {pick(LITERALS)}"])

    def _where(self, columns: list[str]) -> str:
        return f" where {self._condition(columns)}" if self._random.random() < 0.4 else ""

    def _plain(self, depth: int) -> tuple[str, int]:
        source, columns = self._source(depth)
        values = self._values(columns)
        how = self._random.choice(["select", "select", "select distinct"])
        sql = self._select(values, f"from {source}{self._where(columns)}", how)
        if self._random.random() < 0.2:
            sql += f" order by {', '.join(f'c{number}' for number in range(len(values)))} limit 2"
        return sql, len(values)

    def _grouped(self, depth: int) -> tuple[str, int]:
        source, columns = self._source(depth)
        pick = self._random.choice
        key = pick(columns)
        functions = ["min({})", "max({})", "cast(count(*) as string)", "cast(count(distinct {}) as string)"]
        values = [key, *(pick(functions).format(pick(columns)) for _ in range(self._random.randint(1, 2)))]
        values = self._random.sample(values, self._random.randint(1, len(values)))
        having = f" having count(distinct {pick(columns)}) > 1" if self._random.random() < 0.3 else ""
        return self._select(values, f"from {source}{self._where(columns)} group by {key}{having}"), len(values)

    def _joined(self, depth: int) -> tuple[str, int]:
        left, ours = self._source(depth)
        right, theirs = self._source(self._random.randint(0, depth))
        pick = self._random.choice
        how = pick(["inner join", "left join", "full join", "left semi join", "left anti join"])
        visible = ours if "semi" in how or "anti" in how else ours + theirs
        values = self._values(visible)
        on = f"{pick(ours)} = {pick(theirs)}"
        return self._select(values, f"from {left} {how} {right} on {on}"), len(values)

    def _set(self, depth: int) -> tuple[str, int]:
        left, count = self.query(depth)
        source, columns = self._source(self._random.randint(0, depth))
        right = self._select([self._value(columns) for _ in range(count)], f"from {source}")
        how = self._random.choice(["union all", "union all", "union", "except", "intersect"])
        listed = ", ".join(f"c{number}" for number in range(count))
        return f"select {listed} from ({left}) {how} select {listed} from ({right})", count

    def _window(self, depth: int) -> tuple[str, int]:
        source, columns = self._source(depth)
        pick = self._random.choice
        functions = ["cast(rank() over (partition by {} order by {}) as string)", "min({}) over (partition by {})"]
        functions.append("cast(count(*) over (partition by {0} order by {1}) as string)")
        values = [pick(columns), pick(functions).format(pick(columns), pick(columns))]
        return self._select(values, f"from {source}"), len(values)


def changed_people() -> Iterator[list[tuple[str, str, str]]]:
    """Yield the table of people with one e-mail changed."""
    for index, (person, country, email) in enumerate(PEOPLE):
        for other in {"x", "y", "z", "p"} - {email}:
            yield [*PEOPLE[:index], (person, country, other), *PEOPLE[index + 1 :]]


@pytest.fixture(scope="module")
def lakes() -> Iterator[list[duckdb.DuckDBPyConnection]]:
    """The original data, then each change of one value."""
    opened = []
    for people in [PEOPLE, *changed_people()]:
        lake = duckdb.connect()
        lake.execute("create schema raw")
        lake.execute("create table raw.people (person text, country text, email text)")
        lake.execute("create table raw.orders (person text, note text)")
        lake.executemany("insert into raw.people values (?, ?, ?)", people)
        lake.executemany("insert into raw.orders values (?, ?)", ORDERS)
        opened.append(lake)
    yield opened
    for lake in opened:
        lake.close()


def test_whatever_changes_a_result_is_reported(lakes: list[duckdb.DuckDBPyConnection]) -> None:
    queries, outcomes = Queries(SEED), Counter[str]()
    for number in range(NUMBER_OF_QUERIES):
        sql, _ = queries.query(depth=number % 4)
        [in_duckdb] = sqlglot.transpile(sql, read="spark", write="duckdb")
        results = (Counter(lake.execute(in_duckdb).fetchall()) for lake in lakes)
        first = next(results)
        differs = any(other != first for other in results)
        try:
            is_reported = bool(follow(sql, TABLES).everything())
        except UnsupportedSql:
            outcomes["unsupported"] += 1
            continue
        assert is_reported or not differs, f"seed {SEED}, query {number}: {sql}"
        outcomes[f"differs: {differs}, reported: {is_reported}"] += 1
    # The queries are worth something: many depend on the value, many do not, and few cannot be followed.
    assert outcomes["differs: True, reported: True"] > NUMBER_OF_QUERIES / 10, outcomes
    assert outcomes["differs: False, reported: False"] > NUMBER_OF_QUERIES / 20, outcomes
    assert outcomes["unsupported"] < NUMBER_OF_QUERIES / 10, outcomes
