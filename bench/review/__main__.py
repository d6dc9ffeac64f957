"""`python -m bench.review`: what a review sees of planted changes and how fast, against dbt, sqlglot and SQLMesh."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar

import duckdb
import pyarrow as pa
import sqlglot
import typer
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table
from sqlglot.diff import diff

from bench import run, table_of
from python_common.config.environment import PROJECT_ROOT
from python_common.output import console
from python_dbt.compile import COPIED, compiled_manifest
from python_dbt.manifest import REFERENCED, DbtManifest
from python_dev.review import data, scope
from python_dev.review.scope import Side

Result = TypeVar("Result")
MARTS, MASKED = "models/marts", "models/intermediate/masked"


@dataclass(frozen=True)
class Change:
    """A planted change: a text of a file, and what replaces it; whether rows can differ by it."""

    name: str
    file: str
    old: str
    new: str
    has_effect: bool = True


CHANGES = (
    Change("join type", f"{MARTS}/dim_products.sql", "left join products", "inner join products"),
    Change("filter edge", "macros/retail/is_paid_in_time.sql", "interval 96 hours", "interval 95 hours"),
    Change(
        "deduplication order",
        "models/intermediate/deduplicated/int_trades_deduplicated.sql",
        "'kafka_timestamp', 'kafka_generation'",
        "'kafka_generation', 'kafka_timestamp'",
    ),
    Change("week border", "macros/weeks.sql", "weekofyear({{ moment }})", "weekofyear({{ moment }} - interval 1 day)"),
    Change("cast", "models/staging/brokerage/stg_brokerage__trades.sql", "decimal(28, 2)", "decimal(28, 1)"),
    Change("NULL handling", f"{MARTS}/dim_products.sql", "coalesce(products.is_deleted, false)", "products.is_deleted"),
    Change(
        "mask removed",
        f"{MASKED}/int_customers_masked.sql",
        "{{ masked('stg_shop__customers', 'customer_name', as='initials') }} as",
        "customer_name as",
    ),
    Change("suppressed group", "macros/is_suppressed.sql", "~ ' < ' ~", "~ ' <= ' ~"),
    Change("format", f"{MARTS}/fct_order_lines.sql", "with affected as (", "WITH\naffected   AS ( -- keys", False),
    Change("macro comment", "macros/incremental/bounds.sql", "{#", "{# Another comment.", False),
)
SQLMESH = "sqlmesh==0.236.4"
# Of the table of which one is rewritten.
FILES = 20
ROWS = "select key, v::double as v from (values {}) as rows (key, v)"
# Two states of a table with `key`, by what differs, and how many rows do.
STATES = (
    ("a value", "('a', 1), ('b', 2)", "('a', 1), ('b', 3)", 1),
    ("a value by 0.0004", "('a', 1), ('b', 2)", "('a', 1), ('b', 2.0004)", 1),
    ("a value of a NULL key", "(null, 1), ('b', 2)", "(null, 3), ('b', 2)", 1),
    ("one row of two equal ones is gone", "('a', 1), ('a', 1)", "('a', 1)", 1),
    ("one of two rows with a key", "('a', 1), ('a', 2)", "('a', 1), ('a', 3)", 1),
    ("nothing, a key is there twice", "('a', 1), ('a', 2)", "('a', 2), ('a', 1)", 0),
    ("nothing, a value is NaN", "('a', 'NaN'::double), ('b', 2)", "('b', 2), ('a', 'NaN'::double)", 0),
    ("0.0 becomes -0.0, which is equal", "('a', 0), ('b', 2)", "('a', '-0.0'::double), ('b', 2)", 0),
)


def main(
    rows: Annotated[int, typer.Option(min=0, help="Rows of the compared table; 0 for the changes alone.")] = 5_000_000,
    changed: Annotated[float, typer.Option(help="The share of its rows that differ.")] = 0.0001,
) -> None:
    """Print what each program would build again, then the seconds of comparing two states of a table."""
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        compare_states(Path(name) / "states")
        if rows:
            compare_tables(Path(name) / "lake", rows, changed)
        compare_changes(Path(name))


def compare_changes(directory: Path) -> None:
    """Print the models, snapshots and seeds that each program selects of each change."""
    before = copied(directory / "before")
    base, seconds, _ = timed(lambda: side(before))
    dbt(before, "parse", "--target-path", str(before / "state"))
    console.print(f"one side compiled in {seconds:.1f} s\n")
    table = table_of("change", "can have an effect", "review", "dbt state:modified+", "sqlglot diff", "review, s")
    for change in CHANGES:
        after = copied(directory / change.name.replace(" ", "_"))
        text = (after / change.file).read_text()
        if change.old not in text:
            raise SystemExit(f"error: {change.file} has no '{change.old}'")
        (after / change.file).write_text(text.replace(change.old, change.new))

        def reviewed(after: Path = after) -> tuple[Side, scope.ReviewScope]:
            compiled = side(after)
            return compiled, scope.compare(base, compiled)

        (compiled, result), seconds, _ = timed(reviewed)
        nodes = compiled.manifest.nodes
        ours = [name for name in (*result.changed, *result.affected) if nodes[name].resource_type in REFERENCED]
        listed = dbt(
            *(after, "ls", "--select", "state:modified+", "--state", str(before / "state")),
            *("--resource-type", "model", "snapshot", "seed", "--output", "name"),
        ).split()
        theirs = [line for line in listed if line in {node.name for node in nodes.values()}]
        by_tree = selected_by_diff(base.manifest, compiled.manifest)
        effect = "yes" if change.has_effect else "no"
        table.add_row(change.name, effect, str(len(ours)), str(len(theirs)), str(len(by_tree)), f"{seconds:.1f}")
    console.print(table)


def side(directory: Path) -> Side:
    """Compile a copy of the project."""
    return scope.side(compiled_manifest(directory), directory)


def copied(directory: Path) -> Path:
    """Copy what dbt reads of the project."""
    for name in (*COPIED, "macros"):
        shutil.copytree(PROJECT_ROOT / name, directory / name)
    for name in (".sqlfluff", "dbt_project.yml", "profiles.yml"):
        shutil.copy(PROJECT_ROOT / name, directory / name)
    return directory


def dbt(directory: Path, *arguments: str) -> str:
    """Run a dbt command that needs no warehouse, and return its output."""
    command = [str(Path(sys.executable).with_name("dbt")), "--quiet", "--no-use-colors", *arguments]
    return subprocess.run(command, cwd=directory, capture_output=True, text=True, check=True).stdout


def selected_by_diff(before: DbtManifest, after: DbtManifest) -> set[str]:
    """Return the nodes whose compiled SQL sqlglot's diff distinguishes, and all that are made of them."""
    different = {
        name
        for name, node in after.nodes.items()
        if node.resource_type in REFERENCED
        and node.compiled_code
        and before.nodes[name].compiled_code != node.compiled_code
        and diff(
            sqlglot.parse_one(before.nodes[name].compiled_code or "", dialect="spark"),
            sqlglot.parse_one(node.compiled_code, dialect="spark"),
            delta_only=True,
        )
    }
    made = {name for name, node in after.nodes.items() if node.resource_type in REFERENCED}
    return different | {name for name in made if different & {*after.ancestors(name)}}


def compare_states(directory: Path) -> None:
    """Print how many rows differ between small tables, and what each program counts."""
    catalog = lake(directory)
    tables = [
        tuple(filled(catalog, f"{side}{at}", ROWS.format(state[n])) for n, side in ((1, "before"), (2, "after")))
        for at, state in enumerate(STATES)
    ]
    table = table_of("what differs", "rows that do", "review", "SQLMesh table_diff")
    for state, (before, after), theirs in zip(STATES, tables, by_sqlmesh(tables), strict=True):
        difference = data.compare(before, after, ["key"], directory / "scratch")
        counted = difference.added + difference.removed + difference.changed
        table.add_row(state[0], str(state[3]), str(counted), "fails" if theirs[0] is None else str(theirs[0]))
    console.print(table)
    console.print()


def by_sqlmesh(pairs: list[tuple[Table, ...]]) -> list[tuple[int | None, float]]:
    """Return how many rows differ by SQLMesh's table_diff, None where it fails, and its seconds."""
    listed = [[files(table) for table in pair] for pair in pairs]
    command = [os.environ.get("UV", "uv"), "run", "--quiet", "--no-project", "--with", SQLMESH]
    script = str(Path(__file__).with_name("table_diff.py"))
    # The first comparison loads what the others have then.
    known = json.dumps([listed[0], *listed])
    done = subprocess.run([*command, script], input=known, capture_output=True, text=True, check=True)
    return [(one["differ"], one["seconds"]) for one in json.loads(done.stdout)[1:]]


def files(table: Table) -> list[str]:
    """Return the paths of a table's files."""
    return [task.file.file_path.removeprefix("file://") for task in table.scan().plan_files()]


def lake(directory: Path) -> SqlCatalog:
    """Make an empty lake in a new directory."""
    directory.mkdir()
    catalog = SqlCatalog("lake", uri=f"sqlite:///{directory}/catalog.db", warehouse=f"file://{directory}")
    catalog.create_namespace("marts")
    return catalog


def compare_tables(directory: Path, rows: int, changed: float) -> None:
    """Print seconds and bytes read of comparing a table with two states of it in which some rows differ.

    In one they are in all files; in the other in one file of many, as after an increment of recent rows.
    """
    catalog = lake(directory)
    columns = ", ".join(f"cast(hash(id, {number}) % 1000 as bigint) as c{number}" for number in range(8))
    every = round(1 / changed)
    texts = "concat('shop-', id) as key, concat('customer ', id % 100000) as customer"
    before = filled(catalog, "before", f"select {texts}, {columns} from range({rows}) as rows (id)")
    amount = f"if(id % {every} = 0, c0 + 1, c0) as c0"
    after = filled(
        catalog,
        "after",
        f"select key, customer, {amount}, c1, c2, c3, c4, c5, c6, c7 from"
        f" (select id, {texts}, {columns} from range({rows}) as rows (id))",
    )
    scratch = directory / "scratch"
    compare_both(f"{rows:,} rows, one of {every:,} changed, in all files", before, after, scratch, same_snapshot=True)
    # A multiple of DuckDB's vectors, so that no day is in two files.
    size = rows // FILES // 2048 * 2048
    by_day = f"select {texts}, {columns}, cast(id // {size} as int) as day from range({FILES * size}) as rows (id)"
    old = filled(catalog, "recent", by_day, size)
    new = catalog.load_table("marts.recent")
    last = f"{by_day} where id >= {(FILES - 1) * size}"
    with duckdb.connect() as database:
        is_changed = f"hash(key) % {round(every / FILES)} = 0"
        changes = f"select * replace (if({is_changed}, c0 + 1, c0) as c0) from ({last})"
        new.overwrite(database.sql(changes).to_arrow_table().cast(old.schema().as_arrow()), f"day = {FILES - 1}")
    compare_both(f"{rows:,} rows, about one of {every:,} changed, in one file of {FILES}", old, new, scratch)


def compare_both(title: str, before: Table, after: Table, scratch: Path, same_snapshot: bool = False) -> None:
    """Print what a full join, a review and SQLMesh need for two states of a table."""
    table = table_of("comparison", "seconds", "of a full join", "MB read", "of a full join", "rows that differ")
    joined = timed(lambda: full_join(before, after))
    compared = [("full join of all columns in DuckDB", *joined)]
    compared.append(("review", *timed(lambda: data.compare(before, after, ["key"], scratch).changed)))
    if same_snapshot:
        compared.append(
            ("review, same snapshot", *timed(lambda: data.compare(before, before, ["key"], scratch).changed))
        )
    for name, count, seconds, read in compared:
        of_join = f"{seconds / joined[1]:.2f}", f"{read / 1e6:.1f}", f"{read / joined[2]:.2f}"
        table.add_row(name, f"{seconds:.2f}", *of_join, f"{count:,}")
    [(theirs, seconds)] = by_sqlmesh([(before, after)])
    counted = "fails" if theirs is None else f"{theirs:,}"
    table.add_row("SQLMesh table_diff", f"{seconds:.2f}", f"{seconds / joined[1]:.2f}", "", "", counted)
    console.print(title)
    console.print(table)
    console.print()


def filled(catalog: SqlCatalog, name: str, sql: str, size: int = 1_000_000) -> Table:
    """Make a table of the rows of a query of DuckDB, so many in each file."""
    with duckdb.connect() as database:
        batches: Any = database.sql(sql).to_arrow_reader(size)
        made = catalog.create_table(f"marts.{name}", batches.schema)
        for batch in batches:
            made.append(pa.Table.from_batches([batch]))
    return made


def full_join(before: Table, after: Table) -> int:
    """Return how many keys differ, by joining all rows of both."""
    with duckdb.connect(config={"threads": 2}) as database:
        names = [field.name for field in before.schema().fields if field.name != "key"]
        different = " or ".join(f"one.{name} is distinct from other.{name}" for name in names)
        one, other = (f"read_parquet({files(table)})" for table in (before, after))
        sql = f"select count(*) from {one} one full join {other} other using (key) where {different}"
        [(count,)] = database.execute(sql).fetchall()
    return int(count)


def timed(work: Callable[[], Result]) -> tuple[Result, float, int]:
    """Return a result, the seconds that it took, and the bytes that this process has read for it."""
    start, before = time.monotonic(), bytes_read()
    return work(), time.monotonic() - start, bytes_read() - before


def bytes_read() -> int:
    """Return how many bytes this process has read, from the page cache or not."""
    figures = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(figures["rchar"])


if __name__ == "__main__":
    run(main)
