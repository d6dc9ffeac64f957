"""The snippets of docs/other-engines.md, and figures as it reads them."""

import csv
import json
import re
from collections.abc import Iterable
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

from python_common.config.environment import PROJECT_ROOT
from tests.support.lake import Lake

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
