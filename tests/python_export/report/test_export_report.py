"""The report of another project: it shows what its models declare, and needs none of this shop's columns."""

import re
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lakehouse.errors import UserError
from lakehouse.settings import Settings
from lakehouse.weeks import IsoWeek
from python_export.publishing.publish import publish
from python_export.publishing.target import open_target
from python_export.report import page as report
from tests.python_export.conftest import write_manifest
from tests.python_export.publishing.test_export_publish import stage
from tests.support.hostile_rows import draft

WEEK = "2020-W53"
CHART = {"by": "branch", "of": "loans", "title": "Loans", "heading": "Branch", "label": "Loans", "empty": "None."}
RANKING = {
    "by": "loans",
    "columns": [
        {"column": "title", "heading": "Book"},
        {"column": "loans", "heading": "Loans"},
        {"column": "shelf", "heading": "Shelf", "of": "shelves"},
        {"column": "pages", "heading": "Pages"},
    ],
    "title": "Read most",
    "note": "By loans.",
    "empty": "Nothing was read.",
}
COUNTED = {"select sum(lost) from ops.lost_books": 12345, "select count(*) from ops.returned_late": None}


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The models of another dbt project, by their names, with their config.meta; `write_manifest` writes them."""
    monkeypatch.setattr(report, "PROJECT_ROOT", tmp_path)
    monkeypatch.setattr(report.thrift, "connect", lambda settings: nullcontext())
    monkeypatch.setattr(report, "_count", lambda _, sql: COUNTED[sql])
    monkeypatch.setenv("DBT_TARGET_PATH", str(tmp_path))
    (tmp_path / "dbt_project.yml").write_text("name: lending_library\n")
    own = {"key": ["title"], "order_by": ["title"]}
    return {
        "exp_weekly__loans": {"export": own | {"shown": {"chart": CHART, "ranking": RANKING}}},
        "exp_weekly__shelves": {"export": own | {"shown": {"chart": CHART}}},
        "exp_weekly__fines": {"export": own},
        "returned_late": {"left_out": {"place": 2, "label": "Books that came back late"}},
        "lost_books": {"left_out": {"place": 1, "label": "Books that were lost", "sum": "lost"}},
    }


def published(settings: Settings, dataset: str, rows: list[str], totals: dict[str, str]) -> None:
    target = open_target(settings)
    columns = [{"name": name, "type": "string", "nulls": 0} for name in rows[0].split(",")]
    totals_by = {"branch": {"north": {"rows": "2", "loans": "7"}}}
    manifest = replace(draft(WEEK), dataset=dataset, columns=columns, control_totals=totals, totals_by=totals_by)
    file = stage(target, "\n".join([*rows, ""]))
    publish(target, file, manifest, [], file.parent)


def test_another_projects_report_shows_what_its_models_declare(
    offline_settings: Settings, library: dict[str, Any], tmp_path: Path
) -> None:
    write_manifest(tmp_path, "ops", library)
    books = [f"book {number},{number}" for number in range(12)]
    published(offline_settings, "loans", ["title,loans", *books], {"loans": "66"})
    published(offline_settings, "shelves", ["title,shelf", "book 11,B", "book 11,A"], {})
    published(offline_settings, "fines", ["title", "book 1"], {})
    page = Path(report.write(offline_settings, IsoWeek.parse(WEEK))).read_text()
    assert "<title>Lending library, 2020-W53</title>" in page
    ranking = re.search(r'<table id="ranking-loans">.*?</table>', page, re.S)
    assert ranking is not None
    assert re.findall(r"<th scope=\"row\">(.*?)</th>", ranking[0]) == [f"book {number}" for number in range(11, 1, -1)]
    assert re.findall(r">(\w+)</th>", ranking[0].partition("<tbody>")[0]) == ["Book", "Loans", "Shelf", "Pages"]
    # Of the other dataset's rows the least value; a column that the file does not have is empty.
    assert re.findall(r"<td>(.*?)</td>", ranking[0]) == ["A", *[""] * 19]
    assert "too few persons" not in page
    quality = re.search(r'<table id="quality">.*?</table>', page, re.S)
    assert quality is not None
    assert re.findall(r">([^<>\n]+)</t", quality[0]) == ["Books that were lost", "12,345"]
    # Two charts by one column, and each element is found by an id of its own.
    ids = re.findall(r'id="(.*?)"', page)
    assert {"chart-loans", "chart-shelves", "ranking-loans", "quality", "files"} == set(ids)
    assert len(ids) == 5


def test_a_report_without_anything_declared_has_its_files(
    offline_settings: Settings, library: dict[str, Any], tmp_path: Path
) -> None:
    write_manifest(tmp_path, "ops", {"exp_weekly__fines": library["exp_weekly__fines"]})
    published(offline_settings, "fines", ["title", "book 1"], {})
    page = Path(report.write(offline_settings, IsoWeek.parse(WEEK))).read_text()
    assert re.findall(r'id="(.*?)"', page) == ["files"]
    assert "fines v1" in page


def test_what_is_declared_wrong_is_named(offline_settings: Settings, library: dict[str, Any], tmp_path: Path) -> None:
    library["lost_books"]["left_out"] = {"label": "Lost"}
    write_manifest(tmp_path, "ops", library)
    with pytest.raises(UserError, match=r"config\.meta\.left_out of lost_books is wrong at place"):
        report.write(offline_settings, IsoWeek.parse(WEEK))
    library["exp_weekly__loans"]["export"]["shown"]["ranking"] = {**RANKING, "columns": []}
    write_manifest(tmp_path, "ops", library)
    with pytest.raises(UserError, match="shown of exp_weekly__loans is wrong at ranking"):
        report.write(offline_settings, IsoWeek.parse(WEEK))
