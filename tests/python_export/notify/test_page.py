"""The report: what it reads of files and manifests, and that it shows what the models of any project declare."""

import re
from collections.abc import Iterable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog import Catalog

from python_common.config.settings import Settings
from python_common.errors import Issue, UserError
from python_common.weeks import IsoWeek
from python_export.notify import index, outbox
from python_export.notify import page as report
from python_export.notify.exported import Exported
from python_export.publishing.manifest import SmallGroups
from python_export.publishing.target import open_target
from python_export.variables import Channels
from tests.support.hostile_rows import failing
from tests.support.notify import NEXT_WEEK, WEEK, warning, withheld
from tests.support.publishing import unlock
from tests.support.small_project import write_manifest
from tests.support.versions import publish_content, without_folders

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


@pytest.fixture(autouse=True)
def without_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report.thrift, "connect", lambda settings: nullcontext())


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The models of another dbt project, by their names, with their config.meta: they are written."""
    monkeypatch.setattr(report, "PROJECT_ROOT", tmp_path)
    monkeypatch.setattr(report, "_count", lambda _, sql: COUNTED[sql])
    monkeypatch.setenv("DBT_TARGET_PATH", str(tmp_path))
    (tmp_path / "dbt_project.yml").write_text("name: lending_library\n")
    declared = {"key": ["title"], "order_by": ["title"]}
    models = {
        "exp_weekly__loans": {"export": declared | {"display": {"chart": CHART, "ranking": RANKING}}},
        "exp_weekly__shelves": {"export": declared | {"display": {"chart": CHART}}},
        "exp_weekly__fines": {"export": declared},
        "returned_late": {"excluded": {"place": 2, "label": "Books that came back late"}},
        "lost_books": {"excluded": {"place": 1, "label": "Books that were lost", "sum": "lost"}},
    }
    write_manifest(tmp_path, "ops", models)
    return models


def page_of(settings: Settings, notices: Iterable[Issue] = (), week: str = WEEK) -> str:
    """Write the report of a week, and return the page."""
    [address] = report.write(settings, [week], index.current(open_target(settings)), [*notices])
    return Path(address).read_text()


def published(
    settings: Settings, dataset: str, rows: list[str], totals: dict[str, str], formats: tuple[str, ...] = ()
) -> None:
    types = {name: "decimal(38,10)" if name in totals else "string" for name in rows[0].split(",")}
    columns = [{"name": name, "type": kind, "nulls": 0} for name, kind in types.items()]
    branches = {"north": {"rows": "2", "loans": "8"}, "south": {"rows": "1", "loans": "3"}}
    made = {"dataset": dataset, "columns": columns, "totals_by": {"branch": branches}, "control_totals": totals}
    publish_content(open_target(settings), "\n".join([*rows, ""]), WEEK, formats, **made)


@pytest.mark.usefixtures("library")
def test_another_projects_report_shows_what_its_models_declare(offline_settings: Settings) -> None:
    books = [f"book {number},{number}" for number in range(12)]
    published(offline_settings, "loans", ["title,loans", *books], {"loans": "66"})
    published(offline_settings, "shelves", ["title,shelf", "book 11,B", "book 11,A"], {})
    published(offline_settings, "fines", ["title", "book 1"], {})
    page = page_of(offline_settings)
    assert "<title>Lending library, 2020-W53</title>" in page
    assert re.findall("http|<script", page) == []
    [chart] = re.findall(r'<table id="chart-loans">.*?</table>', page, re.S)
    # A bar is as long as what it represents.
    assert re.findall(r'<rect class="now" width="(.*?)%"', chart) == ["100.0", "37.5"]
    ranking = re.search(r'<table id="ranking-loans">.*?</table>', page, re.S)
    assert re.findall(r"<th scope=\"row\">(.*?)</th>", ranking[0]) == [f"book {number}" for number in range(11, 1, -1)]
    assert re.findall(r">(\w+)</th>", ranking[0].partition("<tbody>")[0]) == ["Book", "Loans", "Shelf", "Pages"]
    # Of the other dataset's rows the least value; a column that the file does not have is empty.
    assert re.findall(r"<td>(.*?)</td>", ranking[0]) == ["A", *[""] * 19]
    assert "too few persons" not in page
    quality = re.search(r'<table id="quality">.*?</table>', page, re.S)
    assert re.findall(r">([^<>\n]+)</t", quality[0]) == ["Books that were lost", "12,345"]
    # Two charts by one column, and each element is found by its id.
    ids = re.findall(r'id="(.*?)"', page)
    assert {"chart-loans", "chart-shelves", "ranking-loans", "quality", "files"} == set(ids)
    assert len(ids) == 5


def test_a_withdrawal_takes_its_figures_out_of_the_reports(
    offline_settings: Settings, catalog: Catalog, library: dict[str, Any], tmp_path: Path
) -> None:
    write_manifest(tmp_path, "ops", {name: library[name] for name in ("exp_weekly__fines", "exp_weekly__loans")})
    target, behind = open_target(offline_settings), withheld("loans")
    for notices in ([behind], [replace(behind, week=NEXT_WEEK, message="of another week")]):
        outbox.record_notices(catalog, target, notices, Channels(), [])
    # The last of these has no figure of the first in its history.
    weeks = [str(IsoWeek.parse(WEEK).minus(-later)) for later in (0, 7, 8)]
    for content, week in (("1", WEEK), *((content, week) for content, week in zip("234", weeks, strict=True))):
        publish_content(open_target(offline_settings), content, week, dataset="fines")
    for week in weeks:
        target.put(report.report_path(week), b"figures of fines v2")

    def pages() -> list[str]:
        """Have a run of another week write its report, and those that are missing."""
        written = report.write_all(offline_settings, catalog, Exported(IsoWeek(2020, 52)))
        assert written[-1] == target.address(report.report_path("2020-W52"))
        return [target.read(report.report_path(week)).decode() for week in weeks]

    assert pages() == ["figures of fines v2"] * 3
    report.withdraw(target, [f"fines/{WEEK}/v2"], "a wrong price")
    page_of_week, later, last = pages()
    assert ("fines v1" in page_of_week, "fines v2" in page_of_week) == (True, False)
    assert (page_of_week.count(behind.message), "of another week" in page_of_week) == (3, False)
    assert ("fines v1" in later, last) == (True, "figures of fines v2")
    report.withdraw(target, [f"fines/{WEEK}/v1"], "a wrong price")
    assert "fines is not published" in pages()[0]


def test_a_report_without_anything_declared_has_its_files(
    offline_settings: Settings, library: dict[str, Any], tmp_path: Path
) -> None:
    write_manifest(tmp_path, "ops", {"exp_weekly__fines": library["exp_weekly__fines"]})
    published(offline_settings, "fines", ["title", "book 1"], {}, ("parquet",))
    page = page_of(offline_settings)
    assert re.findall(r'id="(.*?)"', page) == ["files"]
    names = {f"../fines/{WEEK}/v1/fines_{WEEK}_v1.{form}" for form in ("csv", "parquet")}
    links = dict(re.findall('<a href="(.*?)">(.*?)</a>', page))
    assert (without_folders(links), [*links.values()]) == (names, ["fines v1", "parquet"])


def test_what_is_declared_wrong_is_named(offline_settings: Settings, library: dict[str, Any], tmp_path: Path) -> None:
    library["lost_books"]["excluded"] = {"label": "Lost"}
    write_manifest(tmp_path, "ops", library)
    with pytest.raises(UserError, match=r"config\.meta\.excluded of lost_books is wrong at place"):
        page_of(offline_settings)


@pytest.mark.usefixtures("exports_declared")
def test_the_report_reads_a_file_as_written_and_quotes_no_row(
    offline_settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DuckDB guesses a dialect from the first 20,480 lines; the first quoted cell comes later here."""
    monkeypatch.setattr(report, "_count", lambda *_: 0)
    names = ("product_key", "channel_group", "order_value", "quantity", "customer_count", "is_suppressed")
    totals = {"order_value": "0", "quantity": "0", "customer_count": "0"}
    types = {name: "decimal(12,2)" if name in totals else "string" for name in names}
    columns = [{"name": name, "type": kind, "nulls": 0} for name, kind in types.items()]
    demand = {"dataset": "product_demand", "columns": columns, "control_totals": totals}
    rows = f"{','.join(names)}\n" + "shop-1,Digital,1.00,1,10,false\n" * 30_000
    rows += "shop-secret,Digital,30000.00,1,9,true\n"
    rows += '"web, ""shop""",Digital,20000.00,2,10,false\n'
    publish_content(open_target(offline_settings), rows, **demand)
    page = page_of(offline_settings)
    assert "shop-secret" not in page
    assert '<th scope="row">web, &#34;shop&#34;</th>' in page
    assert '<td class="number">20,000</td>' in page

    unreadable = f"{','.join(names)}\nshop-1,Digital,4111-1111,1,10,false\n"
    file = Path(publish_content(open_target(offline_settings), unreadable, NEXT_WEEK, **demand).file)
    page = page_of(offline_settings, week=NEXT_WEEK)
    assert "ranking-product_demand" not in page
    assert f"is missing: see what `lakehouse export verify --week {NEXT_WEEK}` reports" in page
    assert "4111" not in page
    unlock(file.parent)
    file.unlink()
    assert page_of(offline_settings, week=NEXT_WEEK) == page


def test_a_withheld_dataset_is_never_shown_as_zero(
    offline_settings: Settings, library: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library["exp_weekly__shelves"]["export"]["audience"] = "partners"
    write_manifest(tmp_path, "ops", library)
    monkeypatch.setenv("LAKEHOUSE_EXPORT_AUDIENCE", "")
    target, of_north = open_target(offline_settings), {"branch": {"north": {"rows": "2", "loans": "7"}}}
    publish_content(target, "title,loans\n", "2020-W52", dataset="loans", totals_by=of_north)
    page = page_of(offline_settings, [withheld("loans")])
    # On top, in the place of its chart, and next to the files.
    assert page.count(withheld("loans").message) == 3
    assert "shelves is not published for 2020-W53" in page
    for shown_as_zero in ("-100.0", ">0<", "None.", 'id="chart-'):
        assert shown_as_zero not in page
    # A channel without a row in a published week is 0.
    published(offline_settings, "loans", ["title,loans"], {"loans": "0"})
    of_south = {"branch": {"south": {"rows": "2", "loans": "5"}}}
    publish_content(target, "title,loans\n", NEXT_WEEK, dataset="loans", totals_by=of_south)
    page = page_of(offline_settings, week=NEXT_WEEK)
    assert re.findall(r'<th scope="row">(north|south)</th>.*?<td class="number">(\d+)</td>', page, re.S) == [
        ("south", "5"),
        ("north", "0"),
    ]
    # The root of another audience has no chart of what is not meant for it.
    monkeypatch.setenv("LAKEHOUSE_EXPORT_AUDIENCE", "partners")
    page = page_of(offline_settings, week="2021-W02")
    assert re.findall(r"(\w+) is not published", page) == ["shelves"] * 2


@pytest.mark.usefixtures("exports_declared")
def test_the_sales_of_eight_weeks_are_those_of_manifests(
    offline_settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of no file a row is read; a version of an older release has no figures by channel."""
    monkeypatch.setattr(report, "_count", lambda *_: None)
    monkeypatch.setattr(report.csv_file, "rows_of", failing)
    week, files = IsoWeek.parse(WEEK), []
    for weeks, amount in enumerate(("300.00", "200.00", None, "100.00", "50.00")):
        by_channel = {"store": {"rows": "2", "line_amount": amount}} if amount else {}
        version = publish_content(
            open_target(offline_settings),
            f"{weeks}",
            str(week.minus(weeks)),
            dataset="order_lines",
            # The oldest version is of before the charted measure was declared.
            totals_by={"channel": by_channel if weeks < 4 else {"store": {"rows": "2"}}},
            control_totals={"line_amount": amount or "0"},
        ).manifest
        files.append(f"{version.path}/{version.file}")
    page = page_of(offline_settings, [warning("of W53"), warning("other", NEXT_WEEK)])
    assert [name in page for name in ("of W53", "other")] == [True, False]
    assert '<th scope="row">store</th>' in page
    labels = re.findall('<div class="tile"><span class="soft">(.*?)</span><b>(.*?)</b>', page)
    assert labels == [("Gross order value", "300"), ("Order lines", "1")]
    assert re.search(
        '<h2>Gross order value by channel</h2>.*<table id="chart-order_lines">.*<th scope="col">Channel</th>',
        page,
        re.S,
    )
    assert "<title>2020-W50: 100</title>" in page
    assert "<title>2020-W51" not in page
    # The week before had 200; the four weeks before 200, 0, 100, and 50 without the measure by channel.
    [tile, _] = re.findall(r'<div class="tile">.*?</div>', page, re.S)
    assert re.findall(r"[+-][\d.]+ % on the [\w ]+", tile) == [
        "+50.0 % on the week before",
        "+242.9 % on the mean of 4 weeks",
    ]
    [row] = re.findall(r'<tr><th scope="row">store</th>.*?</tr>', page, re.S)
    assert re.findall(r'<td class="number">(.*?)</td>', row) == ["300", "200", "+50.0 %", "100", "+200.0 %"]
    link = f'<a href="../{files[0]}">order_lines v1</a>'
    assert link in tile
    # Once per tile, in the chart, and in the list of files.
    assert page.count(link) == 4
    assert page.count("in the currency units of the source") == 1


def test_a_ranking_has_names_of_another_file_or_its_keys(
    offline_settings: Settings, library: dict[str, Any], tmp_path: Path
) -> None:
    from_titles = {"of": "titles", "key": "number", "prefix": "book-"}
    columns = [
        {"column": "title", "heading": "Book"} | from_titles,
        {"column": "author", "heading": "By"} | from_titles,
    ]
    library["exp_weekly__loans"]["export"]["display"] = {"ranking": {**RANKING, "key": "item", "columns": columns}}
    write_manifest(tmp_path, "ops", library)
    published(offline_settings, "loans", ["item,loans", "book-1,3", "book-2,2", "film-1,1"], {"loans": "6"})

    def ranked() -> list[tuple[str, str]]:
        [ranking] = re.findall(
            r'<section>(?:(?!<section>).)*id="ranking-loans".*?</section>', page_of(offline_settings), re.S
        )
        links = re.findall(r'href="../(\w+)/', ranking)
        assert links == [name for name in ("loans", "titles") if (Path(offline_settings.export_root) / name).exists()]
        return re.findall(r'<th scope="row">(.*?)</th>\s*<td>(.*?)</td>', ranking)

    assert ranked() == [("book-1", ""), ("book-2", ""), ("film-1", "")]
    published(
        offline_settings, "titles", ["number,title,author", "1,'-Dune,''Herbert", "1,Sand,Anon", "3,Emma,Austen"], {}
    )
    # Name and author are of one row, without the guard against formulas.
    assert ranked() == [("-Dune", "&#39;&#39;Herbert"), ("book-2", ""), ("film-1", "")]


@pytest.mark.usefixtures("library")
def test_what_a_file_lacks_is_next_to_it_with_the_reason(offline_settings: Settings) -> None:
    publish_content(
        open_target(offline_settings),
        "title,loans\n",
        dataset="loans",
        quarantined=1200,
        quarantined_by_reason={"no order": 1200},
        withheld_rows={"e-mail address in title": 2},
        small_groups=SmallGroups(threshold=10, suppressed=3),
    )
    late = withheld("loans")
    [files] = re.findall(r'<table id="files">.*?</table>', page_of(offline_settings, [late]), re.S)
    assert re.findall("<div>(.*?)</div>", files) == [
        late.message,
        "quarantined, no order: 1,200",
        "withheld, may be personal data, e-mail address in title: 2",
        "suppressed, groups of fewer than 10 persons, and the next larger one of a total: 3",
    ]
    # A dataset without a version is a row too.
    assert re.findall(r"(\w+) is not published", files) == ["fines", "shelves"]
