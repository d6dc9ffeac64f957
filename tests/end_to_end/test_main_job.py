"""The main job of the first wave against the results expected by plain Python."""

import json
from datetime import datetime

from python_common.config.environment import home
from tests.support.commands import run_dbt
from tests.support.lake import Lake
from tests.support.main_job import AGGREGATED, EXPORTED, assert_as_expected


def test_first_wave_is_as_expected(lake: Lake, first_wave: object) -> None:
    assert_as_expected(lake, wave=1)
    assert lake.reasons(lake.last_week) == {name: [] for name in (*EXPORTED, *AGGREGATED)}


def test_a_suppressed_group_has_no_figure(lake: Lake, first_wave: object) -> None:
    figures = "quantity, line_count, order_count, customer_count, unpriced_line_count, order_value"
    groups = lake.query("exports.exp_weekly__product_demand", f"select is_suppressed, {figures} from rows")
    assert all((published == [None] * 6) == is_suppressed for is_suppressed, *published in groups)
    assert any(is_suppressed for is_suppressed, *_ in groups)


def test_source_freshness_is_the_time_of_the_newest_batch(lake: Lake, first_wave: object) -> None:
    directory = home() / "target" / "freshness"
    done = run_dbt("source", "freshness", "--target-path", str(directory))
    assert done.returncode == 0, done.stdout
    results = json.loads((directory / "sources.json").read_text())["results"]
    assert {result["status"] for result in results} == {"pass"}
    newest_batches = lake.query(
        "ops.ingest_batches",
        "select replace(replace(topic, '.', '_'), '-', '_'), max(committed_at) from rows group by all",
    )
    assert {
        result["unique_id"].rpartition(".")[2]: datetime.fromisoformat(result["max_loaded_at"]) for result in results
    } == dict(newest_batches)
