"""The pages for analysts: the charts of the report, and the search, in a real browser."""

import html
import json
import re
import shutil
import subprocess
from collections import Counter
from decimal import Decimal
from pathlib import Path

from python_dbt.manifest import DbtManifest
from python_dev.analysts import page as analysts_page
from python_dev.analysts import public
from tests.support.lake import Lake, newest


def browse(page: Path) -> str:
    """Return a page as headless Chromium has it, without a network, after its scripts."""
    browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    assert browser, "Chromium is missing: `make browser` installs it"
    offline = ("--headless", "--no-sandbox", "--disable-gpu", "--host-resolver-rules=MAP * ~NOTFOUND")
    done = subprocess.run(
        [browser, *offline, "--window-size=1100,1600", "--dump-dom", page.as_uri()],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    return done.stdout


def test_a_bar_is_as_long_as_what_it_represents(lake: Lake, first_wave: object) -> None:
    page = (Path(lake.settings.export_root) / "reports" / f"{lake.last_week}.html").read_text()
    [chart] = re.findall(r'<table id="chart-order_lines">.*?</table>', page, re.DOTALL)
    _, lines = newest(lake, "order_lines")
    by_channel: Counter[str] = Counter()
    for line in lines:
        by_channel[line["channel"]] += Decimal(line["line_amount"] or 0)
    amounts = [amount for _, amount in by_channel.most_common()]
    lengths = [Decimal(length) for length in re.findall(r'<rect class="now" width="([\d.]+)%"', chart)]
    assert len(lengths) == len(amounts)
    for length, amount in zip(lengths, amounts, strict=True):
        assert abs(length - 100 * amount / amounts[0]) < Decimal("0.01")


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


def test_the_page_for_analysts_can_be_searched_and_read(compiled_project: DbtManifest, tmp_path: Path) -> None:
    page = analysts_page("Shop", compiled_project, None, None).replace("<details>", "<details open>")
    frame = tmp_path / "page.html"
    frame.write_text(FRAME.format(page=html.escape(page.replace("</body>", f"{PROBE}</body>"))))
    seen = json.loads(html.unescape(re.search(r'data-probe="([^"]*)"', browse(frame))[1]))
    assert seen["scrolled"] <= seen["width"] == 400
    assert seen["all"] == seen["again"] == len(public(compiled_project))
    assert (seen["none"], seen["trades"], seen["requests"]) == (0, 1, 0)
