"""How two relations of DuckDB differ: rows by their hashes, then, of those without a partner, cell by cell.

NULL equals NULL, NaN equals NaN, 0.0 equals -0.0, and rows that are there several times count as often.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any

import duckdb

from python_export.csv.csv_file import name, one_row

SIDES = ("before", "after")
# How many rows a sample has.
SAMPLE = 20
Sample = dict[str, tuple[str | None, str | None]]
"""Cells of a row by column, before and after, as text."""


@dataclass(frozen=True)
class ColumnDifference:
    """Rows whose key is on both sides with another value; NULLs, distinct values and sum, after minus before.

    The sum is exact text, None of what is no exact number. Of distinct values only those of rows that differ count.
    """

    changed: int
    nulls: int
    distinct: int
    total: str | None = None

    @property
    def difference(self) -> Decimal:
        """The sum as a number; 0 where it is missing."""
        return Decimal(self.total or 0)


@dataclass(frozen=True)
class TableChange:
    """How two states of a table differ.

    `changed` rows have a key on both sides; without a key, or if one is there several times, each row that differs is
    removed or added. `missing` are the columns and types of one state alone, by side. `rows` are None if nothing was
    read. `samples` are cells before and after, as text, of some rows with a key that differ.
    """

    rows_before: int | None = None
    rows_after: int | None = None
    added: int = 0
    removed: int = 0
    changed: int = 0
    is_keyed: bool = True
    columns: dict[str, ColumnDifference] = field(default_factory=dict)
    missing: dict[str, list[str]] = field(default_factory=dict)
    samples: list[Sample] = field(default_factory=list)

    @property
    def is_equal(self) -> bool:
        """Whether both have the same rows and columns."""
        return not (self.added or self.removed or self.changed or self.missing)


def table_diff(
    database: duckdb.DuckDBPyConnection,
    before: str,
    after: str,
    key: Sequence[str],
    sampled: Collection[str] = (),
    rows: tuple[int, int] | None = None,
) -> TableChange:
    """Compare two relations of DuckDB by their qualified names, in an attached database that is detached in the end.

    Samples have the columns of `sampled` alone. `rows` are the rows of both states, if equal ones are left out here.
    """
    cursor, relations = database.cursor(), (before, after)
    types = [column_types(cursor, relation) for relation in relations]
    rows_before, rows_after = rows or (one_row(cursor, f"select count(*) from {one}")[0] for one in relations)
    columns = [column for column in types[1] if column in types[0]]
    of_one_side = (types[0].items() - types[1].items(), types[1].items() - types[0].items())
    missing = {
        side: sorted(f"{column} ({kind})" for column, kind in of_side)
        for side, of_side in zip(SIDES, of_one_side, strict=True)
        if of_side
    }
    cursor.execute("attach ':memory:' as comparison; use comparison")
    try:
        for side, relation, of_side in zip(SIDES, relations, types, strict=True):
            # Equal hashes of NULL and an empty list have different texts.
            texts = [f"cast({name(column)} as varchar)" for column in columns if is_nested(of_side[column])]
            cells = ", ".join(map(name, columns))
            row_hash = f"hash({', '.join([cells, *texts])})"
            cursor.execute(f"create view {side} as select {cells}, {row_hash} as row_hash from {relation}")
        change = TableChange(rows_before, rows_after, missing=missing)
        of_columns = {column: (types[0][column], types[1][column]) for column in columns}
        return _differences(cursor, change, of_columns, key, sampled)
    finally:
        cursor.execute("use memory; detach comparison")


def column_types(database: duckdb.DuckDBPyConnection, relation: str) -> dict[str, str]:
    """Return the types of the columns of a relation, by name."""
    return dict(database.execute(f"select column_name, column_type from (describe {relation})").fetchall())


def is_nested(kind: str) -> bool:
    """Return whether a type of DuckDB is a list, map or struct."""
    return kind.startswith(("STRUCT", "MAP")) or kind.endswith("]")


def _differences(
    database: duckdb.DuckDBPyConnection,
    change: TableChange,
    columns: Mapping[str, tuple[str, str]],
    key: Sequence[str],
    sampled: Collection[str],
) -> TableChange:
    """Complete a change with what differs of the rows `before` and `after`, which have a hash of the `columns`.

    Columns have their types on both sides.
    """
    database.execute(
        "create table unpaired as select row_hash from (select row_hash, 1 as rows from after"
        " union all select row_hash, -1 from before) group by row_hash having sum(rows) <> 0"
    )
    for side in SIDES:
        rows = f"select {side}.* exclude (row_hash) from {side} semi join unpaired using (row_hash)"
        database.execute(f"create table {side}_left as {rows}")
    totals = _totals(database, columns)
    keys = ", ".join(map(name, key))
    equal = (f"select 1 from {side}_left group by {keys} having count(*) > 1" for side in SIDES)
    is_keyed = bool(key) and {*key} <= {*columns} and not any(database.execute(sql).fetchone() for sql in equal)
    if not is_keyed:
        removed, added = (
            one_row(database, f"select count(*) from (from {one}_left except all from {other}_left)")[0]
            for one, other in (SIDES, reversed(SIDES))
        )
        return replace(change, added=added, removed=removed, is_keyed=False, columns=totals)
    same_key = " and ".join(
        f"before_left.{name(column)} is not distinct from after_left.{name(column)}" for column in key
    )
    is_other = {column: _is_other(column, *types) for column, types in columns.items() if column not in key}
    figures = [f"count(*) filter ({' or '.join(is_other.values()) or 'false'})"]
    figures += [f"count(*) filter ({condition})" for condition in is_other.values()]
    changed, *by_column = one_row(
        database, f"select {', '.join(figures)} from before_left join after_left on {same_key}"
    )
    removed, added = (
        one_row(database, f"select count(*) from {one}_left anti join {other}_left on {same_key}")[0]
        for one, other in (SIDES, tuple(reversed(SIDES)))
    )
    for column, rows in zip(is_other, by_column, strict=True):
        totals[column] = replace(totals[column], changed=rows)
    samples = _samples(database, same_key, [column for column in columns if column in sampled])
    return replace(change, added=added, removed=removed, changed=changed, columns=totals, samples=samples)


def _samples(database: duckdb.DuckDBPyConnection, same_key: str, columns: Sequence[str]) -> list[Sample]:
    """Return cells of some rows in which one of the columns differs, as text."""
    if not columns:
        return []
    cells = [tuple(f"cast({side}_left.{name(column)} as varchar)" for side in SIDES) for column in columns]
    differs = " or ".join(f"{before} is distinct from {after}" for before, after in cells)
    listed = ", ".join(cell for pair in cells for cell in pair)
    rows = f"select {listed} from before_left full join after_left on {same_key} where {differs}"
    sample = database.execute(f"{rows} order by all limit {SAMPLE}").fetchall()
    return [dict(zip(columns, zip(row[::2], row[1::2], strict=True), strict=True)) for row in sample]


def _totals(database: duckdb.DuckDBPyConnection, columns: Mapping[str, tuple[str, str]]) -> dict[str, ColumnDifference]:
    """Return NULLs, distinct values and sums, after minus before; sums of numbers that are exact on both sides."""
    figures = []
    for column, types in columns.items():
        cell = name(column)
        is_exact = all(kind.startswith("DECIMAL") or kind in ("INTEGER", "BIGINT") for kind in types)
        figures += [f"count(*) - count({cell})", f"count(distinct {cell})"]
        figures += [f"coalesce(sum({cell}), 0)" if is_exact else "null"]
    before, after = (one_row(database, f"select {', '.join(figures)} from {side}_left") for side in SIDES)
    changes: Iterator[Any] = iter(None if new is None else new - old for old, new in zip(before, after, strict=True))
    return {
        column: ColumnDifference(0, nulls, distinct, None if total is None else str(total))
        for column, nulls, distinct, total in zip(columns, changes, changes, changes, strict=True)
    }


def _is_other(column: str, before: str, after: str) -> str:
    """Return the condition that a column has other values; of types that DuckDB cannot compare their texts."""
    numbers = ("DECIMAL", "INTEGER", "BIGINT", "DOUBLE", "FLOAT")
    cells = [f"{side}_left.{name(column)}" for side in SIDES]
    if before != after and not (before.startswith(numbers) and after.startswith(numbers)):
        cells = [f"cast({cell} as varchar)" for cell in cells]
    return f"{cells[0]} is distinct from {cells[1]}"
