"""Which published weeks late data has changed: the figures of each week now, beside those it was last exported with.

The figures of a week (ops.weekly_figures) have a fingerprint of all its rows. What an export last saw of them is
noted once its version is public, so a run that dies before finds the week changed again, and one that finds the same
content publishes nothing and notes it too.
"""

import json
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from pyiceberg.catalog import Catalog
from pyiceberg.types import StringType, TimestamptzType

from lakehouse.catalog import load_table
from lakehouse.small_table import SmallTable
from lakehouse.weeks import IsoWeek
from python_export.datasets.build import FIGURES_TABLE
from python_export.publishing.manifest import Manifest
from python_export.publishing.target import Target

TABLE = SmallTable(
    "ops.exported_figures",
    (
        ("address", StringType(), "<export root>/<dataset>/<week>"),
        ("figures", StringType(), "the week's row of ops.weekly_figures when it was last exported, as JSON"),
        ("noted_at", TimestamptzType(), "when that was"),
    ),
)

Figures = dict[tuple[str, str], str]
# Of a week without rows.
NONE = "{}"


def figures(catalog: Catalog) -> Figures:
    """Return the figures of each dataset and week as text; without the table, none."""
    table = load_table(catalog, FIGURES_TABLE)
    rows = table.scan().to_arrow().to_pylist() if table else []
    return {(row["dataset_name"], row["week_label"]): as_text(row) for row in rows if row["week_label"]}


def as_text(row: dict[str, Any]) -> str:
    """Return a week's figures as they are compared."""
    return json.dumps(row, sort_keys=True, default=str)


def changed(
    catalog: Catalog, target: Target, versions: Iterable[str], now: Figures, names: Iterable[str]
) -> dict[IsoWeek, list[str]]:
    """Return the datasets to be exported again by week, the oldest week first; `versions` are paths of what is there.

    A week counts from its first published dataset on; one that it then lacks is owed if an earlier week has it: it was
    withheld.
    """
    published = {tuple(path.split("/")[:2]) for path in versions}
    first = {dataset: min(week for name, week in published if name == dataset) for dataset, _ in published}
    noted = {address: row["figures"] for address, row in TABLE.rows(catalog).items()}
    found: dict[IsoWeek, list[str]] = {}
    for week in sorted({week for _, week in published}):
        for name in names:
            owed = name in first and first[name] <= week
            if owed and _differ(noted.get(_address(target, name, week)), now.get((name, week), NONE)):
                found.setdefault(IsoWeek.parse(week), []).append(name)
    return found


def note(catalog: Catalog, target: Target, exported: Iterable[Manifest], now: Figures) -> None:
    """Note with which figures datasets were exported."""
    at = datetime.now(UTC)
    rows = {
        address: {"address": address, "figures": now.get((manifest.dataset, manifest.week), NONE), "noted_at": at}
        for manifest in exported
        if (address := _address(target, manifest.dataset, manifest.week))
    }
    TABLE.change(catalog, lambda before: {**before, **rows})


def _differ(noted: str | None, now: str) -> bool:
    """Tell whether figures changed; a rotated masking key, which changes all pseudonyms, is no late data."""
    if noted is None:
        return True
    before: dict[str, Any] = json.loads(noted)
    after: dict[str, Any] = json.loads(now)
    if before.get("key_version") != after.get("key_version"):
        for figures in (before, after):
            for name in ("key_version", "fingerprint"):
                figures.pop(name, None)
    return before != after


def _address(target: Target, dataset: str, week: str) -> str:
    return target.address(f"{dataset}/{week}")
