"""Old weeks are removed from the export root, with what keeps their snapshots, and count as published."""

import json
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial

import pytest
from pyiceberg.catalog import Catalog

from python_common.catalog import commits
from python_common.config.settings import Settings
from python_common.weeks import IsoWeek
from python_export.datasets.dictionary import Field
from python_export.notify import index, outbox
from python_export.notify.messages import report_path
from python_export.publishing import hold, late
from python_export.publishing.manifest import newest, paths
from python_export.publishing.target import Target
from python_export.publishing.versions import tag_snapshot
from python_export.variables import Channels
from tests.support.hostile_rows import draft, hostile_rows, source_of
from tests.support.in_process import Command
from tests.support.versions import overwrite, publish_file

OLDEST, OLD, NEW = "2020-W51", "2020-W52", "2020-W53"


@pytest.fixture
def expire(published_to: Settings, export: Command) -> Command:
    """Run `export expire` for weeks that ended before the newest one began."""
    days = (datetime.now(UTC) - IsoWeek.parse(NEW).start).days
    return partial(export, published_to, "expire", "--keep", f"{days}d")


@pytest.fixture
def published(target: Target, catalog: Catalog) -> list[str]:
    """Versions of three weeks, two of the oldest, each with a tag, a row of the outbox and a report."""
    source = source_of(catalog, hostile_rows())
    table = {"source_table": "lake.shop.exp_weekly__events", "source_snapshot_id": str(source.snapshot_id)}
    for number, week in enumerate((OLDEST, OLDEST, OLD, NEW)):
        described = replace(draft(week), **table)
        version = publish_file(target, f"note\n{number}\n", described, [Field("note", "")]).manifest
        tag_snapshot(catalog, target, version)
        target.put(report_path(IsoWeek.parse(week)), b"<p>")
    outbox.record_versions(catalog, target, Channels.of({}), [])
    index.write(target)
    return paths(target)


def tags(catalog: Catalog) -> set[str]:
    return {name.rpartition("-2020-")[2] for name in catalog.load_table("shop.exp_weekly__events").refs()} - {"main"}


def test_weeks_older_than_what_is_kept_are_gone_and_not_due(
    published: list[str], target: Target, catalog: Catalog, expire: Command
) -> None:
    assert published == [f"events/{OLDEST}/v1", f"events/{OLDEST}/v2", f"events/{OLD}/v1", f"events/{NEW}/v1"]

    def versions(*options: str) -> list[str]:
        return ["{dataset}/{week}/v{version}".format(**one) for one in json.loads(expire(*options, "--json").stdout)]

    assert versions("--dry-run") == published[:3]
    assert paths(target) == published
    # The first week of events, and that of orders, were never published.
    held = [f"events/{OLD}", f"events/{NEW}", "events/2020-W50", "orders/2020-W50", "orders/2021-W01"]
    elsewhere = f"{target.address('trial')}/events/2020-W50"
    addresses = [*map(target.address, held), elsewhere]
    hold.TABLE.change(catalog, lambda _: {address: hold.Hold(address, "", "") for address in addresses})

    assert versions("others") == []
    assert len(hold.TABLE.rows(catalog)) == 6
    assert versions() == published[:3]
    assert paths(target) == published[3:]
    assert tags(catalog) == {"W53-v1"}
    left = {elsewhere, *map(target.address, [f"events/{NEW}", "orders/2021-W01"])}
    assert hold.TABLE.rows(catalog).keys() == left
    for week, is_there in {OLDEST: False, OLD: False, NEW: True}.items():
        try:
            target.read(report_path(IsoWeek.parse(week)))
        except FileNotFoundError:
            assert not is_there
        else:
            assert is_there
    feed = json.loads(target.read("versions.json"))
    assert [version["week"] for version in feed["datasets"]["events"]] == [NEW]
    assert outbox.missing_versions(catalog, target) == []
    assert newest(target, "events").week == NEW
    due, _ = late.weeks_to_export(catalog, target, {}, ["events"], IsoWeek.parse(NEW), 99)
    assert [(name, str(week)) for name, week in due] == [("events", NEW)]
    before = paths(target)
    assert versions() == []
    assert paths(target) == before


def test_the_newest_week_of_a_dataset_stays_however_old(
    published: list[str], target: Target, catalog: Catalog, published_to: Settings, export: Command
) -> None:
    address = target.address(f"events/{NEW}")
    hold.TABLE.change(catalog, lambda _: {address: hold.Hold(address, "", "")})
    assert export(published_to, "expire", "--keep", "1w").exit_code == 0
    assert paths(target) == published[3:]
    # Its late data may be held.
    assert hold.TABLE.rows(catalog).keys() == {address}


@pytest.mark.parametrize("step", ["tag", "files", "report"])
def test_an_expiry_that_was_cut_off_is_completed(
    published: list[str], target: Target, catalog: Catalog, expire: Command, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cut_off(*_: object) -> None:
        raise OSError

    with monkeypatch.context() as broken:
        steps = {"tag": (commits, "remove_tag"), "files": (type(target), "remove"), "report": (type(target), "delete")}
        broken.setattr(*steps[step], cut_off)
        assert isinstance(expire().exception, OSError)
    assert published[0] in paths(target)
    assert outbox.missing_versions(catalog, target) == []
    assert expire().exit_code == 0
    for week in (OLDEST, OLD):
        with pytest.raises(FileNotFoundError):
            target.read(report_path(IsoWeek.parse(week)))
    assert paths(target) == published[3:]
    assert tags(catalog) == {"W53-v1"}


def test_an_unreadable_manifest_stops_an_expiry(
    published: list[str], target: Target, catalog: Catalog, expire: Command
) -> None:
    overwrite(target, f"{published[0]}/manifest.json", b"{")
    done = expire("--json")
    assert f"events/{OLDEST}/v1/manifest.json is missing or damaged" in str(done.exception)
    assert [version["week"] for version in json.loads(done.stdout)] == [OLDEST, OLD]
    assert paths(target) == [published[0], published[3]]
    feed = json.loads(target.read("versions.json"))
    assert [version["week"] for version in feed["datasets"]["events"]] == [NEW]
    assert target.read(report_path(IsoWeek.parse(OLDEST))) == b"<p>"
