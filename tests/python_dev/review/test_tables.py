"""Which tables are compared and described, by two catalogs in which tables are written."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog

from python_common.weeks import IsoWeek
from python_dbt.manifest import DbtManifest, Node
from python_dev.review.tables import Comparison
from tests.support.reviewed import SALES

VIEW = replace(SALES, materialized="view")
WEEK = "2026-W45"
ROWS = {
    "id": pa.array([Decimal(1), Decimal(2), Decimal(3)], pa.decimal128(9, 0)),
    "amount": pa.array([Decimal("1.50"), None, Decimal("-0.25")], pa.decimal128(9, 2)),
    "day": pa.array([date(2026, 11, 2), date(2026, 11, 9), None]),
    "city": ["Bern", "Bern", None],
    "email": ["a@example.com", "b@example.com", None],
    "empty": pa.array([None, None, None], pa.int64()),
}


def compared(
    catalogs: list[SqlCatalog],
    tables: list[Mapping[str, Any] | None],
    scratch: Path,
    nodes: tuple[Node | None, Node] = (SALES, SALES),
    impersonal: tuple[str, ...] = (),
) -> Comparison:
    """Compare a node of which each side has some rows, or no table."""
    for catalog, rows, node in zip(catalogs, tables, nodes, strict=True):
        if rows is not None and node:
            name = f"{'lakehouse_review' if node is VIEW else 'marts'}.sales"
            catalog.create_namespace_if_not_exists("lakehouse_review")
            catalog.create_table(name, pa.table(rows).schema).append(pa.table(rows))
    before, after = (DbtManifest({node.unique_id: node} if node else {}) for node in nodes)
    comparison = Comparison(
        (before, after), (catalogs[0], catalogs[1]), [IsoWeek.parse(WEEK)], scratch, {"sales": {*impersonal}}
    )
    comparison.add([nodes[1]])
    return comparison


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"id": [1]}, {"id": ["x1"]}),
        ({"id": [1, 1], "of": [1, 1]}, {"id": [1, 1], "of": [[1], [1]]}),
        ({"id": [1, 1], "at": [datetime(2026, 11, 2)] * 2}, {"id": [1, 1], "at": [1, 1]}),
    ],
)
def test_a_table_whose_types_cannot_be_compared_is_named(
    before: dict[str, list[object]], after: dict[str, list[object]], sides: list[SqlCatalog], tmp_path: Path
) -> None:
    comparison = compared(sides, [before, after], tmp_path)
    assert comparison.tables == []
    assert comparison.not_compared == {"sales": "DuckDB could not compare the tables (ConversionException)"}


@pytest.mark.parametrize("export", [{}, {"export": {"key": ["id"]}}])
def test_only_columns_that_no_class_reaches_have_sums(
    export: dict[str, Any], sides: list[SqlCatalog], tmp_path: Path
) -> None:
    rows = {"id": [1, 2], "amount": [3, 4], "born": [1970, 1980], "week": [WEEK, WEEK]}
    after = {**rows, "amount": [3, 5], "born": [1970, 1981]}
    node = replace(SALES, meta=export)
    comparison = compared(sides, [rows, after], tmp_path, (node, node), ("id", "amount", "week"))
    [report] = comparison.tables
    columns = report.change.columns
    assert (columns["amount"].total, columns["born"].changed, columns["born"].total) == ("1", 1, None)
    # A sum of ids says nothing.
    assert columns["id"].total is None
    assert (report.week, comparison.added) == (WEEK if export else None, [])


@pytest.mark.parametrize(
    ("nodes", "tables", "where"),
    [
        ((SALES, SALES), [None, None], "before and after"),
        ((SALES, SALES), [ROWS, None], "after"),
        ((None, SALES), [None, None], "after"),
        ((SALES, VIEW), [None, ROWS], "before"),
    ],
)
def test_a_table_without_stored_rows_is_not_compared(
    nodes: tuple[Node | None, Node],
    tables: list[dict[str, Any] | None],
    where: str,
    sides: list[SqlCatalog],
    tmp_path: Path,
) -> None:
    comparison = compared(sides, tables, tmp_path, nodes)
    assert (comparison.tables, comparison.added) == ([], [])
    assert comparison.not_compared == {"sales": f"no rows of it are stored {where} the change"}


def test_a_table_that_becomes_a_view_is_compared_with_its_rows(sides: list[SqlCatalog], tmp_path: Path) -> None:
    comparison = compared(sides, [ROWS, ROWS], tmp_path, (SALES, VIEW))
    assert [report.change.is_equal for report in comparison.tables] == [True]
    assert comparison.not_compared == {}


def described(comparison: Comparison) -> dict[str, str]:
    """Return the figures of what is added."""
    return {finding.object: finding.message for finding in comparison.added}


IMPERSONAL = tuple(name for name in ROWS if name != "email")


def test_an_added_table_is_described_without_its_persons(sides: list[SqlCatalog], tmp_path: Path) -> None:
    comparison = compared(sides, [None, ROWS], tmp_path, (None, SALES), IMPERSONAL)
    assert described(comparison) == {
        "sales": "3 rows, 6 columns",
        # A sum of a key says nothing.
        "sales.id": "NULLs 0, distinct 3, 1 to 3",
        "sales.amount": "NULLs 1, distinct 2, -0.25 to 1.50, sum 1.25",
        "sales.day": "NULLs 1, distinct 2, 2026-11-02 to 2026-11-09",
        # Texts are values of rows.
        "sales.city": "NULLs 1, distinct 1",
        "sales.email": "NULLs 1",
        "sales.empty": "NULLs 3, distinct 0",
    }
    assert (comparison.tables, comparison.not_compared) == ([], {})


def test_of_a_table_with_new_columns_these_are_described(sides: list[SqlCatalog], tmp_path: Path) -> None:
    former = {name: values for name, values in ROWS.items() if name != "amount"}
    comparison = compared(sides, [former, ROWS], tmp_path, impersonal=IMPERSONAL)
    assert described(comparison) == {"sales.amount": "NULLs 1, distinct 2, -0.25 to 1.50, sum 1.25"}
    assert [report.columns for report in comparison.tables] == [["amount (DECIMAL(9,2)) only after"]]
