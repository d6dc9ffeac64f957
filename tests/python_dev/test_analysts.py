"""The page for analysts, of the project's manifest: complete, as the proof has it, escaped, searchable."""

import html
import json
import re
import shutil
import subprocess
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest

from python_common.catalog.catalog import load_catalog
from python_common.config.settings import Settings
from python_common.errors import UserError
from python_dbt.manifest import DbtManifest
from python_dbt.pii import proof
from python_dbt.pii.origins import origins
from python_dev.analysts import freshness, main, page, public
from python_export.datasets.dictionary import of_model
from python_export.publishing.directory import Directory
from python_export.publishing.target import Target
from tests.support.hostile_rows import draft
from tests.support.reviewed import with_nodes
from tests.support.versions import publish_file

HOSTILE = "<script>alert('x')</script> & \"y\""


@pytest.fixture(scope="module")
def html_page(compiled_project: DbtManifest) -> str:
    return page("Shop", compiled_project, None, None)


def row(html_page: str, table: str, column: str) -> str:
    """Return the row of a column, as text of HTML."""
    return re.search(rf'<tr id="{table}\.{column}">.*?</tr>', html_page, re.DOTALL)[0]


def test_only_public_columns_are_on_the_page_with_descriptions(compiled_project: DbtManifest, html_page: str) -> None:
    models = public(compiled_project)
    assert {model.schema for model in models} == {"marts", "exports"}
    sections = re.findall(r'<section id="(\w+)" class="table">', html_page)
    assert sorted(sections) == sorted(model.name for model in models)
    assert "its SQL cannot be followed" not in html_page
    for model in models:
        for name, column in model.columns.items():
            cells = html.unescape(row(html_page, model.name, name))
            assert column.data_type in cells, (model.name, name)
            assert column.description
            assert " ".join(column.description.split()) in cells, (model.name, name)


@pytest.mark.parametrize(
    ("table", "column", "text"),
    [
        ("dim_customers", "email_pseudonym", "Personal data: email, masked as pseudonym"),
        # Declared, with the rows that it is about.
        ("exp_weekly__order_lines", "customer_key", "Personal data: user, masked as pseudonym of the stores"),
        ("exp_weekly__product_demand", "order_value", "decimal(38,2), currency units"),
        ("fct_orders", "channel_group", "One of Physical, Digital, Other"),
        ("fct_trades", "total_price", "bronze.stock_trades: price, quantity"),
    ],
)
def test_a_column_shows_class_mask_unit_values_and_source(html_page: str, table: str, column: str, text: str) -> None:
    assert text in row(html_page, table, column)
    assert "Personal data" not in row(html_page, "dim_customers", "segment")


def test_each_amount_and_count_of_a_public_table_has_a_unit(compiled_project: DbtManifest) -> None:
    counts = ("quantity", "stock", "_count", "_count_30d")
    fields = [(model.name, field) for model in public(compiled_project) for field in of_model(model)]
    measures = {
        (model, field.name): field.unit
        for model, field in fields
        if field.type.startswith("decimal") or field.name.endswith(counts)
    }
    assert len(measures) > 50
    assert [column for column, unit in measures.items() if not unit] == []


def test_sources_of_a_column_are_those_of_the_proof(compiled_project: DbtManifest) -> None:
    lineage, listed = proof.resolve(compiled_project), origins(compiled_project)
    landed = {node.name: lineage.landed[node.unique_id] for node in compiled_project.models if node.schema == "staging"}
    carried = 0
    for model in public(compiled_project):
        for name, flows in lineage.relations[model.unique_id].columns:
            origin = listed[model.unique_id][name]
            # The proof also has what decides on rows, so that it has more.
            assert {*origin.masked} <= {(flow.pii, flow.mask) for flow in flows}, (model.name, name)
            for flow in flows:
                if not flow.computed and flow.column.startswith("stg_"):
                    staging, column = flow.column.split(".")
                    assert landed[staging][column] <= {*origin.sources}, (model.name, name)
                    assert (flow.pii, flow.mask) in origin.masked
                    carried += 1
    assert carried


def test_a_column_shows_all_that_it_is_made_of(html_page: str) -> None:
    made_of = re.findall(r"masked\.int_trades_masked\.(\w+)", row(html_page, "fct_trades", "total_price"))
    assert made_of == ["price", "quantity"]


def test_an_analysis_is_with_each_table_that_it_reads(html_page: str) -> None:
    for table in ("fct_order_lines", "fct_product_sales", "fct_completed_orders"):
        section = re.search(rf'<section id="{table}" class="table">.*?</section>', html_page, re.DOTALL)[0]
        assert "shop_money_of_a_week reads" in section
        assert f"from marts.{table}" in section


def test_each_table_has_a_question(html_page: str) -> None:
    sections = re.findall(r'<section id="(\w+)" class="table">(.*?)</section>', html_page, re.DOTALL)
    assert [table for table, section in sections if "<h3>Questions</h3>" not in section] == []


@pytest.mark.parametrize("sql", ["select * from somewhere.unknown", None])
def test_a_model_that_cannot_be_followed_has_no_origin(compiled_project: DbtManifest, sql: str | None) -> None:
    trades = compiled_project.named("fct_trades")
    damaged = with_nodes(compiled_project, replace(trades, compiled_code=sql))
    assert "Unknown: its SQL cannot be followed" in row(page("Shop", damaged, None, None), "fct_trades", "side")


def test_a_manifest_without_compiled_sql_is_refused(parsed_project: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"manifest\.json has no compiled SQL"):
        main(parsed_project / "manifest.json", tmp_path / "analysts.html")


def test_hostile_text_is_escaped(compiled_project: DbtManifest) -> None:
    trades = compiled_project.named("fct_trades")
    columns = {**trades.columns, "side": replace(trades.columns["side"], description=HOSTILE)}
    hostile = replace(trades, description=f"One row per {HOSTILE}", columns=columns)
    [analysis] = [node for node in compiled_project.nodes.values() if node.name == "brand_sales"]
    changed = with_nodes(compiled_project, hostile, replace(analysis, description=HOSTILE, compiled_code=HOSTILE))
    html_page = page(HOSTILE, changed, None, None)
    assert "alert(" in html_page
    assert "<script>alert" not in html_page


def test_nothing_is_requested_and_each_link_has_its_target(html_page: str) -> None:
    assert "http" not in html_page
    assert re.findall(r"\bsrc|@import|url\(", html_page) == []
    links = {*re.findall(r'href="([^"]*)"', html_page)}
    assert links
    assert links <= {f"#{anchor}" for anchor in re.findall(r'id="([^"]*)"', html_page)}


def test_without_lake_and_export_root_the_page_states_it(compiled_project: DbtManifest, html_page: str) -> None:
    assert "unknown, for there is no lake" in html_page
    assert "order_lines: nothing is published" in html_page
    assert (
        freshness(None, compiled_project.named("fct_order_lines_excluded")) == "a view: as fresh as the tables it reads"
    )


def test_the_newest_version_is_shown_with_its_figures(compiled_project: DbtManifest, tmp_path: Path) -> None:
    target = Target(Directory(tmp_path / "exports"))
    for week in ("2020-W52", "2020-W53"):
        totals = {"line_amount": "1292817.70", "quantity": "15124"}
        publish_file(target, "a\n1\n", replace(draft(week), dataset="order_lines", control_totals=totals))
    shown = "order_lines: 2020-W53, version 1, 1 rows, line_amount 1,292,817.70, quantity 15,124"
    assert shown in page("Shop", compiled_project, None, target)


def test_freshness_is_the_time_of_the_newest_snapshot(
    compiled_project: DbtManifest, offline_settings: Settings
) -> None:
    catalog, model = load_catalog(offline_settings, create=True), compiled_project.named("fct_trades")
    assert freshness(catalog, model) == "not built yet"
    catalog.create_namespace(model.schema)
    rows = pa.table({"side": ["BUY"]})
    table = catalog.create_table(model.table, rows.schema)
    assert freshness(catalog, model) == "not built yet"
    table.append(rows)
    newest = datetime.fromtimestamp(table.current_snapshot().timestamp_ms / 1000, UTC)
    assert freshness(catalog, model) == f"{newest:%Y-%m-%d %H:%M} UTC"
    # No file of data is read.
    for file in table.inspect.files()["file_path"].to_pylist():
        Path(file.removeprefix("file://")).unlink()
    assert freshness(catalog, model) == f"{newest:%Y-%m-%d %H:%M} UTC"


# A window of Chromium is at least 500 pixels wide, a frame may be narrower. The page writes into its parent what is so.
FRAME = """<body><iframe width="400" height="900" srcdoc="{page}"></iframe></body>"""
PROBE = """<script>
const listed = () => [...document.querySelectorAll("[data-table]")].filter((item) => item.offsetHeight).length;
const type = (text) => { search.value = text; search.dispatchEvent(new Event("input")); return listed(); };
parent.document.body.dataset.probe = JSON.stringify({
  width: innerWidth, scrolled: document.documentElement.scrollWidth, all: listed(), none: type("no such thing"),
  trades: type("Trader_Pseudonym"), again: type(""), requests: performance.getEntriesByType("resource").length,
});
</script>"""


def test_the_page_can_be_searched_and_read(compiled_project: DbtManifest, html_page: str, tmp_path: Path) -> None:
    """In a real browser, without a network."""
    frame, shown = tmp_path / "page.html", html_page.replace("<details>", "<details open>")
    frame.write_text(FRAME.format(page=html.escape(shown.replace("</body>", f"{PROBE}</body>"))))
    browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    assert browser, "Chromium is missing: `make browser` installs it"
    offline = ("--headless", "--no-sandbox", "--disable-gpu", "--host-resolver-rules=MAP * ~NOTFOUND")
    command = [browser, *offline, "--window-size=1100,1600", "--dump-dom", frame.as_uri()]
    dumped = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout
    seen = json.loads(html.unescape(re.search(r'data-probe="([^"]*)"', dumped)[1]))
    assert seen["scrolled"] <= seen["width"] == 400
    assert seen["all"] == seen["again"] == len(public(compiled_project))
    assert (seen["none"], seen["trades"], seen["requests"]) == (0, 1, 0)
