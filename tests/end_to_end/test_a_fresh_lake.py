"""A fresh lake: an export builds what it needs, then the weekly job publishes several weeks.

The lake is that of test_erased_person.py and test_one_bad_thing.py, which go on with it.
"""

import json
import os
from pathlib import Path

import pytest

from python_common.catalog.catalog import load_catalog
from python_common.config.environment import home, read_env_file
from python_jobs.weekly import history
from tests.support.commands import run_lakehouse
from tests.support.lake import DATASETS, Lake, Steps, succeed

pytestmark = [pytest.mark.xdist_group("small lake"), pytest.mark.slow]


def test_an_export_builds_what_it_needs(small_lake: Lake, first_export: Steps) -> None:
    """Tests of models that it does not build are not run, and the report does without tables that no build has made."""
    week = small_lake.last_week
    assert small_lake.versions() == {f"order_lines/{week}/v1"}
    assert f"reports/{week}.html" in first_export["export"].stderr


def test_several_weeks_are_published(small_lake: Lake, published: Steps) -> None:
    week = small_lake.last_week
    before = week.minus(1)
    every = {f"{dataset}/{label}/v1" for dataset in DATASETS for label in (before, week)}
    [run] = history.runs(load_catalog(small_lake.settings))
    assert (run.week, run.outcome) == (f"{before}..{week}", "published")
    assert set(run.versions.split(", ")) == every - {f"order_lines/{week}/v1"}
    assert small_lake.versions() == every
    assert "all tests passed" in published["weekly"].stderr
    for dataset in DATASETS:
        latest = json.loads((Path(small_lake.settings.export_root) / dataset / "latest.json").read_text())
        assert latest["week"] == str(week)


def test_a_fork_exports_the_bytes_that_are_published(
    small_lake: Lake, published: Steps, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unchanged code replays the files: what a review compares as rows would be the same files."""

    def files(root: str) -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in Path(root).glob("*/*/v1/*/*_v1.csv")}

    weeks = f"{small_lake.last_week.minus(1)}..{small_lake.last_week}"
    succeed({"fork": lambda: run_lakehouse("fork", "create", "replay")})
    try:
        with monkeypatch.context() as in_fork:
            for name, value in read_env_file(home() / "forks" / "replay" / "env").items():
                in_fork.setenv(name, value)
            succeed({"export": lambda: run_lakehouse("export", "run", "--weeks", weeks)})
            replayed = files(os.environ["LAKEHOUSE_EXPORT_ROOT"])
    finally:
        run_lakehouse("fork", "drop", "replay")
    # A dataset with suppressed groups is published once per week and lake, and a fork knows of that.
    public = files(small_lake.settings.needed("export_root"))
    assert replayed == {path: content for path, content in public.items() if not path.startswith("product_demand_")}
    assert len(replayed) == 2 * (len(DATASETS) - 1)
