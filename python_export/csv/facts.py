"""Counts and adds up the rows of an export table at one snapshot, for the manifest of their file."""

from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb

from python_common.errors import UserError
from python_export.csv import exact
from python_export.csv.csv_file import name, one_row, reading
from python_export.csv.write import cell_text, load_table, without_nul
from python_export.datasets.snapshot import Source

# What a spreadsheet holds, its header included.
SPREADSHEET_ROWS = 1_048_576
SPREADSHEET_CELL = 32_767
# Figures of a table by kind and column; one of whole rows has no column.
Figures = dict[str, dict[str, Any]]


@dataclass(frozen=True)
class Facts:
    """What a file holds, as its manifest has it.

    `nulls` has every column, `nul_removed` those of which cells had NUL. `long_cells` are those that no spreadsheet
    holds. `suppressed`, `key_version` and `k_anonymity` are None without the columns that they need.
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


def measure(source: Source, scratch: Path) -> Facts:
    """Return the facts of a source's file, without withheld rows; `scratch` is for what outgrows memory.

    Raises:
        UserError: the table cannot be read, has rows outside the week, a year without four digits, or pseudonyms by
            several masking keys.
    """
    dataset = source.dataset.name
    with reading(
        scratch, f"{dataset}: DuckDB could not count the table's rows", "Check that there is room"
    ) as database:
        load_table(database, source)
        measured = _measure(database, source)
        issues = _outside(database, source)
        issues += [
            f"{count} cells of {column} are outside the years 1 to 9999"
            for column, count in measured["years"].items()
            if count
        ]
        if measured["first key"] != measured["last key"]:
            issues.append("pseudonyms of more than one version of the masking key")
        if issues:
            raise UserError(f"{dataset} is not published: {'; '.join(issues)}", "Correct the model, and build it again")
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
            k_anonymity=_k_anonymity(database, source),
        )


def _measure(database: duckdb.DuckDBPyConnection, source: Source) -> Figures:
    figures: dict[tuple[str, str], str] = {("rows", ""): "count(*)"}
    for column in source.columns:
        cell = name(column.name)
        figures["cells", column.name] = f"count({cell})"
        if column.is_numeric:
            figures["total", column.name] = exact.total(cell, column)
        if column.is_text:
            figures["guarded", column.name] = (
                f"count(*) filter ({cell_text(column, source.guards_quotes)} is distinct from {without_nul(cell)})"
            )
            figures["nul", column.name] = f"count(*) filter ({without_nul(cell)} is distinct from {cell})"
            figures["long", column.name] = f"count(*) filter ({_is_long(cell)})"
        if column.type in ("date", "timestamp"):
            # ISO 8601 has four digits for a year.
            figures["years", column.name] = f"count({cell}) - count(*) filter (year({cell}) between 1 and 9999)"
        if column.name == source.dataset.suppressed:
            figures["suppressed", ""] = f"count(*) filter ({cell})"
        if column.name == "key_version":
            figures["first key", ""], figures["last key", ""] = f"min({cell})", f"max({cell})"
    row = one_row(database, f"select {', '.join(figures.values())} from snapshot_rows")
    measured: Figures = defaultdict(dict)
    for (kind, of_column), figure in zip(figures, row, strict=True):
        measured[kind][of_column] = exact.plain(figure) if kind == "total" else figure
    return measured


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
    (count,) = one_row(database, f"select count(*) filter (({in_week}) is not true) from snapshot_rows")
    return [f"{count} rows are outside {week}"] if count else []


def _k_anonymity(database: duckdb.DuckDBPyConnection, source: Source) -> int | None:
    """Return the fewest persons per combination of quasi-identifiers in `snapshot_rows`; None without either."""
    names = [column.name for column in source.columns]
    quasi = [field.name for field in source.dataset.fields if field.is_quasi_identifier and field.name in names]
    persons = [f"nullif(count(distinct {name(column)}), 0)" for column in source.dataset.persons if column in names]
    if not quasi or not persons:
        return None
    # The column with the fewest persons decides; a row without a person singles out none.
    fewest = persons[0] if len(persons) == 1 else f"least({', '.join(persons)})"
    groups = f"select {fewest} as persons from snapshot_rows group by {', '.join(map(name, quasi))}"
    smallest: int | None = one_row(database, f"select min(persons) from ({groups})")[0]
    return smallest


def _is_long(cell: str) -> str:
    """Return the SQL of whether a text is longer than a spreadsheet's cell, which counts UTF-16."""
    beyond = f"length(regexp_replace({cell}, '[\\x{{0}}-\\x{{FFFF}}]', '', 'g'))"
    # A case, because DuckDB evaluates both sides of an `and`: hardly a cell has so many bytes.
    return f"case when strlen({cell}) > {SPREADSHEET_CELL} then length({cell}) + {beyond} > {SPREADSHEET_CELL} end"
