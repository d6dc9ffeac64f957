"""The numbers that other engines read by docs/other-engines.md, against Spark and the published file."""

import csv
import json
import re
from collections.abc import Iterable
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.exceptions import NoSuchTableError

from python_common.catalog.catalog import load_catalog
from python_common.config.environment import PROJECT_ROOT
from python_common.spark import thrift
from tests.conftest import run_lakehouse
from tests.end_to_end.conftest import Lake, produce, succeed

PAGE = (PROJECT_ROOT / "docs" / "other-engines.md").read_text()
Figures = dict[str, tuple[int, Decimal]]


def blocks(page: str, language: str) -> list[str]:
    """Return the blocks of a page in a language."""
    return re.findall(rf"^ *```{language}\n(.*?)^ *```$", page, re.MULTILINE | re.DOTALL)


def snippets(lake: Lake, language: str, moment: datetime) -> list[str]:
    """Return the page's blocks of a language, with the lake's catalog, its last week, and a moment."""
    here = {
        "/srv/lakehouse/.lakehouse/catalog.db": lake.settings.catalog_uri.removeprefix("jdbc:sqlite:").partition("?")[
            0
        ],
        "2026-W46": str(lake.last_week),
        "2026-11-23 06:00:00": f"{moment:%Y-%m-%d %H:%M:%S.%f}",
    }
    assert [name for name in here if name not in PAGE] == []
    found = blocks(PAGE, language)
    for name, value in here.items():
        found = [block.replace(name, value) for block in found]
    return found


def by_brand(rows: Iterable[Any]) -> Figures:
    """Return quantity and amount by brand; a brand that is missing and an empty one look alike in a file."""
    figures: Figures = {}
    for brand, quantity, amount in rows:
        pieces, total = figures.get(brand or "", (0, Decimal(0)))
        figures[brand or ""] = (pieces + quantity, total + amount)
    return figures


def of_file(version: Path) -> tuple[Figures, datetime]:
    """Return the figures of a published file, and when it was published."""
    manifest = json.loads((version / "manifest.json").read_text())
    with (version / manifest["file"]).open(newline="", encoding="utf-8") as file:
        rows = [(row["brand"], int(row["quantity"]), Decimal(row["total_amount"])) for row in csv.DictReader(file)]
    # Less the formula guard.
    figures = by_brand((re.sub(r"^'(?='*[=+@-])", "", brand), *others) for brand, *others in rows)
    return figures, datetime.fromisoformat(manifest["created_at"]).replace(tzinfo=UTC)


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
    assert len([view for view in views if view.startswith("ops.")]) == 3
    assert {view.split(".")[0] for view in views} == {"staging", "masked", "joined", "marts", "ops"}
    assert [view for view in views if view.startswith("marts.")] == ["marts.fct_order_lines_excluded"]
    with pytest.raises(NoSuchTableError):
        load_catalog(lake.settings).load_table("marts.fct_order_lines_excluded")
