"""A fresh lake: an export builds what it needs, then the weekly job publishes several weeks.

The lake is that of test_erased_person.py, test_evolutions.py and test_one_bad_thing.py, which go on with it.
"""

import json
from pathlib import Path

import pytest

from python_common.catalog.catalog import load_catalog
from python_jobs.weekly import history
from tests.end_to_end.conftest import DATASETS, Lake, Steps

pytestmark = [pytest.mark.xdist_group("small lake"), pytest.mark.stack, pytest.mark.long]


def test_an_export_builds_what_it_needs(small_lake: Lake, first_export: Steps) -> None:
    """Tests of models that it does not build are not run, and the report does without tables that no build has made."""
    week = small_lake.last_week
    assert small_lake.versions() == {f"order_lines/{week}/v1"}
    assert f"reports/{week}.html" in first_export["export"].stdout


def test_several_weeks_are_published(small_lake: Lake, published: Steps) -> None:
    week = small_lake.last_week
    before = week.minus(1)
    every = {f"{dataset}/{label}/v1" for dataset in DATASETS for label in (before, week)}
    [run] = history.runs(load_catalog(small_lake.settings))
    assert (run.week, run.outcome) == (f"{before}..{week}", "published")
    assert set(run.versions.split(", ")) == every - {f"order_lines/{week}/v1"}
    assert small_lake.versions() == every
    assert "all tests passed" in published["weekly"].stdout
    for dataset in DATASETS:
        latest = json.loads((Path(small_lake.settings.export_root) / dataset / "latest.json").read_text())
        assert latest["week"] == str(week)
