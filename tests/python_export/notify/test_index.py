"""The feed and the index page list what is published, and are repaired by the next run."""

import json
import re
from pathlib import Path
from urllib.parse import unquote

import pytest

from python_common.config.settings import Settings
from python_export.notify import index
from python_export.publishing.manifest import FileColumn, Manifest, SmallGroups, read
from python_export.publishing.publish import withdraw
from python_export.publishing.target import Target, open_target
from tests.support.versions import publish_content

OLD, NEW = "2020-W53", "2021-W01"
FILES = ("versions.json", "index.html")


def publish_version(target: Target, week: str, content: str, dataset: str = "events") -> Manifest:
    return publish_content(target, content, week, dataset=dataset, rows=1234).manifest


def entry(manifest: Manifest, **more: object) -> dict[str, object]:
    """Return what the feed must have of a version."""
    same = {name: getattr(manifest, name) for name in ("week", "version", "bytes", "sha256")}
    file = f"{manifest.path}/{manifest.file}"
    return {**same, "delivery": None, "rows": 1234, "file": file, "published_at": manifest.created_at, **more}


def index_of(target: Target) -> tuple[dict, str]:
    """Return feed and page as they are stored."""
    return json.loads(target.read("versions.json")), target.read("index.html").decode()


def test_a_version_without_its_neighbours_late_data_is_marked(target: Target) -> None:
    """Of a dataset with one version per week, in feed, page and pointer; until it is restated."""
    groups = SmallGroups(threshold=10, suppressed=3)
    reason = "one version per week, from before the late data of events v2 and orders v3"
    hours = iter(range(1, 24))

    def publish(dataset: str, rows: list[str], week: str = OLD, **fields: object) -> None:
        at = f"2021-01-04T{next(hours):02d}:00:00Z"
        columns = [FileColumn(name="note", type="string", nulls=0)]
        content = "\n".join(["note", *rows, ""])
        publish_content(target, content, week, dataset=dataset, columns=columns, created_at=at, **fields)
        index.write(target)

    def marks() -> list[str]:
        feed, shown_page = index_of(target)
        [in_feed] = [one.get("outdated", "") for one in feed["datasets"]["demand"] if one["week"] == OLD]
        in_pointer = json.loads(target.read("demand/latest.json")).get("outdated", "")
        in_page = re.findall(r'title="(.*?)">outdated<', shown_page)
        assert [check.issues for check in index.audit(target) if check.path == "demand/latest.json"] == [()]
        assert in_page == [in_feed] * bool(in_feed)
        return [in_feed, in_pointer]

    publish("events", ["a"])
    publish("orders", ["a"])
    publish("demand", ["a"], small_groups=groups)
    # Other data of another week, and a first version that was withheld before, are no late data.
    publish("events", ["a"], NEW)
    publish("events", ["b"], NEW)
    publish("lines", ["a"])
    assert marks() == ["", ""]
    for content in ("b", "c"):
        publish("orders", [content])
    publish("events", ["a", "late"])
    assert marks() == [reason, reason]
    publish("demand", ["a", "late"], small_groups=groups, restated="asked for")
    assert marks() == ["", ""]
    publish("events", ["later"])
    assert marks() == ["one version per week, from before the late data of events v3"] * 2
    withdraw(target, f"events/{OLD}/v3", "wrong")
    index.write(target)
    assert marks() == ["", ""]


def test_feed_and_page_list_current_and_withdrawn_versions(target: Target) -> None:
    reason = '"><script>a</script>'
    publish_version(target, OLD, "a")
    second = publish_version(target, OLD, "b")
    third = publish_version(target, OLD, "c")
    newer = publish_version(target, NEW, "a")
    orders = publish_version(target, OLD, "a", "customer_orders")
    for manifest in (third, orders):
        withdraw(target, manifest.path, reason)

    listed = index.write(target)

    feed, shown_page = index_of(target)
    withdrawn = {"withdrawn": {"on": read(target, third.path).withdrawn.on, "reason": reason}}
    assert feed == {
        "version": 1,
        "datasets": {
            "customer_orders": [entry(orders, **withdrawn)],
            "events": [entry(newer), entry(third, **withdrawn), entry(second)],
        },
    }
    assert [*feed["datasets"]] == ["customer_orders", "events"]
    assert [manifest.path for manifest in listed] == [one.path for one in (orders, newer, third, second)]
    assert re.findall(r'<th scope="row"><a href="(.*?)">', shown_page) == [f"reports/{NEW}.html", f"reports/{OLD}.html"]
    assert shown_page.count("1,234 rows") == 2
    assert shown_page.count("withdrawn on") == 2
    links = [unquote(link) for link in re.findall(r'href="(.*?)"', shown_page)]
    manifests = {f"{manifest.path}/manifest.json" for manifest in (orders, newer, third, second)}
    files = {f"{manifest.path}/{manifest.file}" for manifest in (newer, second)}
    assert {*links} == {*manifests, *files, f"reports/{NEW}.html", f"reports/{OLD}.html", "versions.json"}
    for link in manifests | files:
        target.read(link)
    assert "<script" not in shown_page
    assert not re.search(r"https?:|src=|url\(|@import", shown_page)


def test_the_next_run_repairs_what_a_dead_one_left(target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    publish_version(target, OLD, "a")
    index.write(target)
    # The run dies between this version and the files.
    publish_version(target, OLD, "b")
    assert [check.path for check in index.audit(target) if check.issues] == [*FILES]
    index.write(target)
    before = [target.read(path) for path in FILES]
    assert json.loads(before[0])["datasets"]["events"][0]["version"] == 2
    assert [check.issues for check in index.audit(target)] == [(), (), ()]

    with monkeypatch.context() as unchanged:
        unchanged.setattr(type(target), "put", lambda *_: pytest.fail("written again"))
        index.write(target)
    target.put("versions.json", b"{")
    target.delete("index.html")
    index.write(target)
    assert [target.read(path) for path in FILES] == before


def test_a_damaged_manifest_gives_way_to_the_version_before(offline_settings: Settings) -> None:
    target = open_target(offline_settings)
    first = publish_version(target, OLD, "a")
    second = publish_version(target, OLD, "b")
    damaged = Path(target.address(second.path)) / "manifest.json"
    damaged.chmod(0o644)
    damaged.write_text("{")
    index.write(target)
    assert index_of(target)[0]["datasets"] == {"events": [entry(first)]}
