"""The main job of the first wave: as expected by plain Python, and no person or key leaves the restricted layers."""

import json
import subprocess
from datetime import datetime
from pathlib import Path

from python_common.catalog.catalog import load_catalog
from python_common.config.environment import home
from python_dbt.pii import check
from python_dev.stack.sample_data import produced_log
from tests.support import planted
from tests.support.commands import run_dbt
from tests.support.lake import SIZE, Lake, persons
from tests.support.main_job import AGGREGATED, EXPORTED, assert_as_expected
from tests.support.pii_values import pii_values


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


def test_a_person_or_a_key_is_in_an_artefact_of_a_layer(
    lake: Lake, first_wave: dict[str, subprocess.CompletedProcess[str]]
) -> None:
    artefacts = [*lake.public_artefacts()]
    kinds = {Path(path).suffix for path, _ in artefacts}
    assert {".csv", ".log", ".sql", ".json", ".parquet", ".avro"} <= kinds
    artefacts += [(f"output of {name}", (step.stdout + step.stderr).encode()) for name, step in first_wave.items()]
    planted.assert_nothing_of({**persons(wave=1), **planted.masking_key(lake.settings.pii_key_file)}, artefacts)


def test_the_search_for_persons_finds_them_where_they_may_be(lake: Lake, first_wave: object) -> None:
    """The positive control of the test before: the same search over restricted tables and the key file."""
    patterns = persons(wave=1)
    in_data = [planted.search(patterns, artefact) for _, artefact in lake.files("bronze", "*.parquet")]
    assert {match.removesuffix(" raw") for match in set().union(*in_data)} >= set(pii_values(produced_log(**SIZE)))
    in_bounds = [planted.search(patterns, artefact) for _, artefact in lake.files("deduplicated", "*-m0.avro")]
    assert {"email cut to a bound", "cc_number cut to a bound", "registertime raw"} <= set().union(*in_bounds)
    assert "inner pad, hex" in planted.search(
        planted.masking_key(lake.settings.pii_key_file), lake.settings.pii_key_file.read_bytes()
    )


def test_no_test_stores_the_rows_that_fail_it(lake: Lake, first_wave: object) -> None:
    """The job builds with DBT_STORE_FAILURES, which makes a table per test unless the test configures otherwise."""
    assert not [table for schema in lake.schemas() if "audit" in schema for table in lake.tables(schema)]


def test_the_sql_that_runs_is_proven_not_just_its_stand_ins(lake: Lake, target: Path) -> None:
    assert check.check(load_catalog(lake.settings), target) > 20
