"""Reads a staged CSV with DuckDB and compares it with the Iceberg table, cell by cell, before anyone may see it.

It shares no code with the unload: the table comes through PyIceberg, and the text each cell must have is derived here a
second time, formula guard included.
"""

import csv
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb

from lakehouse.errors import UserError
from python_export.source import Column, Source

MEMORY_LIMIT = "1GB"
FORMULA = r"^[=+\-@\x09\x0d\x00\x{ff1d}\x{ff0b}\x{ff0d}\x{ff20}]"


@dataclass(frozen=True)
class Facts:
    """What a verified file holds.

    `nulls` has every column, `control_totals` the sum of each numeric column as exact decimal text, `formula_escaped`
    the number of guarded cells of each text column.
    """

    rows: int
    nulls: dict[str, int]
    control_totals: dict[str, str]
    formula_escaped: dict[str, int]


def verify(file: Path, source: Source, scratch: Path) -> Facts:
    """Compare a file with its source and return its facts; `scratch` is a directory for what outgrows memory.

    Raises:
        UserError: the file differs from the table. It tells how, by counts and column names, never by values.
    """
    scratch.mkdir(parents=True, exist_ok=True)
    config = {"memory_limit": MEMORY_LIMIT, "threads": 2}
    try:
        with duckdb.connect(str(scratch / "verify.duckdb"), config=config) as database:
            differences = _read_file(database, file, source.columns)
            if not differences:
                _read_table(database, source)
                differences = _compare(database, source)
            if not differences:
                return _facts(database, source.columns)
    except duckdb.Error as error:
        # The message may quote a value; its kind does not.
        raise UserError(
            f"{source.dataset.name}: DuckDB could not compare the file with the table ({type(error).__name__})",
            f"It works in {MEMORY_LIMIT} of memory and on disk beside the file; see that there is room",
        ) from None
    raise UserError(
        f"{source.dataset.name}: the unloaded file differs from the table, so nothing is published: "
        + "; ".join(differences),
        "Run the export again; if it fails again, the table or the unload is wrong",
    )


def _read_file(database: duckdb.DuckDBPyConnection, file: Path, columns: tuple[Column, ...]) -> list[str]:
    """Load the file as text, one numbered line per row, and return why that failed."""
    names = [column.name for column in columns]
    with file.open(newline="", encoding="utf-8", errors="replace") as stream:
        header = next(csv.reader(stream), [])
    if header != names:
        return ["the header does not name the table's columns"]
    with file.open("rb") as stream:
        stream.seek(-1, 2)
        if stream.read() != b"\n":
            return ["the last row is cut off"]
    types = ", ".join(f"{_text(name)}: 'varchar'" for name in names)
    try:
        database.execute(
            f"""
            create table staged as
            select row_number() over () as "line number", *
            from read_csv(
                {_text(str(file))}, columns = {{{types}}}, auto_detect = false, header = true, parallel = false,
                delim = ',', quote = '"', escape = '"', nullstr = '', allow_quoted_nulls = false
            )
            """
        )
    except duckdb.Error as error:
        # Only the first line: the others quote the row.
        return [f"DuckDB cannot read it ({str(error).splitlines()[0]})"]
    return []


def _read_table(database: duckdb.DuckDBPyConnection, source: Source) -> None:
    """Load the table twice: `source` with its types, `expected` as the text and order the file must have."""
    reader = source.table.scan(snapshot_id=source.snapshot_id).to_arrow_batch_reader()
    database.register("reader", reader)
    database.execute("create table source as select * from reader")
    database.unregister("reader")
    order = ", ".join(f"{_name(name)} asc nulls first" for name in source.dataset.order_by)
    texts = ", ".join(f"{_expected_text(column)} as {_name(column.name)}" for column in source.columns)
    database.execute(
        f'create table expected as select row_number() over (order by {order}) as "line number", {texts} from source'
    )


def _compare(database: duckdb.DuckDBPyConnection, source: Source) -> list[str]:
    """Return every way in which the file differs from the table."""
    in_file, in_table = (_value(database, f"select count(*) from {table}") for table in ("staged", "expected"))
    differences = []
    if in_file != in_table:
        differences.append(f"{in_file} rows instead of {in_table}")

    key = ", ".join(_name(name) for name in source.dataset.key)
    keys = f"select {key} from staged", f"select {key} from expected"
    for what, query in (
        ("keys missing", f"({keys[1]}) except ({keys[0]})"),
        ("keys too many", f"({keys[0]}) except ({keys[1]})"),
        ("keys more than once", f"{keys[0]} group by all having count(*) > 1"),
    ):
        if found := _value(database, f"select count(*) from ({query})"):
            differences.append(f"{found} {what} ({', '.join(source.dataset.key)})")

    for column in source.columns:
        name = _name(column.name)
        if column.is_numeric:
            # try_cast: a damaged cell adds nothing, and the cell comparison names it.
            total = _value(database, f"select sum(try_cast({name} as {column.type})) from staged")
            if total != _value(database, f"select sum({name}) from source"):
                differences.append(f"another control total of {column.name}")
        if in_file == in_table:
            unequal = _value(
                database,
                f"""
                select count(*) from staged inner join expected using ("line number")
                where staged.{name} is distinct from expected.{name}
                """,
            )
            if unequal:
                differences.append(f"{unequal} cells of {column.name}")
    return differences


def _facts(database: duckdb.DuckDBPyConnection, columns: tuple[Column, ...]) -> Facts:
    names = {column.name: _name(column.name) for column in columns}
    texts = [column.name for column in columns if column.is_text]
    numbers = [column.name for column in columns if column.is_numeric]
    return Facts(
        rows=_value(database, "select count(*) from staged"),
        nulls={name: _value(database, f"select count(*) - count({names[name]}) from staged") for name in names},
        control_totals={
            name: _value(database, f"select cast(coalesce(sum({names[name]}), 0) as varchar) from source")
            for name in numbers
        },
        formula_escaped={
            name: _value(database, f"select count(*) from source where regexp_matches({names[name]}, '{FORMULA}')")
            for name in texts
        },
    )


def _expected_text(column: Column) -> str:
    name = _name(column.name)
    if column.is_text:
        return f"case when regexp_matches({name}, '{FORMULA}') then '''' || {name} else {name} end"
    if column.type == "timestamp":
        # A time finer than the format's milliseconds keeps its digits here and so counts as a difference.
        micros = f"strftime(make_timestamp(epoch_us({name})), '%Y-%m-%dT%H:%M:%S.%f')"
        return f"regexp_replace({micros}, '000$', '') || 'Z'"
    return f"cast({name} as varchar)"


def _value(database: duckdb.DuckDBPyConnection, sql: str) -> Any:
    return database.execute(sql).fetchone()[0]


def _name(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _text(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
