"""Reads a staged CSV with DuckDB and compares it with the Iceberg table, row by row, before anyone may see it.

It shares no code with the unload: PyIceberg lists the table's files, and the text each cell must have is
derived here a second time, formula guard included. A row is compared by a hash of all its cells, which are not kept;
a file that differs is read again, cell by cell, to report how.
"""

import csv
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import duckdb

from python_common.errors import UserError
from python_export.csv import exact
from python_export.csv.csv_file import MEMORY_LIMIT, name, one_row, reading, rows_of, text
from python_export.csv.snapshot_rows import k_anonymity, load_table, row_hash
from python_export.datasets.snapshot import Column, Source

# The code points of = + - @ tab CR LF, and of the full-width forms.
FORMULA = "61, 43, 45, 64, 9, 13, 10, 65309, 65291, 65293, 65312"
NOT_COMPARED = "DuckDB could not compare the file with the table"
# What a spreadsheet holds, its header included.
SPREADSHEET_ROWS = 1_048_576
SPREADSHEET_CELL = 32_767
# Figures of a table by kind and column; one of whole rows has no column.
Figures = dict[str, dict[str, Any]]


@dataclass(frozen=True)
class Facts:
    """What a verified file holds.

    `nulls` has every column, `control_totals` the sum of each numeric column as exact decimal text, `formula_escaped`
    the number of guarded cells of each text column, `long_cells` those that no spreadsheet holds, `nul_removed` those
    that a NUL was taken out of, of the columns that have some. `suppressed` counts
    the small groups and `key_version` is that of all pseudonyms; they are None without their column.
    `withheld` counts the rows that may hold personal data, by what was found where. `totals_by` has, of each column
    that the model names, by its values the number of rows and the sum of each numeric column as exact decimal text.
    `k_anonymity` is the fewest persons of one combination of quasi-identifiers, None without these or without persons.
    """

    rows: int
    nulls: dict[str, int]
    control_totals: dict[str, str]
    formula_escaped: dict[str, int]
    long_cells: dict[str, int]
    nul_removed: dict[str, int]
    suppressed: int | None
    key_version: str | None
    withheld: dict[str, int]
    totals_by: dict[str, dict[str, dict[str, str]]]
    k_anonymity: int | None = None

    def warnings(self) -> list[str]:
        """Return what a spreadsheet would cut off, and what the file lacks of the table."""
        warnings = [
            f"{cells} cells of {column} are longer than the {SPREADSHEET_CELL:,} characters of a spreadsheet's cell"
            for column, cells in self.long_cells.items()
            if cells
        ]
        warnings += [f"NUL was taken out of {cells} cells of {column}" for column, cells in self.nul_removed.items()]
        if self.rows >= SPREADSHEET_ROWS:
            warnings.insert(0, f"the file has more than the {SPREADSHEET_ROWS:,} rows of a spreadsheet")
        if self.withheld:
            reasons = ", ".join(f"{rows} by {reason}" for reason, rows in self.withheld.items())
            warnings.insert(
                0, f"{sum(self.withheld.values())} rows are withheld, they may hold personal data: {reasons}"
            )
        return warnings


def verify(file: Path, source: Source, scratch: Path) -> Facts:
    """Compare a file with its source, without withheld rows, and return its facts.

    `scratch` is a directory for what outgrows memory.

    Raises:
        UserError: the file differs from the table: by counts and column names, never by values.
    """
    failed = f"{source.dataset.name}: {NOT_COMPARED}"
    room = f"It works in {MEMORY_LIMIT} of memory and on the disk of the file; check that there is room"
    with reading(scratch, failed, room) as database:
        load_table(database, source)
        measured = _measure(database, source)
        differences = _unreadable(database, file, source)
        if not differences and not _is_equal(database, source):
            differences = _differences(database, file, source, measured)
        differences += _outside(database, source)
        if measured["first key"] != measured["last key"]:
            differences.append("pseudonyms of more than one version of the masking key")
        if not differences:
            return _facts(database, source, measured)
    raise UserError(
        f"{source.dataset.name}: the unloaded file differs from the table, so nothing is published: "
        + "; ".join(differences),
        "Run the export again; if it fails again, the table or the unload is wrong",
    )


def exclude_rows_missing_from(file: Path, source: Source, withheld: Mapping[str, int], scratch: Path) -> Source:
    """Treat the rows that a published file lacks as the withheld ones, and return the source without them.

    Raises:
        UserError: their number is not that of the withheld rows, or the file cannot be read.
    """
    key = [column for column in source.columns if column.name in source.dataset.key]
    names = [column.name for column in source.columns]
    failed = f"{source.dataset.name}: {NOT_COMPARED}"
    with reading(scratch, failed, "Restore the file, or the table's files, from a backup") as database:
        load_table(database, source)
        in_file = f"select {_hash(map(name, source.dataset.key))} from {rows_of(file, names)}"
        rows = database.execute(
            f"select {row_hash(source)} from snapshot_rows where {_hash(_texts(source, key))} not in ({in_file})"
        ).fetchall()
    if len(rows) != sum(withheld.values()):
        raise UserError(
            f"{source.dataset.name}: the file lacks {len(rows)} rows of the table, and {sum(withheld.values())} were"
            " withheld",
            "Restore it from a backup",
        )
    return replace(source, without=frozenset(row for (row,) in rows), withheld=dict(withheld))


def is_same(parquet: Path, file: Path, columns: Collection[Column], scratch: Path) -> bool:
    """Return whether a Parquet file, which has no formula guard, has the rows of a CSV of this release in its order."""
    names = [column.name for column in columns]
    cells = f"select {_hash(map(name, names))} as cells from {rows_of(file, names)}"
    texts = f"{_hash(_text_of(column, True) for column in columns)} as texts from read_parquet({text(str(parquet))})"
    sql = f"select count(*) filter (cells is distinct from texts) = 0 from ({cells}) positional join (select {texts})"
    with reading(scratch, f"DuckDB could not compare {parquet.name}", "See that there is room on disk") as database:
        try:
            return one_row(database, sql) == (True,)
        except duckdb.OutOfMemoryException:
            raise
        except duckdb.Error:
            return False


def _measure(database: duckdb.DuckDBPyConnection, source: Source) -> Figures:
    figures: dict[tuple[str, str], str] = {("rows", ""): "count(*)"}
    for column in source.columns:
        cell = name(column.name)
        figures["cells", column.name] = f"count({cell})"
        if column.is_numeric:
            figures["total", column.name] = exact.total(cell, column)
        if column.is_text:
            figures["guarded", column.name] = (
                f"count(*) filter ({_text_of(column, source.guards_quotes)} is distinct from {_clean(cell)})"
            )
            figures["nul", column.name] = f"count(*) filter ({_clean(cell)} is distinct from {cell})"
            figures["long", column.name] = f"count(*) filter ({_is_long(cell)})"
        if column.name == source.dataset.suppressed:
            figures["suppressed", ""] = f"count(*) filter ({cell})"
        if column.name == "key_version":
            figures["first key", ""], figures["last key", ""] = f"min({cell})", f"max({cell})"
    row = one_row(database, f"select {', '.join(figures.values())} from snapshot_rows")
    measured: Figures = defaultdict(dict)
    for (kind, of_column), figure in zip(figures, row, strict=True):
        measured[kind][of_column] = exact.plain(figure) if kind == "total" else figure
    return measured


def _unreadable(database: duckdb.DuckDBPyConnection, file: Path, source: Source) -> list[str]:
    """Load the hashes of the file's rows, in their order, as `staged`, and return why that failed."""
    names = [column.name for column in source.columns]
    with file.open(newline="", encoding="utf-8-sig", errors="replace") as stream:
        header = next(csv.reader(stream), [])
    if header != names:
        return ["the header does not name the table's columns"]
    with file.open("rb") as stream:
        stream.seek(-1, 2)
        if stream.read() != b"\n":
            return ["the last row is cut off"]
    hashes = f"{_hash(map(name, names))} as content, {_hash(map(name, source.dataset.key))} as key"
    try:
        database.execute(f"create table staged as select {hashes} from {rows_of(file, names)}")
    except duckdb.Error as error:
        # Only the first line: the others quote the row.
        return [f"DuckDB cannot read it ({str(error).splitlines()[0]})"]
    return []


def _is_equal(database: duckdb.DuckDBPyConnection, source: Source) -> bool:
    """Return whether the file has the table's rows, in the order it must have, and no key twice."""
    content = _hash(_texts(source, source.columns))
    database.execute(
        f"create table expected as select {content} as content from snapshot_rows order by {_order(source)}"
    )
    # The longer one has NULL for what the other lacks.
    unequal = "count(*) filter (staged.content is distinct from expected.content)"
    return one_row(
        database, f"select {unequal} = 0 and count(distinct key) = count(*) from staged positional join expected"
    ) == (True,)


def _differences(database: duckdb.DuckDBPyConnection, file: Path, source: Source, measured: Figures) -> list[str]:
    """Return every way in which the file differs from the table, from all cells of both."""
    rows = rows_of(file, [column.name for column in source.columns])
    database.execute(f"create or replace table staged as select * from {rows}")
    cells = ", ".join(f"{_text_of(column, source.guards_quotes)} as {name(column.name)}" for column in source.columns)
    database.execute(f"create or replace table expected as select {cells} from snapshot_rows order by {_order(source)}")
    in_file, in_table = (_value(database, f"select count(*) from {table}") for table in ("staged", "expected"))
    differences = [f"{in_file} rows instead of {in_table}"] if in_file != in_table else []

    key = ", ".join(map(name, source.dataset.key))
    keys = f"select {key} from staged", f"select {key} from expected"
    for what, query in {
        "keys missing": f"({keys[1]}) except ({keys[0]})",
        "keys too many": f"({keys[0]}) except ({keys[1]})",
        "keys more than once": f"{keys[0]} group by all having count(*) > 1",
    }.items():
        if count := _value(database, f"select count(*) from ({query})"):
            differences.append(f"{count} {what} ({', '.join(source.dataset.key)})")

    for column in source.columns:
        cell = name(column.name)
        # try_cast: a damaged cell adds nothing, and the cell comparison names it.
        if column.is_numeric:
            total = f"select {exact.total(f'try_cast({cell} as {column.type})', column)} from staged"
            if exact.plain(_value(database, total)) != measured["total"][column.name]:
                differences.append(f"another control total of {column.name}")
        unequal = f"count(*) filter (staged.{cell} is distinct from expected.{cell})"
        count = _value(database, f"select {unequal} from staged positional join expected")
        if in_file == in_table and count:
            differences.append(f"{count} cells of {column.name}")
    return differences


def _totals_by(database: duckdb.DuckDBPyConnection, source: Source) -> dict[str, dict[str, dict[str, str]]]:
    numeric = [column for column in source.columns if column.is_numeric]
    sums = ["cast(count(*) as varchar)", *(exact.total(name(column.name), column) for column in numeric)]
    names = ("rows", *(column.name for column in numeric))
    totals_by: dict[str, dict[str, dict[str, str]]] = {}
    for column in source.dataset.totals_by:
        value = f"coalesce(cast({name(column)} as varchar), '')"
        rows = database.execute(
            f"select {value}, {', '.join(sums)} from snapshot_rows group by 1 order by 1"
        ).fetchall()
        totals_by[column] = {value: dict(zip(names, map(exact.plain, totals), strict=True)) for value, *totals in rows}
    return totals_by


def _outside(database: duckdb.DuckDBPyConnection, source: Source) -> list[str]:
    """Return an issue if rows have an event time outside the week they are labelled with."""
    if source.week is None or source.dataset.at is None:
        return []
    at, week = name(source.dataset.at), source.week
    in_week = f"{at} >= timestamptz '{week.start.isoformat()}' and {at} < timestamptz '{week.end.isoformat()}'"
    count = _value(database, f"select count(*) filter (({in_week}) is not true) from snapshot_rows")
    return [f"{count} rows are outside {week}"] if count else []


def _facts(database: duckdb.DuckDBPyConnection, source: Source, measured: Figures) -> Facts:
    rows = measured["rows"][""]
    return Facts(
        rows=rows,
        nulls={column: rows - cells for column, cells in measured["cells"].items()},
        control_totals=measured["total"],
        formula_escaped=measured["guarded"],
        long_cells=measured["long"],
        nul_removed={column: cells for column, cells in measured["nul"].items() if cells},
        suppressed=measured["suppressed"].get(""),
        key_version=measured["first key"].get(""),
        withheld=dict(source.withheld),
        totals_by=_totals_by(database, source),
        k_anonymity=k_anonymity(database, source),
    )


def _order(source: Source) -> str:
    """Return the total order, by the columns of `snapshot_rows`: a text may have the same name."""
    return ", ".join(f"snapshot_rows.{name(column)} asc nulls first" for column in source.dataset.order_by)


def _is_long(cell: str) -> str:
    """Return the SQL of whether a text is longer than a spreadsheet's cell, which counts UTF-16."""
    beyond = f"length(regexp_replace({cell}, '[\\x{{0}}-\\x{{FFFF}}]', '', 'g'))"
    return f"strlen({cell}) > {SPREADSHEET_CELL} and length({cell}) + {beyond} > {SPREADSHEET_CELL}"


def _hash(cells: Iterable[str]) -> str:
    return f"hash({', '.join(cells)})"


def _texts(source: Source, columns: Iterable[Column]) -> list[str]:
    return [_text_of(column, source.guards_quotes) for column in columns]


def _text_of(column: Column, guards_quotes: bool) -> str:
    """Return the SQL of the text that a cell must have."""
    cell = name(column.name)
    if column.is_text:
        clean = _clean(cell)
        bare = f"ltrim({clean}, '''')" if guards_quotes else clean
        return f"case when unicode({bare}) in ({FORMULA}) then '''' || {clean} else {clean} end"
    if column.type == "timestamp":
        # A time finer than milliseconds keeps its digits.
        micros = f"strftime(make_timestamp(epoch_us({cell})), '%Y-%m-%dT%H:%M:%S.%f')"
        return f"regexp_replace({micros}, '000$', '') || 'Z'"
    return exact.text(cell, column)


def _clean(cell: str) -> str:
    return f"replace({cell}, chr(0), '')"


def _value(database: duckdb.DuckDBPyConnection, sql: str) -> Any:
    (value,) = one_row(database, sql)
    return value
