from dataclasses import replace
from datetime import date
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog

from python_dbt.manifest import DbtManifest, Node
from python_dev.review.profile import profiles

SALES = Node("model.shop.sales", "model", "sales", "marts", alias="sales", materialized="table", unique_key="number")
ROWS = {
    "number": pa.array([Decimal(1), Decimal(2), Decimal(3)], pa.decimal128(9, 0)),
    "amount": pa.array([Decimal("1.50"), None, Decimal("-0.25")], pa.decimal128(9, 2)),
    "day": pa.array([date(2026, 11, 2), date(2026, 11, 9), None]),
    "city": ["Bern", "Bern", None],
    "email": ["a@example.com", "b@example.com", None],
    "empty": pa.array([None, None, None], pa.int64()),
}


def found(sides: list[SqlCatalog], scratch: Path, *former: str, node: Node = SALES) -> dict[str, str]:
    """Return what is found of a table that had some columns before, of which `email` has a class."""
    for catalog, columns in zip(sides, (former, ROWS), strict=True):
        rows = pa.table({name: ROWS[name] for name in columns})
        if columns and not catalog.table_exists("marts.sales"):
            catalog.create_table("marts.sales", rows.schema).append(rows)
    before, after = DbtManifest({node.unique_id: node} if former else {}), DbtManifest({node.unique_id: node})
    impersonal = {"sales": {*ROWS} - {"email"}}
    yielded = profiles([node], (before, after), (sides[0], sides[1]), scratch, impersonal)
    return {one.object: one.message for one in yielded}


def test_an_added_table_is_described_without_its_persons(sides: list[SqlCatalog], tmp_path: Path) -> None:
    assert found(sides, tmp_path) == {
        "sales": "3 rows, 6 columns",
        # A sum of a key says nothing.
        "sales.number": "NULLs 0, distinct 3, 1 to 3",
        "sales.amount": "NULLs 1, distinct 2, -0.25 to 1.50, sum 1.25",
        "sales.day": "NULLs 1, distinct 2, 2026-11-02 to 2026-11-09",
        # Texts are values of rows.
        "sales.city": "NULLs 1, distinct 1",
        "sales.email": "NULLs 1",
        "sales.empty": "NULLs 3, distinct 0",
    }


def test_of_a_table_with_new_columns_these_are_described(sides: list[SqlCatalog], tmp_path: Path) -> None:
    columns = found(sides, tmp_path, "number", "day", "city", "email", "empty")
    assert columns == {"sales.amount": "NULLs 1, distinct 2, -0.25 to 1.50, sum 1.25"}


def test_a_table_as_it_was_and_one_not_built_have_no_figures(sides: list[SqlCatalog], tmp_path: Path) -> None:
    assert found(sides, tmp_path, *ROWS) == {}
    assert found(sides[::-1], tmp_path, node=replace(SALES, alias="not_built")) == {}
