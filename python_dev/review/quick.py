"""`lakehouse review --quick`: what a change reaches, before and after it, in DuckDB on landed sample data.

Red is early: rows and tests are those of the changed SQL. Green is what Spark builds: nothing is called clean here, and
what DuckDB cannot run as Spark does is named.
"""

import ast
import csv
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import duckdb
from sqlglot import exp

from python_dbt.manifest import REFERENCED, DbtManifest, Node
from python_dbt.pii.proof import PADS
from python_dbt.project import Project
from python_dev.review import contracts
from python_dev.review.contracts import Finding
from python_dev.review.duckdb_sql import MACROS, REFUSED, NeedsSpark, increments, translate
from python_dev.review.report import Review, TableReport
from python_dev.review.scope import ReviewScope, called
from python_dev.review.table_diff import SIDES, column_types, is_nested, table_diff

# Errors of ANSI mode. Others may be DuckDB's alone, such as types that it does not compare.
WRONG_VALUES = (duckdb.ConversionException, duckdb.InvalidInputException, duckdb.OutOfRangeException)
BEFORE, AFTER = SIDES
# Nothing that it masks is stored: any key does.
KEY = f"sample:{'5c' * 64}{'36' * 64}:source"
# Macros whose other SQL in a unit test means the same with open bounds.
HONOURED = {"changed_in", "in_new_batches", "in_affected", "exported_columns"}
# Reasons of a change that compiled SQL shows.
SHOWN_BY_SQL = ("SQL", "its file", "its arguments")


@dataclass(frozen=True)
class QuickReview(Review):
    """A review of which DuckDB has built `built` models and run `tested` tests."""

    built: int = 0
    tested: int = 0

    @property
    def verdict(self) -> str:
        """One of EXIT_CODES but clean: what was searched instead."""
        if (verdict := super().verdict) != "clean":
            return verdict
        return f"nothing found in {self.built} models and {self.tested} tests; run the full review before merging"


@dataclass(frozen=True)
class Places:
    """The nodes of a side: all of those before the change, and after it those that it reaches; others are as before."""

    manifest: DbtManifest
    root: Path
    name: str = BEFORE
    reached: frozenset[str] = frozenset()

    def node(self, unique_id: str) -> Node:
        """Return a node or source."""
        return self.manifest.nodes.get(unique_id) or self.manifest.sources[unique_id]

    def key(self, unique_id: str) -> tuple[str, str]:
        """Return the database of a node, and its id."""
        return (self.name if unique_id in self.reached else BEFORE), unique_id

    @cached_property
    def tables(self) -> dict[str, str]:
        """DuckDB's table of each table of Spark."""
        nodes = [*self.manifest.sources.values(), *self.manifest.nodes.values()]
        of_nodes = {one.table: f"{self.key(one.unique_id)[0]}.{one.table}" for one in nodes if one.table != "."}
        return {**of_nodes, PADS: PADS}

    def read_by(self, call: str) -> Node:
        """Return the node of a fixture's `ref(...)` or `source(...)`."""
        parsed = ast.parse(call, mode="eval").body
        names = [ast.literal_eval(argument) for argument in parsed.args] if isinstance(parsed, ast.Call) else []
        sources = [one for one in self.manifest.sources.values() if [one.source_name, one.name] == names]
        if not names:
            raise NeedsSpark(f"a fixture replaces {call}")
        return sources[0] if sources else self.manifest.named(names[-1])

    def unlike_in_unit_tests(self, model: Node) -> list[str]:
        """Return the macros behind a model whose SQL is another one in a unit test."""
        macros = [self.manifest.macros[name] for name in called(self.manifest.macros, model.macros)]
        return sorted({one.name for one in macros if "'unit_test'" in one.macro_sql} - HONOURED)


@dataclass
class Engine:
    """DuckDB with the sample data, in which nodes are built, by database and unique id.

    `errors` are why a node is not built: one of WRONG_VALUES if its SQL is wrong on the sample data.
    """

    sample: Path
    pii_key: str = KEY
    database: duckdb.DuckDBPyConnection = field(default_factory=duckdb.connect)
    built: set[tuple[str, str]] = field(default_factory=set)
    errors: dict[tuple[str, str], Exception] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Make the databases, the macros and the table of the masking key. No table is a variable of Python."""
        self.run(
            "set timezone = 'UTC'; set python_enable_replacements = false; set memory_limit = '2GB'; set threads = 2"
        )
        for name in ("spark_catalog", BEFORE, AFTER):
            self.run(f"attach ':memory:' as {name}")
        self.run(f'create schema spark_catalog."default"; create schema fixtures; {MACROS.read_text()}')
        self.database.execute('create table spark_catalog."default".pii_pads as select ? as value', [self.pii_key])

    def run(self, sql: str) -> list[tuple[Any, ...]]:
        """Return the rows of SQL; raises NeedsSpark for a value that means something else to Spark."""
        try:
            return self.database.execute(sql).fetchall()
        except duckdb.InvalidInputException as error:
            _, refused, reason = str(error).partition(REFUSED)
            raise NeedsSpark(reason.partition("\n")[0]) if refused else error from None

    def build(self, places: Places, unique_ids: Iterable[str]) -> None:
        """Build nodes, each after what it is made of."""
        for unique_id in unique_ids:
            node, key = places.node(unique_id), places.key(unique_id)
            if key in self.built or key in self.errors:
                continue
            self.build(places, node.parents)
            try:
                if behind := self.unbuilt(places, node.parents):
                    raise NeedsSpark(f"made of {', '.join(behind)}")
                self._make(places, node)
                self.built.add(key)
            except (NeedsSpark, duckdb.Error) as error:
                self.errors[key] = error

    def unbuilt(self, places: Places, unique_ids: Iterable[str]) -> list[str]:
        """Return the names of the nodes at which it begins that some are not built."""
        names = set[str]()
        for node in (places.node(one) for one in unique_ids if places.key(one) in self.errors):
            names |= {*(self.unbuilt(places, node.parents) or [node.name])}
        return sorted(names)

    def _make(self, places: Places, node: Node) -> None:
        if node.materialized == "ephemeral":
            return
        file = self.sample / f"{node.table}.parquet"
        if node.resource_type == "source" and file.exists():
            rows = f"select * from read_parquet('{file}')"
        elif node.resource_type == "seed":
            rows = _seed(node, places.root / node.original_file_path)
        elif node.resource_type == "model" and node.materialized in ("view", "table", "incremental"):
            rows = translate(node.compiled_code or "", places.tables)
        else:
            raise NeedsSpark(f"it is a {node.materialized or node.resource_type} without sample data")
        table = places.tables[node.table]
        self.run(f"create schema if not exists {table.rpartition('.')[0]}; create table {table} as {rows}")
        # DuckDB counts and adds up integers in a type that Spark lacks.
        for column, kind in column_types(self.database, table).items():
            if kind == "HUGEINT":
                self.run(f'alter table {table} alter "{column}" type bigint')

    def answers(self, places: Places, tests: Iterable[Node]) -> dict[str, str | Exception]:
        """Return by unique id the answers of tests, as dbt has them, or why they have none."""
        answers: dict[str, str | Exception] = {}
        for test in tests:
            word = "warn" if str(test.config.get("severity", "")).lower() == "warn" else "fail"
            try:
                rows = (self._differing if test.resource_type == "unit_test" else self._failing)(places, test)
                answers[test.unique_id] = f"{word} {rows}" if rows else "pass"
            except (NeedsSpark, duckdb.Error) as error:
                answers[test.unique_id] = error
        return answers

    def _failing(self, places: Places, test: Node) -> int:
        if behind := self.unbuilt(places, test.parents):
            raise NeedsSpark(f"it reads {', '.join(behind)}")
        sql = f"select {test.fail_calc} as failures from (\n{test.compiled_code}\n) as failing"
        return int(self.run(translate(sql, places.tables))[0][0] or 0)

    def _differing(self, places: Places, test: Node) -> int:
        """Return how many rows of a unit test's model differ from what it expects."""
        model, tables = places.node(test.parents[0]), dict(places.tables)
        unlike = places.unlike_in_unit_tests(model)
        if unlike or any((test.overrides or {}).values()):
            raise NeedsSpark(f"it overrides {', '.join(unlike) or 'variables or macros'}")
        for number, fixture in enumerate(test.given):
            node = places.read_by(fixture["input"])
            if places.key(node.unique_id) not in self.built:
                raise NeedsSpark(f"it reads {node.name}")
            table, tables[node.table] = tables[node.table], f"memory.fixtures.input_{number}"
            self._fill(tables[node.table], f"select * from {table}", fixture["rows"])
        sql = translate(model.compiled_code or "", tables, are_bounds_open=True)
        self.run(f"create or replace table fixtures.actual as {sql}")
        expected = test.expect["rows"]
        named = {f'"{name}"': None for row in expected for name in row} if isinstance(expected, list) else {}
        actual, expects = (f"select {', '.join(named) or '*'} from fixtures.{side}" for side in ("actual", "expected"))
        self._fill("fixtures.expected", actual, expected)
        differing = f"(({actual}) except all ({expects})) union all (({expects}) except all ({actual}))"
        return int(self.run(f"select count(*) from ({differing})")[0][0])

    def _fill(self, table: str, query: str, rows: object) -> None:
        """Make a table with the columns of a query and the rows of a fixture, of which others are NULL."""
        if not isinstance(rows, list):
            raise NeedsSpark("a fixture is SQL or a file")
        self.run(f"create or replace table {table} as {query} limit 0")
        kinds = column_types(self.database, table)
        for row in rows:
            values = {name: str(value) for name, value in row.items() if value is not None}
            for kind in (kinds.get(name, "") for name in values):
                if is_nested(kind):
                    raise NeedsSpark(f"a fixture has a value of type {kind}")
            columns = ", ".join(f'{"encode(?)" if kinds.get(name) == "BLOB" else "?"} as "{name}"' for name in values)
            try:
                select = f"by name select {columns}" if values else "default values"
                self.database.execute(f"insert into {table} {select}", [*values.values()])
            except duckdb.ConversionException:
                raise NeedsSpark("DuckDB lacks a value of a fixture") from None


def why(error: Exception) -> str:
    """Return why DuckDB did not run something, without a value."""
    is_of_names = isinstance(error, (NeedsSpark, duckdb.BinderException, duckdb.CatalogException))
    name = type(error).__name__
    return str(error).partition("\n")[0] if is_of_names else f"fails on the sample data ({name})"


def _seed(node: Node, file: Path) -> str:
    with file.open(newline="") as lines:
        header = next(csv.reader(lines))
    types = {**{name: one.data_type for name, one in node.columns.items()}, **node.config.get("column_types", {})}
    if any(not types.get(name) for name in header):
        raise NeedsSpark("its columns have no declared types")
    columns = {name: exp.DataType.build(types[name], dialect="spark").sql("duckdb") for name in header}
    return f"select * from read_csv('{file}', header = true, nullstr = ['', 'null'], columns = {columns})"


def build(manifest: DbtManifest, root: Path, sample: Path) -> tuple[Engine, Places]:
    """Build all that is there before a change, while dbt compiles the change."""
    engine, before = Engine(sample), Places(manifest, root)
    engine.build(before, [one.unique_id for one in manifest.nodes.values() if one.resource_type in REFERENCED])
    return engine, before


def of_all(manifest: DbtManifest, project: Project, sample: Path) -> QuickReview:
    """Review a compiled project against nothing: each model and test is new."""
    nodes, unit_tests = manifest.nodes, manifest.unit_tests
    names = {one.unique_id: one.name for one in (*nodes.values(), *unit_tests.values())}
    scope = ReviewScope(added=sorted(one for one, node in nodes.items() if node.resource_type in (*REFERENCED, "test")))
    of_code = Review("nothing", project.commit() or "unknown", False, scope, [], names, {})
    nothing, after = Places(DbtManifest({}, {}), project.directory), Places(manifest, project.directory)
    return review(of_code, Engine(sample), nothing, after)


def review(of_code: Review, engine: Engine, before: Places, changed_project: Places) -> QuickReview:
    """Add to a review of code what DuckDB finds on the sample data."""
    names, scope = of_code.names, of_code.scope
    tests = [scope.tests(places.manifest) for places in (before, changed_project)]
    nodes = {**before.manifest.nodes, **changed_project.manifest.nodes}
    reached = frozenset(one for one in scope.reached if nodes[one].resource_type in REFERENCED)
    after = replace(changed_project, name=AFTER, reached=reached)
    parents = [parent for test in tests[1] for parent in test.parents]
    inputs = [one for parent in parents for one in after.node(parent).parents]
    engine.build(after, sorted({*parents, *inputs, *(reached & after.manifest.nodes.keys())}))
    old, new = (
        {one: engine.errors.get(places.key(one), "built") for one in reached & places.manifest.nodes.keys()}
        | engine.answers(places, of_side)
        for places, of_side in zip((before, after), tests, strict=True)
    )
    undecided, broken, answers, tables = {}, {}, {}, []
    for one, outcome in sorted(new.items()):
        former = old.get(one, "")
        is_wrong = isinstance(outcome, WRONG_VALUES)
        if isinstance(former, Exception):
            undecided[one] = why(former)
        # What is new and fails may be right in Spark.
        elif isinstance(outcome, Exception) and not (is_wrong and former):
            undecided[one] = why(outcome)
        elif one not in reached:
            answers[one] = f"error: {why(outcome)}" if isinstance(outcome, Exception) else outcome
            if is_wrong or (_fails(answers[one]) and not _fails(former)):
                broken[one] = f"test answers {answers[one]}"
        elif isinstance(outcome, Exception):
            broken[one] = why(outcome)
        elif former and after.node(one).materialized != "ephemeral":
            try:
                tables.append(_compared(engine, one, before, after))
            except duckdb.Error as error:
                undecided[one] = f"its columns are not compared, {why(error)}"
    unseen = _unseen({one: reason for one, reason in scope.changed.items() if one in reached}, before, after)
    undecided |= {one: text for one, text in unseen.items() if one not in broken}
    needs_spark = {one: f"needs Spark: {text}" for one, text in sorted(undecided.items())}
    changed = {*scope.changed, *scope.added}
    more = {
        "findings": [
            *(Finding("breaking", names[one], text) for one, text in broken.items()),
            *of_code.findings,
            *(Finding("note", names[one], text) for one, text in needs_spark.items() if one not in changed),
        ],
        "not_compared": of_code.not_compared | {names[one]: needs_spark[one] for one in needs_spark if one in changed},
        "tests": {names[one]: (old[one], text) for one, text in answers.items() if old.get(one, text) != text},
        "tables": tables,
        "built": sum(name == AFTER for name, _ in engine.built),
        "tested": len(answers),
    }
    return QuickReview(**vars(of_code) | more)


def _unseen(changed: Mapping[str, str], before: Places, after: Places) -> dict[str, str]:
    """Return what of changed nodes no rows show that are built from the beginning."""
    unseen = {one: reason for one, reason in changed.items() if not reason.startswith(SHOWN_BY_SQL)}
    for one in changed:
        bounds = [increments(places.node(one).compiled_code or "") for places in (before, after)]
        if bounds[0] != bounds[1]:
            unseen[one] = "it is incremental, and reads other batches or keys"
    return unseen


def _fails(answer: str) -> bool:
    return answer.startswith(("error", "fail"))


def _compared(engine: Engine, unique_id: str, before: Places, after: Places) -> TableReport:
    node = after.node(unique_id)
    old, new = (places.tables[places.node(unique_id).table] for places in (before, after))
    change = table_diff(engine.database, old, new, contracts.key(node, after.manifest))
    columns = {name: replace(column, total=None) for name, column in change.columns.items()}
    return TableReport(node.name, replace(change, columns=columns))
