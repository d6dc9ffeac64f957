"""`lakehouse review --quick`: what a change reaches, before and after it, in DuckDB on landed sample data.

Red is early: rows and tests are those of the changed SQL. Green is what Spark builds: nothing is called clean here, and
what DuckDB cannot run as Spark does is named.
"""

import ast
import csv
import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import duckdb
from sqlglot import exp

from python_common import private_files
from python_common.config.environment import PROJECT_ROOT, home
from python_common.errors import UserError
from python_dbt import compile as dbt_compile
from python_dbt.manifest import REFERENCED, DbtManifest, Node
from python_dbt.pii.proof import PADS
from python_dev.review import contracts, data
from python_dev.review.contracts import Finding
from python_dev.review.duckdb_sql import MACROS, REFUSED, NeedsSpark, increments, translate
from python_dev.review.report import Review, TableReport

SAMPLE = PROJECT_ROOT / "target" / "sample"
"""The landed sample data: `<schema>.<table>.parquet` for each bronze table, and `weeks`, comma separated."""
ERROR = "error"
# Errors of ANSI mode. Others may be DuckDB's alone, such as types that it does not compare.
WRONG_VALUES = (duckdb.ConversionException, duckdb.InvalidInputException, duckdb.OutOfRangeException)
BEFORE, AFTER = "before", "after"
# The sample data has no persons: any key does.
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


def weeks() -> str:
    """Return the weeks of the sample data, which both sides export; a UserError if there is no sample data."""
    try:
        return (SAMPLE / "weeks").read_text().strip()
    except FileNotFoundError:
        raise UserError("There is no landed sample data", "Run `make sample`, which lands it once") from None


def cache(commit: str) -> tuple[Path, str]:
    """Return the directory that keeps what dbt has parsed, and a name for what decides on the manifest of a commit."""
    deciding = (Path(dbt_compile.__file__), PROJECT_ROOT / "uv.lock")
    state = "\n".join([commit, weeks(), *(file.read_text() for file in deciding)])
    return private_files.directory(home() / "review-cache"), hashlib.sha256(state.encode()).hexdigest()


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

    def tables(self) -> dict[str, str]:
        """Return DuckDB's table of each table of Spark."""
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
        seen, waiting = set[str](), [*model.macros]
        while waiting:
            if (name := waiting.pop()) in self.manifest.macros and name not in seen:
                seen.add(name)
                waiting += self.manifest.macros[name].macros
        macros = [self.manifest.macros[name] for name in seen]
        return sorted({one.name for one in macros if "'unit_test'" in one.macro_sql} - HONOURED)


@dataclass
class Engine:
    """DuckDB with the sample data, in which nodes are built, by database and unique id.

    `reasons` are why a node is not built, and `roots` the names of the nodes behind it that this begins at; the SQL of
    those that are `failed` is wrong on the sample data.
    """

    sample: Path
    pii_key: str = KEY
    database: duckdb.DuckDBPyConnection = field(default_factory=duckdb.connect)
    built: set[tuple[str, str]] = field(default_factory=set)
    failed: set[tuple[str, str]] = field(default_factory=set)
    reasons: dict[tuple[str, str], str] = field(default_factory=dict)
    roots: dict[tuple[str, str], list[str]] = field(default_factory=dict)

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
            if key in self.built or key in self.reasons:
                continue
            self.build(places, node.parents)
            if roots := self.unbuilt(places, node.parents):
                self.reasons[key], self.roots[key] = f"made of {', '.join(roots)}", roots
                continue
            try:
                self._make(places, node)
                self.built.add(key)
            except (NeedsSpark, duckdb.Error) as error:
                self.reasons[key], self.roots[key] = why(error), [node.name]
                self.failed |= {key} if isinstance(error, WRONG_VALUES) else set()

    def unbuilt(self, places: Places, unique_ids: Iterable[str]) -> list[str]:
        """Return the names of the nodes at which it begins that some are not built."""
        return sorted({name for one in unique_ids for name in self.roots.get(places.key(one), ())})

    def _make(self, places: Places, node: Node) -> None:
        if node.materialized == "ephemeral":
            return
        file = self.sample / f"{node.table}.parquet"
        if node.resource_type == "source" and file.exists():
            rows = f"select * from read_parquet('{file}')"
        elif node.resource_type == "seed":
            rows = _seed(node, places.root / node.original_file_path)
        elif node.resource_type == "model" and node.materialized in ("view", "table", "incremental"):
            rows = translate(node.compiled_code or "", places.tables())
        else:
            raise NeedsSpark(f"it is a {node.materialized or node.resource_type} without sample data")
        table = places.tables()[node.table]
        self.run(f"create schema if not exists {table.rpartition('.')[0]}; create table {table} as {rows}")
        # DuckDB counts and adds up integers in a type that Spark lacks.
        for column, kind in self.columns(table).items():
            if kind == "HUGEINT":
                self.run(f'alter table {table} alter "{column}" type bigint')

    def columns(self, table: str) -> dict[str, str]:
        """Return the types of a table's columns."""
        return {name: kind for name, kind, *_ in self.run(f"describe {table}")}

    def answers(self, places: Places, tests: Iterable[Node]) -> tuple[dict[str, str], dict[str, str]]:
        """Return by unique id the answers of tests, as dbt has them, and why others have none."""
        answers, refused = {}, {}
        for test in tests:
            word = "warn" if str(test.config.get("severity", "")).lower() == "warn" else "fail"
            try:
                rows = (self._differing if test.resource_type == "unit_test" else self._failing)(places, test)
                answers[test.unique_id] = f"{word} {rows}" if rows else "pass"
            except WRONG_VALUES as error:
                answers[test.unique_id] = f"{ERROR}: {why(error)}"
            except (NeedsSpark, duckdb.Error) as error:
                refused[test.unique_id] = why(error)
        return answers, refused

    def _failing(self, places: Places, test: Node) -> int:
        if behind := self.unbuilt(places, test.parents):
            raise NeedsSpark(f"it reads {', '.join(behind)}")
        sql = f"select {test.fail_calc} as failures from (\n{test.compiled_code}\n) as failing"
        return int(self.run(translate(sql, places.tables()))[0][0] or 0)

    def _differing(self, places: Places, test: Node) -> int:
        """Return how many rows of a unit test's model differ from what it expects."""
        model, tables = places.node(test.parents[0]), places.tables()
        unlike = places.unlike_in_unit_tests(model)
        if unlike or any((test.overrides or {}).values()):
            raise NeedsSpark(f"it overrides {', '.join(unlike) or 'variables or macros'}")
        for number, fixture in enumerate(test.given):
            node = places.read_by(fixture["input"])
            if places.key(node.unique_id) not in self.built:
                raise NeedsSpark(f"it reads {node.name}")
            rows = _fixture(fixture["rows"], self.columns(tables[node.table]))
            tables[node.table] = f"memory.fixtures.input_{number}"
            try:
                self.run(f"create or replace table {tables[node.table]} as {rows}")
            except duckdb.ConversionException:
                raise NeedsSpark("DuckDB lacks a value of a fixture") from None
        sql = translate(model.compiled_code or "", tables, are_bounds_open=True)
        self.run(f"create or replace table fixtures.actual as {sql}")
        expected = test.expect["rows"]
        named = {name for row in expected for name in row} if isinstance(expected, list) else set()
        types = {name: kind for name, kind in self.columns("fixtures.actual").items() if name in named or not named}
        self.run(f"create or replace table fixtures.expected as {_fixture(expected, types)}")
        columns = ", ".join(f'"{name}"' for name in types)
        actual, expects = (f"(select {columns} from fixtures.{side})" for side in ("actual", "expected"))
        differing = f"({actual} except all {expects}) union all ({expects} except all {actual})"
        return int(self.run(f"select count(*) from ({differing})")[0][0])


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


def _fixture(rows: object, types: Mapping[str, str]) -> str:
    """Return the rows of a unit test, typed as the columns of a table."""
    if not isinstance(rows, list):
        raise NeedsSpark("a fixture is SQL or a file")
    selects = []
    for row in ({}, *rows):
        selects.append("select " + ", ".join(f'{_literal(row.get(name), types[name])} as "{name}"' for name in types))
    # Without rows it has columns.
    return " union all ".join([f"{selects[0]} where false", *selects[1:]])


def _literal(value: object, kind: str) -> str:
    if value is None:
        return f"cast(null as {kind})"
    if kind.startswith(("STRUCT", "MAP")) or kind.endswith("]"):
        raise NeedsSpark(f"a fixture has a value of type {kind}")
    quoted = "'" + str(value).replace("'", "''") + "'"
    return f"encode({quoted})" if kind == "BLOB" else f"cast({quoted} as {kind})"


def build(manifest: DbtManifest, root: Path) -> tuple[Engine, Places]:
    """Build all that is there before a change; the change need not be known yet."""
    engine, before = Engine(SAMPLE), Places(manifest, root)
    engine.build(before, [one.unique_id for one in manifest.nodes.values() if one.resource_type in REFERENCED])
    return engine, before


def review(
    of_code: Review, engine: Engine, before: Places, changed_project: Places, tests: Sequence[Sequence[Node]]
) -> QuickReview:
    """Add to a review of code what DuckDB finds on the sample data; `tests` are those of each side."""
    names, scope = of_code.names, of_code.scope
    nodes = {**before.manifest.nodes, **changed_project.manifest.nodes}
    reached = frozenset(one for one in scope.reached if nodes[one].resource_type in REFERENCED)
    after = replace(changed_project, name=AFTER, reached=reached)
    parents = [parent for test in tests[1] for parent in test.parents]
    inputs = [one for parent in parents for one in after.node(parent).parents]
    engine.build(after, sorted({*parents, *inputs, *(reached & after.manifest.nodes.keys())}))
    answers: list[dict[str, str]] = []
    refused: dict[str, str] = {}
    for places, of_side in zip((before, after), tests, strict=True):
        of_tests, why_none = engine.answers(places, of_side)
        answers.append(of_tests)
        refused |= why_none
    # What fails before the change, too, or is new, may be right in Spark.
    refused |= {one: text for one, text in answers[0].items() if text.startswith(ERROR)}
    refused |= {one: text for one, text in answers[1].items() if text.startswith(ERROR) and one not in answers[0]}
    answers = [{one: text for one, text in of_side.items() if one not in refused} for of_side in answers]
    refused |= {one: text for (_, one), text in engine.reasons.items() if one in reached}
    broken = sorted(one for name, one in engine.failed if name == AFTER and before.key(one) in engine.built)
    failing = [one for one, text in sorted(answers[1].items()) if _fails(text) and not _fails(answers[0].get(one, ""))]
    unseen = {one: text for one, text in scope.changed.items() if one in reached and not text.startswith(SHOWN_BY_SQL)}
    for one in reached & scope.changed.keys():
        old, new = (increments(places.node(one).compiled_code or "") for places in (before, after))
        unseen |= {one: "it is incremental, and reads other batches or keys"} if old != new else {}
    undecided = {**refused, **unseen}
    changed = {*scope.changed, *scope.added, *unseen}
    values = {one.name: getattr(of_code, one.name) for one in fields(of_code)}
    values["findings"] = [
        *(Finding("breaking", names[one], engine.reasons[AFTER, one]) for one in broken),
        *(Finding("breaking", names[one], f"test answers {answers[1][one]}") for one in failing),
        *of_code.findings,
        *(Finding("note", names[one], f"needs Spark: {undecided[one]}") for one in sorted(undecided.keys() - changed)),
    ]
    values["not_compared"] = {
        **of_code.not_compared,
        **{names[one]: f"needs Spark: {undecided[one]}" for one in sorted(undecided.keys() & changed - {*broken})},
    }
    values["tests"] = {
        names[one]: (answers[0][one], text)
        for one, text in sorted(answers[1].items())
        if answers[0].get(one, text) != text
    }
    values["tables"] = [*_tables(engine, before, after)]
    built = sum(name == AFTER for name, _ in engine.built)
    return QuickReview(**values, built=built, tested=len(answers[1]))


def _fails(answer: str) -> bool:
    return answer.startswith((ERROR, "fail"))


def _tables(engine: Engine, before: Places, after: Places) -> Iterator[TableReport]:
    for unique_id in sorted(after.reached):
        keys = {places.key(unique_id) for places in (before, after)}
        if keys <= engine.built and after.node(unique_id).materialized != "ephemeral":
            node = after.node(unique_id)
            old, new = (places.tables()[places.node(unique_id).table] for places in (before, after))
            change = data.compare_relations(engine.database, old, new, contracts.key(node, after.manifest))
            columns = {name: replace(column, total=None) for name, column in change.columns.items()}
            yield TableReport(node.name, replace(change, columns=columns))
