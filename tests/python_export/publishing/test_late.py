"""Which weeks are due: never published, or changed by late data."""

import json
import random
import shutil
from collections.abc import Collection
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from typer.testing import CliRunner

from python_common.config.settings import Settings
from python_common.errors import DeadlineError, Issue, UserError
from python_common.locks import lock
from python_common.locks.lease import alone
from python_common.weeks import IsoWeek, weeks_between
from python_dbt.run import FIGURES_TABLE
from python_export.cli import run as cli
from python_export.publishing import hold, late
from python_export.publishing.manifest import Manifest
from python_export.publishing.publish import withdraw
from python_export.publishing.target import Target, open_target
from python_export.readiness.decision import Decision, Decisions
from python_export.run import Run
from python_jobs.weekly import cli as weekly
from tests.support.hostile_rows import draft
from tests.support.in_process import Command
from tests.support.versions import publish_content

OLD, NEW = "2020-W52", "2020-W53"


def figures(**changed: Any) -> str:
    """Return the figures of a week as the table has them."""
    return late.as_text({"total_rows": 3, "money": "1.10", "key_version": "v1", "fingerprint": "77"} | changed)


@dataclass
class Exports:
    """What is published, as far as the question is which weeks have changed."""

    catalog: Catalog
    target: Target

    def publish(self, dataset: str, week: str, now: late.Figures | None, manifest: Manifest | None = None) -> None:
        """Publish a week, and record its figures if there are some."""
        directory = Path(self.target.address(f"{dataset}/{week}/v1"))
        directory.mkdir(parents=True)
        (directory / "manifest.json").write_text(manifest.text() if manifest else "{}")
        if now is not None:
            self.note(dataset, week, now)

    def note(self, dataset: str, week: str, now: late.Figures) -> None:
        late.record_figures(self.catalog, self.target, [(dataset, week)], now)

    def due(
        self, now: late.Figures, until: str = NEW, at_most: int = 99, once: Collection[str] = ()
    ) -> dict[str, list[str]]:
        names, last = ("events", "orders"), IsoWeek.parse(until)
        due, self.left = late.weeks_to_export(self.catalog, self.target, now, names, last, at_most, once)
        return {str(week): [name for name, its_week in due if its_week == week] for _, week in due}


@pytest.fixture
def exports(catalog: Catalog, offline_settings: Settings) -> Exports:
    return Exports(catalog, open_target(offline_settings))


def test_a_week_with_changed_figures_is_not_due(exports: Exports) -> None:
    now = {("events", OLD): figures(), ("events", NEW): figures()}
    assert exports.due(now) == {}
    exports.publish("events", OLD, now)
    exports.publish("events", NEW, now)
    assert exports.due(now) == {}
    for changed in (figures(total_rows=4), figures(fingerprint="78"), figures(key_version="v2", money="1.20")):
        later = now | {("events", OLD): changed}
        assert exports.due(later) == {OLD: ["events"]}
    exports.note("events", OLD, later)
    assert exports.due(later) == {}
    # A week that lost all its rows, a rotated key and changed masks.
    assert exports.due({("events", NEW): figures()}) == {OLD: ["events"]}
    for version in ("v2", "v1-0a1b2c3d", None):
        assert exports.due(later | {("events", NEW): figures(key_version=version, fingerprint="79")}) == {}


def test_another_export_root_has_its_own_records(exports: Exports, offline_settings: Settings, tmp_path: Path) -> None:
    exports.publish("events", NEW, {})
    exports.target = open_target(offline_settings.changed(export_root=str(tmp_path / "elsewhere")))
    assert exports.due({}) == {}
    exports.publish("events", NEW, None)
    assert exports.due({}) == {NEW: ["events"]}


def test_changed_weeks_come_before_those_never_published(exports: Exports) -> None:
    for number in (40, 41, 42, 44, 46):
        exports.publish("events", f"2020-W{number}", None)
    assert [*exports.due({}, until="2020-W47", at_most=2)] == [
        *("2020-W43", "2020-W45", "2020-W47"),
        *("2020-W46", "2020-W44"),
    ]
    assert [*map(str, exports.left)] == ["2020-W42", "2020-W41", "2020-W40"]


def test_held_weeks_keep_a_run_from_others(exports: Exports) -> None:
    weeks = [f"2020-W{number}" for number in range(45, 49)]
    for week in weeks:
        exports.publish("events", week, {("events", week): figures()})
    exports.publish("orders", "2020-W48", {("orders", "2020-W48"): figures()})
    later = {(name, week): figures(total_rows=4) for name in ("events", "orders") for week in weeks}
    assert [*exports.due(later, until="2020-W48", at_most=2)] == ["2020-W48", "2020-W47"]
    addresses = [exports.target.address(f"events/{week}") for week in weeks[1:]]
    holds = {address: hold.Hold(address, "0", "far off") for address in addresses}
    hold.TABLE.change(exports.catalog, lambda _: holds)
    # Orders of week 48 are not.
    assert [*exports.due(later, until="2020-W48", at_most=2)] == ["2020-W48", "2020-W45"]
    hold.TABLE.change(exports.catalog, lambda _: {key: replace(row, approved="a sale") for key, row in holds.items()})
    assert [*exports.due(later, until="2020-W48", at_most=2)] == ["2020-W48", "2020-W47"]


def test_a_week_has_its_one_version_twice_in_known_roots(
    exports: Exports, offline_settings: Settings, tmp_path: Path, random_seed: int
) -> None:
    """Runs in two announced roots and two trials, some of which fail; versions that are withdrawn or moved away."""
    chance = random.Random(random_seed)
    roots = [open_target(offline_settings.changed(export_root=str(tmp_path / name))) for name in "abcd"]
    in_lake: set[tuple[str, str]] = set()
    in_root: dict[Target, set[tuple[str, str]]] = {root: set() for root in roots}
    for _ in range(12):
        exports.target = root = chance.choice(roots)
        is_announced = root in roots[:2]
        once = late.published_once(exports.catalog, root, ["events"], is_announced)
        assert once == in_root[root] | (in_lake if is_announced else set())
        week = chance.choice((OLD, NEW))
        asked = [(name, IsoWeek.parse(week)) for name in ("events", "orders")]
        due, versions, warnings = late.without_published(root, asked, once)
        assert due == asked[("events", week) in once :]
        is_there = ("events", week) in in_root[root]
        assert [version.unchanged for version in versions] == [True] * is_there
        assert len(warnings) == (("events", week) in once and not is_there)
        if ("events", week) not in once and chance.random() < 0.7:
            exports.publish("events", week, None, draft(week))
            in_root[root].add(("events", week))
            in_lake |= in_root[root] if is_announced else set()
        late.published_once(exports.catalog, root, ["events"], is_announced)
        if is_there and chance.random() < 0.3:
            shutil.rmtree(root.address(f"events/{week}"))
            in_root[root].remove(("events", week))
    assert late.published_once(exports.catalog, roots[0], [], True) == set()


def test_late_data_makes_a_week_with_one_version_due(exports: Exports) -> None:
    for dataset in ("events", "orders"):
        exports.publish(dataset, OLD, {})
    now = {("events", OLD): figures(), ("orders", OLD): figures()}
    assert exports.due(now, until=OLD) == {OLD: ["events", "orders"]}
    assert exports.due(now, until=NEW, once=["events"]) == {NEW: ["events", "orders"], OLD: ["orders"]}


def test_no_week_is_lost_whatever_happened_to_it(exports: Exports, random_seed: int) -> None:
    """Runs on random Mondays that publish, fail or skip each due week, and files that expire."""
    chance = random.Random(random_seed)
    weeks = weeks_between("2020-W50..2021-W06")
    exported: set[tuple[str, str]] = set()
    late.record_due(exports.catalog, exports.target, weeks[0], ("events",))
    for today in sorted({*chance.sample(weeks, 4), weeks[-1]}):
        for week, names in exports.due({}, until=str(today)).items():
            for name in names:
                assert (name, week) not in exported
                match chance.choice(["publish", "fail", "skip", "expire"]):
                    case "skip":
                        late.record_due(exports.catalog, exports.target, IsoWeek.parse(week), [name], "no data")
                    case "publish":
                        exports.publish(name, week, {})
                    case "expire":
                        exports.note(name, week, {})
                    case _:
                        continue
                exported.add((name, week))
    due = {(name, week) for week, names in exports.due({}, until=str(weeks[-1])).items() for name in names}
    assert due | exported == {("events", str(week)) for week in weeks}
    assert not due & exported


def test_the_figures_are_those_of_the_table(catalog: Catalog) -> None:
    assert late.figures(catalog) == {}
    catalog.create_namespace("ops")
    rows = [
        {"dataset_name": "events", "week_label": week, "total_rows": 3, "fingerprint": "77"} for week in (OLD, None)
    ]
    arrow = pa.Table.from_pylist(rows)
    catalog.create_table(FIGURES_TABLE, arrow.schema).append(arrow)
    assert late.figures(catalog) == {("events", OLD): late.as_text(rows[0])}


@pytest.mark.parametrize(
    "arguments",
    [
        ("product_demand", "--restate", "--week", NEW),
        ("product_demand", "--restate", "--reason", "a wrong price"),
        ("--restate", "--week", NEW, "--reason", "a wrong price"),
        ("product_demand", "--week", NEW, "--reason", "a wrong price"),
    ],
)
def test_a_restatement_names_dataset_week_and_reason(
    offline_settings: Settings, export: Command, arguments: tuple[str, ...]
) -> None:
    refused = export(offline_settings, "run", *arguments)
    assert (refused.exit_code, "--restate and --reason need each other" in refused.output) == (2, True)


def test_a_skipped_week_is_due_or_a_published_one_skipped(
    exports: Exports,
    offline_settings: Settings,
    exports_declared: object,
    export: Command,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = {("events", week): figures() for week in (OLD, NEW)}
    exports.publish("events", OLD, now)
    for week in (OLD, NEW):
        late.record_due(exports.catalog, exports.target, IsoWeek.parse(week), ["events"])
    assert exports.due(now) == {NEW: ["events"]}

    published = export(offline_settings, "skip", "--week", OLD, "--reason", "x", "events")
    assert isinstance(published.exception, UserError)
    assert published.exception.message == f"events {OLD} is published"
    unknown = export(offline_settings, "skip", "--week", NEW, "--reason", "x", "typo")
    assert isinstance(unknown.exception, UserError)
    assert exports.due(now) == {NEW: ["events"]}

    with monkeypatch.context() as patch, alone(exports.catalog, "weekly", f"weekly {NEW}"):
        patch.setattr(lock, "WAIT_SECONDS", 0.1)
        waited = export(offline_settings, "skip", "--week", NEW, "--reason", "a holiday", "events")
    assert isinstance(waited.exception, DeadlineError)
    skipped = export(offline_settings, "skip", "--week", NEW, "--reason", "a holiday", "events")
    assert (skipped.exit_code, skipped.output) == (0, f"{NEW} is skipped for events\n")
    assert exports.due(now) == {}
    assert late.TABLE.rows(exports.catalog)[late._address(exports.target, "events", NEW)].skipped == "a holiday"


def test_a_dry_run_of_the_weekly_job_lacks_a_due_week(
    exports: Exports, offline_settings: Settings, exports_declared: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    exports.publish("events", OLD, {("events", OLD): figures()}, draft(OLD))

    def read_no_topics(run: Run, *_: object) -> list[Issue]:
        run.exported.warnings.append("the field phone has no class")
        return []

    def dry_run(module: ModuleType, *arguments: str) -> list[dict[str, str]]:
        monkeypatch.setattr(module, "from_environment", lambda env=None: offline_settings)
        monkeypatch.setattr(module, "parse", lambda project: None)
        options = ("--week", NEW, "--dry-run", "--json")
        done = CliRunner().invoke(module.app, [*arguments, *options], catch_exceptions=False)
        return json.loads(done.stdout)

    def decide_to_publish(run: Run, due: late.WeeksToExport) -> Decisions:
        return dict.fromkeys(due, Decision((), ()))

    monkeypatch.setattr(Run, "read_topics", read_no_topics)
    monkeypatch.setattr(Run, "_decisions", decide_to_publish)
    of_week = dry_run(cli, "run", "--no-build")
    assert {row["week"] for row in of_week} == {NEW}
    older = {"dataset": "events", "week": OLD, "due_because": "v0 may differ", "withheld_by": ""}
    assert dry_run(weekly) == [*of_week, older]


def test_a_preview_takes_withdrawn_weeks_for_never_published(target: Target) -> None:
    def why(has_one_version: bool = False) -> str:
        return late.why_due(target, "events", IsoWeek.parse(NEW), has_one_version)

    assert why() == why(has_one_version=True) == "never published"
    for content in ("note\na\n", "note\nb\n"):
        publish_content(target, content, NEW)
    assert why() == "v2 may differ"
    withdraw(target, f"events/{NEW}/v2", "a wrong price")
    assert (why(), why(has_one_version=True)) == ("v1 may differ", "v1 is its one version")
    withdraw(target, f"events/{NEW}/v1", "a wrong price")
    assert why() == why(has_one_version=True) == "withdrawn"
