"""A build of a few datasets on a fresh lake, and several weeks at once.

The tests of this module run in order and share a lake of their own, with its services: what is tested is a history.
"""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from lakehouse.catalog import load_catalog
from lakehouse.environment import home
from lakehouse.settings import Settings
from lakehouse.weeks import IsoWeek
from local_stack.temporary import own_environment
from tests.conftest import run_lakehouse, started
from tests.end_to_end.conftest import succeed
from weekly_job import history

DATASETS = ("order_lines", "completed_orders", "product_sales", "customer_activity", "product_demand")

SIZE = ("--orders", "60", "--seed", "7", "--weeks", "3")


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Settings]:
    """A stack of its own, with an empty lake."""
    with own_environment(tmp_path_factory.mktemp("bad-things")):
        try:
            yield started()
        finally:
            run_lakehouse("stack", "down", "--wipe")


def last_week() -> IsoWeek:
    return IsoWeek.parse(json.loads((home() / "truth.json").read_text())["parameters"]["last_week"])


def versions(settings: Settings) -> set[str]:
    """Return what is published, as <dataset>/<week>/v<N>."""
    root = Path(settings.export_root)
    return {str(path.parent.relative_to(root)) for path in root.glob("*/*/v*/manifest.json")}


def test_an_export_builds_what_it_needs_on_a_fresh_lake_and_after_new_items(settings: Settings) -> None:
    """Tests of models that it does not build are not run, and the report does without tables that no build has made."""
    for wave in ("1", "2"):
        done = succeed(
            {
                "sample-data": lambda wave=wave: run_lakehouse("stack", "sample-data", *SIZE, "--wave", wave),
                "ingest": lambda: run_lakehouse("ingest", "run"),
                "export": lambda: run_lakehouse("export", "run", "--dataset", "order_lines", timeout=600),
            }
        )
        week = last_week()
        assert f"order_lines/{week}/v{wave}" in versions(settings)
        assert f"reports/{week}.html" in done["export"].stdout
    manifest = json.loads((Path(settings.export_root) / f"order_lines/{week}/v2/manifest.json").read_text())
    assert manifest["quarantined"] > 0
    assert manifest["dead_letters"] > 0


def test_several_weeks_are_published(settings: Settings) -> None:
    week = last_week()
    before = week.minus(1)
    done = succeed({"weekly": lambda: run_lakehouse("weekly", "--weeks", f"{before}..{week}", timeout=900)})
    new = {f"{dataset}/{one}/v1" for dataset in DATASETS for one in (before, week)} - {f"order_lines/{week}/v1"}
    [run] = history.runs(load_catalog(settings))
    assert (run.week, run.outcome) == (f"{before}..{week}", "published")
    assert set(run.versions.split(", ")) == new
    assert versions(settings) == new | {f"order_lines/{week}/v1", f"order_lines/{week}/v2"}
    assert "all tests passed" in done["weekly"].stdout
    for dataset in DATASETS:
        latest = json.loads((Path(settings.export_root) / dataset / "latest.json").read_text())
        assert latest["week"] == str(week)
