"""The snapshot that is exported was tested for the week, and fits its declaration."""

from collections.abc import Callable
from dataclasses import replace

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog

from python_common.errors import UserError
from python_common.weeks import IsoWeek
from python_export.datasets.snapshot import require_week
from tests.support.hostile_rows import COLUMNS, DATASET, TYPES, arrow_table, current_source, hostile_rows


def test_what_is_exported_was_tested_for_the_week(catalog: Catalog) -> None:
    week = IsoWeek(2020, 53)
    rows = arrow_table(hostile_rows())
    with pytest.raises(UserError, match=r"exp_weekly__events was not built and tested for 2020-W53\. Run `dbt build"):
        require_week(catalog, DATASET, week)
    table = catalog.create_table(("shop", "exp_weekly__events"), rows.schema)
    table.append(rows)
    tested = table.current_snapshot().snapshot_id
    with table.manage_snapshots() as change:
        change.create_tag(tested, "tested-2020-W52")
    with pytest.raises(UserError, match="was not built and tested for 2020-W53"):
        require_week(catalog, DATASET, week)
    with table.manage_snapshots() as change:
        change.create_tag(tested, "tested-2020-W53")
    # What is written later was not tested.
    table.append(rows)
    source = require_week(catalog, DATASET, week)
    assert source.snapshot_id == tested
    assert [(column.name, column.type) for column in source.columns] == [*zip(COLUMNS, TYPES, strict=True)]


@pytest.mark.parametrize(
    ("change", "suppressed", "message"),
    [
        # A type without an exact text form, a key that is no column, a misspelt column of small groups.
        (lambda rows: rows.set_column(3, "amount", rows["amount"].cast("double")), None, "amount of .* is a double"),
        (lambda rows: rows.drop(["event_id"]), None, "no column event_id"),
        (lambda rows: rows, "is_supressed", "no column is_supressed"),
    ],
)
def test_a_table_that_does_not_fit_its_declaration_is_refused(
    catalog: Catalog, change: Callable[[pa.Table], pa.Table], suppressed: str | None, message: str
) -> None:
    rows = change(arrow_table(hostile_rows()))
    catalog.create_table(("shop", "exp_weekly__events"), rows.schema).append(rows)
    with pytest.raises(UserError, match=message):
        current_source(catalog, replace(DATASET, suppressed=suppressed))
