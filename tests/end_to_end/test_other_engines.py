"""The numbers that other engines read by docs/other-engines.md, against Spark and the published file."""

import json
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.exceptions import NoSuchTableError

from python_common.catalog.catalog import load_catalog
from python_common.spark import thrift
from tests.support.commands import run_lakehouse
from tests.support.lake import Lake, produce, succeed
from tests.support.other_engines import by_brand, of_file, snippets


@pytest.fixture(scope="module")
def versions(lake: Lake, first_wave: object) -> Path:
    """The published versions of a week that late data has changed."""
    if lake.expected["parameters"]["wave"] == 1:
        succeed({"sample-data": lambda: produce(wave=2), "weekly": lambda: run_lakehouse("weekly")})
    return Path(lake.settings.export_root) / "product_sales" / str(lake.last_week)


def test_other_engines_have_the_numbers_of_the_file(lake: Lake, versions: Path) -> None:
    (published, moment), (restated, now) = of_file(versions / "v1"), of_file(versions / "v2")
    assert published != restated
    namespace: dict[str, Any] = {}
    read, duck, as_of = snippets(lake, "python", moment)
    for code in (read, duck):
        exec(code, namespace)
    assert by_brand(namespace["by_brand"]) == restated
    for code in (as_of, duck):
        exec(code, namespace)
    assert by_brand(namespace["by_brand"]) == published
    with thrift.connect(lake.settings) as cursor:
        for at, figures in ((moment, published), (now, restated)):
            sql, _ = snippets(lake, "sql", at)
            assert by_brand(thrift.rows(cursor, sql)) == figures


def test_before_the_oldest_snapshot_there_is_no_answer(lake: Lake, versions: Path) -> None:
    moment = datetime(2020, 1, 1, tzinfo=UTC)
    sql, _ = snippets(lake, "sql", moment)
    with thrift.connect(lake.settings) as cursor, pytest.raises(Exception, match="Cannot find a snapshot older than"):
        thrift.rows(cursor, sql)
    read, _, as_of = snippets(lake, "python", moment)
    namespace: dict[str, Any] = {}
    exec(read, namespace)
    with pytest.raises(AttributeError, match="snapshot_id"):
        exec(as_of, namespace)
    assert namespace["snapshot"] is None


def test_the_snapshot_in_a_manifest_is_the_published_file(lake: Lake, versions: Path) -> None:
    manifest = json.loads((versions / "v1" / "manifest.json").read_text())
    table = load_catalog(lake.settings).load_table("exports.exp_weekly__product_sales")
    scan = table.scan(f"ordered_week = '{lake.last_week}'", snapshot_id=int(manifest["source_snapshot_id"]))
    rows = scan.to_arrow()
    assert len(rows) == manifest["rows"]
    assert sum(rows["total_amount"].to_pylist()) == Decimal(manifest["control_totals"]["total_amount"])


def test_a_view_is_read_by_spark_alone(lake: Lake, versions: Path) -> None:
    with thrift.connect(lake.settings) as cursor:
        views = {
            f"{schema}.{row[1]}" for schema in lake.schemas() for row in thrift.rows(cursor, f"show views in {schema}")
        }
    assert "marts.fct_order_lines_excluded" in views
    assert len([view for view in views if view.startswith("ops.")]) == 5
    assert {view.split(".")[0] for view in views} == {"staging", "masked", "joined", "marts", "ops"}
    assert [view for view in views if view.startswith("marts.")] == ["marts.fct_order_lines_excluded"]
    with pytest.raises(NoSuchTableError):
        load_catalog(lake.settings).load_table("marts.fct_order_lines_excluded")
