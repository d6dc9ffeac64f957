"""The pages for analysts, in a real browser: they show what is in files and models, and it can be seen."""

import html
import json
import re
import shutil
import subprocess
from collections import Counter
from decimal import Decimal
from itertools import pairwise
from pathlib import Path

import pytest
from PIL import Image

from python_common.config.environment import PROJECT_ROOT
from python_dbt.compile import compiled_manifest
from python_dbt.manifest import load
from python_dev.analysts import page as analysts_page
from python_dev.analysts import public
from tests.support.lake import Lake, newest

BAR = (0x1F, 0x5F, 0x8B)


def browse(page: Path, *arguments: str) -> str:
    """Open a page in headless Chromium, without a network."""
    browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    assert browser, "Chromium is missing: `make browser` installs it"
    offline = ("--headless", "--no-sandbox", "--disable-gpu", "--host-resolver-rules=MAP * ~NOTFOUND")
    done = subprocess.run(
        [browser, *offline, "--window-size=1100,1600", *arguments, page.as_uri()],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    return done.stdout


def test_the_report_shows_what_is_in_the_files(lake: Lake, first_wave: object, tmp_path: Path) -> None:
    page = Path(lake.settings.export_root) / "reports" / f"{lake.last_week}.html"
    dom = browse(page, "--dump-dom")
    manifest, lines = newest(lake, "order_lines")
    by_channel: Counter[str] = Counter()
    for line in lines:
        by_channel[line["channel"]] += Decimal(line["line_amount"] or 0)
    channels = re.search(r'<table id="chart-order_lines">.*?</table>', dom, re.DOTALL)[0]
    # In the order of what they sold, each as the page rounds it.
    assert re.findall(r'<th scope="row">(\w+)</th>', channels) == [name for name, _ in by_channel.most_common()]
    for amount in by_channel.values():
        assert f'<td class="number">{amount:,.0f}</td>' in channels
    _, sales = newest(lake, "product_sales")
    names: dict[str, str] = {}
    for sale in sales:
        key = f"shop-{sale['product_id']}"
        names[key] = min(sale["product_name"], names.get(key, sale["product_name"]))
    _, demand = newest(lake, "product_demand")
    ranked = sorted(
        (row for row in demand if row["is_suppressed"] == "false"),
        key=lambda row: (not row["order_value"], -Decimal(row["order_value"] or 0), row["product_key"]),
    )[:10]
    ranking = re.search(r'<table id="ranking-product_demand">.*?</table>', dom, re.DOTALL)[0]
    names_shown = [names.get(row["product_key"], row["product_key"]) for row in ranked]
    # The page shows no guards against formulas.
    guard = r"^'(?='*[=+@\t\r\n\uff1d\uff0b\uff0d\uff20-])"
    assert re.findall(r'<th scope="row">(.*?)</th>', html.unescape(ranking)) == [
        re.sub(guard, "", name) for name in names_shown
    ]
    link = f"../order_lines/{lake.last_week}/v{manifest['version']}/{manifest['file']}"
    assert f'href="{link}"' in dom
    for linked in re.findall(r'href="(.*?)"', dom):
        assert (page.parent / linked).exists()
    assert "http" not in dom
    assert "<script" not in dom

    browse(page, f"--screenshot={tmp_path / 'page.png'}", "--hide-scrollbars")
    with Image.open(tmp_path / "page.png") as picture:
        pixels = picture.convert("RGB")
        # The bars of the channels: as long, one against the other, as what they represent.
        rows = [sum(pixels.getpixel((x, y)) == BAR for x in range(100, 600)) for y in range(pixels.height)]
    lengths = [length for before, length in pairwise(rows) if length > 5 and before <= 5]
    most = max(by_channel.values())
    widest = max(rows)
    assert widest > 200
    for length, (_, amount) in zip(lengths, by_channel.most_common(), strict=False):
        assert abs(length - widest * amount / most) < 8
    assert len(lengths) >= len(by_channel)


def test_the_page_for_analysts_knows_where_each_column_comes_from(target: Path) -> None:
    assert "its SQL cannot be followed" not in analysts_page("Shop", load(target / "manifest.json"), None, None)


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


@pytest.mark.slow
@pytest.mark.stack
def test_the_page_for_analysts_can_be_searched_and_read(tmp_path: Path) -> None:
    manifest = compiled_manifest(PROJECT_ROOT)
    page = analysts_page("Shop", manifest, None, None).replace("<details>", "<details open>")
    frame = tmp_path / "page.html"
    frame.write_text(FRAME.format(page=html.escape(page.replace("</body>", f"{PROBE}</body>"))))
    seen = json.loads(html.unescape(re.search(r'data-probe="([^"]*)"', browse(frame, "--dump-dom"))[1]))
    assert seen["scrolled"] <= seen["width"] == 400
    assert seen["all"] == seen["again"] == len(public(manifest))
    assert (seen["none"], seen["trades"], seen["requests"]) == (0, 1, 0)
