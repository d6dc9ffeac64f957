"""The SQL of an unload, as Spark plans and runs it."""

import secrets
from dataclasses import replace
from pathlib import Path

from python_common.catalog.catalog import load_catalog
from python_common.config.settings import Settings
from python_common.spark import thrift
from python_export.csv.compare import verify
from python_export.csv.unload import statement, unload
from tests.support.hostile_rows import DATASET, SCHEMA, arrow_table, current_source, hostile_rows


def test_texts_of_cells_are_computed_after_the_sort_of_rows_from_many_files(stack: Settings, tmp_path: Path) -> None:
    catalog = load_catalog(stack)
    name = f"unload_{secrets.token_hex(4)}"
    table = catalog.create_table(("default", name), SCHEMA)
    rows = hostile_rows()
    for first in range(0, len(rows), 10):
        table.append(arrow_table(rows[first : first + 10]))
    # One of the texts is NULL.
    dataset = replace(DATASET, table=f"default.{name}", order_by=("note", "event_id"))
    source = current_source(catalog, dataset)
    query = statement(source, "file:/nowhere").split("\n", 1)[1]
    with thrift.connect(stack) as cursor:
        file = unload(cursor, source, tmp_path / "unloaded")
        [[plan]] = thrift.rows(cursor, f"explain {query}")
    assert verify(file, source, tmp_path / "verified").rows == len(rows)
    after, sort, before = plan.partition("Sort [")
    assert sort
    assert ("replace(" in after, "replace(" in before) == (True, False)
