"""The pages for analysts, as a real browser shows them."""

import html
import json
import re
import shutil
import subprocess
from collections import Counter
from decimal import Decimal
from itertools import pairwise
from pathlib import Path

from PIL import Image

from python_dbt.manifest import DbtManifest
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


def test_a_bar_is_as_long_as_what_it_represents(lake: Lake, first_wave: object, tmp_path: Path) -> None:
    page = Path(lake.settings.export_root) / "reports" / f"{lake.last_week}.html"
    _, lines = newest(lake, "order_lines")
    by_channel: Counter[str] = Counter()
    for line in lines:
        by_channel[line["channel"]] += Decimal(line["line_amount"] or 0)
    browse(page, f"--screenshot={tmp_path / 'page.png'}", "--hide-scrollbars")
    with Image.open(tmp_path / "page.png") as picture:
        pixels = picture.convert("RGB")
        rows = [sum(pixels.getpixel((x, y)) == BAR for x in range(100, 600)) for y in range(pixels.height)]
    lengths = [length for before, length in pairwise(rows) if length > 5 and before <= 5]
    most = max(by_channel.values())
    widest = max(rows)
    assert widest > 200
    for length, (_, amount) in zip(lengths, by_channel.most_common(), strict=False):
        assert abs(length - widest * amount / most) < 8
    assert len(lengths) >= len(by_channel)


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
    seen = json.loads(html.unescape(re.search(r'data-probe="([^"]*)"', browse(frame, "--dump-dom"))[1]))
    assert seen["scrolled"] <= seen["width"] == 400
    assert seen["all"] == seen["again"] == len(public(compiled_project))
    assert (seen["none"], seen["trades"], seen["requests"]) == (0, 1, 0)
