"""Which published weeks late data has changed."""

from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog

from lakehouse.errors import UserError
from lakehouse.settings import Settings
from lakehouse.weeks import weeks_between, weeks_label
from python_export.datasets.build import FIGURES_TABLE
from python_export.publishing import late
from python_export.publishing.target import Target, open_target
from tests.support.hostile_rows import draft

OLD, NEW = "2020-W52", "2020-W53"


def figures(**changed: Any) -> str:
    """Return the figures of a week as the table has them."""
    return late.as_text({"total_rows": 3, "money": "1.10", "key_version": "v1", "fingerprint": "77"} | changed)


@dataclass
class Exports:
    """What is published, as far as the question is which weeks have changed."""

    catalog: Catalog
    target: Target
    versions: list[str] = field(default_factory=list)

    def publish(self, dataset: str, week: str, now: late.Figures) -> None:
        self.versions.append(f"{dataset}/{week}/v1")
        self.note(dataset, week, now)

    def note(self, dataset: str, week: str, now: late.Figures) -> None:
        late.note(self.catalog, self.target, [replace(draft(week), dataset=dataset)], now)

    def due(self, now: late.Figures) -> dict[str, list[str]]:
        found = late.changed(self.catalog, self.target, self.versions, now, ("events", "orders"))
        return {str(week): names for week, names in found.items()}


@pytest.fixture
def exports(catalog: Catalog, offline_settings: Settings) -> Exports:
    return Exports(catalog, open_target(offline_settings))


def test_a_week_is_due_when_its_figures_changed_and_until_it_was_exported(exports: Exports) -> None:
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
    # A week that lost all its rows, and a rotated key.
    assert exports.due({("events", NEW): figures()}) == {OLD: ["events"]}
    assert exports.due(later | {("events", NEW): figures(key_version="v2", fingerprint="79")}) == {}


def test_a_version_without_a_note_is_due(exports: Exports) -> None:
    """A run may die between the version and the note of it; versions of older releases have none."""
    exports.publish("events", NEW, {})
    exports.versions.append(f"events/{OLD}/v1")
    assert exports.due({}) == {OLD: ["events"]}


def test_a_dataset_that_was_withheld_is_due_and_one_that_is_new_is_not(exports: Exports) -> None:
    for week in (OLD, NEW):
        exports.publish("events", week, {})
    assert exports.due({}) == {}
    exports.publish("orders", OLD, {})
    assert exports.due({}) == {NEW: ["orders"]}


def test_another_export_root_has_notes_of_its_own(exports: Exports, offline_settings: Settings) -> None:
    exports.publish("events", NEW, {})
    exports.target = open_target(offline_settings.changed(export_root="/elsewhere"))
    assert exports.due({}) == {NEW: ["events"]}


def test_the_figures_are_those_of_the_table(catalog: Catalog) -> None:
    assert late.figures(catalog) == {}
    catalog.create_namespace("ops")
    rows = [
        {"dataset_name": "events", "week_label": week, "total_rows": 3, "fingerprint": "77"} for week in (OLD, None)
    ]
    arrow = pa.Table.from_pylist(rows)
    catalog.create_table(FIGURES_TABLE, arrow.schema).append(arrow)
    assert late.figures(catalog) == {("events", OLD): late.as_text(rows[0])}


def test_a_range_of_weeks_has_both_ends_and_crosses_a_long_year() -> None:
    weeks = weeks_between("2020-W52..2021-W01")
    assert [str(week) for week in weeks] == ["2020-W52", "2020-W53", "2021-W01"]
    assert weeks_label(weeks) == "2020-W52..2021-W01"
    assert weeks_label(weeks_between("2020-W53..2020-W53")) == "2020-W53"
    for wrong, message in {"2020-W52": "is not a range", "2021-W01..2020-W53": "ends before it begins"}.items():
        with pytest.raises(UserError, match=message):
            weeks_between(wrong)
