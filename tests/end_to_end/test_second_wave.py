"""The main job of late data, on the lake of the first wave: as expected by plain Python, and old files stay.

The tests of this module run in order and share one lake: what is tested is a history.
"""

import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from python_common.catalog.catalog import load_catalog
from python_common.config.environment import home
from python_common.spark import thrift
from python_common.weeks import IsoWeek
from python_dev.stack.sample_data import produced_log
from python_dev.stack.sample_data.expected import marts
from tests.support import counted_events, planted
from tests.support.commands import run_dbt, run_lakehouse
from tests.support.lake import SIZE, Lake, newest, persons, produce, succeed
from tests.support.main_job import AGGREGATED, EXPORTED, assert_as_expected, customers_30d, end_ms
from tests.support.other_engines import by_brand, of_file, snippets

pytestmark = pytest.mark.slow


def leave_overtaken_replay(lake: Lake) -> None:
    """Leave what a replay leaves that did not become the table's: a branch with a batch."""
    table = load_catalog(lake.settings).load_table("bronze.stock_trades")
    table.manage_snapshots().create_branch(table.current_snapshot().snapshot_id, "replay_overtaken").commit()
    [(batch,)] = lake.query("bronze.stock_trades", "select max(ingest_batch) + 1 from rows")
    summary = {"lakehouse.batch": str(batch), "lakehouse.ranges": '{"0": [0, 1]}'}
    nothing = table.scan(limit=0).to_arrow()
    table.append(nothing, snapshot_properties=summary, branch="replay_overtaken")


def restate_30d(week: IsoWeek) -> subprocess.CompletedProcess[str]:
    options = ("--exclude-resource-type", "unit_test", "--vars", f"as_of: {week.end:%Y-%m-%d}")
    return run_dbt("build", "--select", "+fct_customers_rolling_30d", *options)


def assert_manifests_count_late_events(lake: Lake) -> None:
    """How many events came after the end of their week."""
    late = counted_events.late_events(produced_log(**SIZE, wave=2), str(lake.last_week))
    for name in EXPORTED:
        manifest, _ = newest(lake, name)
        assert manifest["reason"] == "late or corrected data"
        if name in late:
            assert manifest["late"] == late[name], name


@dataclass
class Before:
    """What was expected, and published, before the second wave."""

    expected: dict[str, Any]
    files: dict[Path, bytes]


@pytest.fixture(scope="module")
def second_wave(lake: Lake, first_wave: object) -> Before:
    """The weekly job of the second wave."""
    files = filter(Path.is_file, Path(lake.settings.export_root).rglob("v1/**/*"))
    before = Before(lake.expected, {path: path.read_bytes() for path in files})
    with thrift.connect(lake.settings) as cursor:
        # ops_ingest_batches keeps what it has recorded when the snapshots are gone.
        thrift.rows(cursor, "call lake.system.expire_snapshots('bronze.payments', now(), 1)")
    leave_overtaken_replay(lake)
    succeed({"sample-data": lambda: produce(wave=2), "weekly": lambda: run_lakehouse("weekly")})
    return before


def test_second_wave_is_as_expected_and_old_files_stay(lake: Lake, second_wave: Before) -> None:
    # `product_demand` is also published as Parquet and XLSX.
    assert len(second_wave.files) == 3 * len(EXPORTED + AGGREGATED) + 2
    assert lake.expected["parameters"]["wave"] == 2
    week, waves = str(lake.last_week), (second_wave.expected, lake.expected)
    for name in EXPORTED + AGGREGATED:
        states = lake.query(
            "ops.weekly_figures_history",
            f"select total_rows from rows where figures_id = '{name}/{week}' order by dbt_valid_from",
        )
        assert states == [(expected[name]["weeks"][week]["rows"],) for expected in waves], name
    assert_as_expected(lake, wave=2)
    assert {path: path.read_bytes() for path in second_wave.files} == second_wave.files
    assert_manifests_count_late_events(lake)
    last_but_one = lake.last_week.minus(1)
    sales = marts.product_sales(produced_log(**SIZE, wave=2))
    assert customers_30d(lake, last_but_one) == {}
    succeed({"dbt build": lambda: restate_30d(last_but_one)})
    assert customers_30d(lake, last_but_one) == marts.customers_30d(sales, end_ms(last_but_one))


def test_a_merge_does_not_shuffle_its_target(lake: Lake, second_wave: object) -> None:
    """Spark falls back to a full shuffle silently, when a join setting or the bucketing no longer fits."""
    target = home() / "target"
    path = Path("retail_lakehouse/models/intermediate/deduplicated/int_payments_deduplicated.sql")
    sql = (target / "compiled" / path).read_text()
    with thrift.connect(lake.settings) as cursor:
        thrift.rows(cursor, "set spark.sql.sources.v2.bucketing.enabled = true")
        thrift.rows(cursor, f"create temporary view {path.stem}__slice as {sql}")
        [(plan,)] = thrift.rows(cursor, f"explain {(target / 'run' / path).read_text()}")
    assert "keygroupedpartitioning" in plan


def test_a_person_of_the_second_wave_is_nowhere_either(lake: Lake, second_wave: object) -> None:
    planted.assert_nothing_of(persons(wave=2), lake.public_artefacts())


def test_other_engines_have_the_numbers_of_the_file(lake: Lake, second_wave: object) -> None:
    versions = Path(lake.settings.export_root) / "product_sales" / str(lake.last_week)
    (published, moment), (restated, now) = of_file(versions / "v1"), of_file(versions / "v2")
    assert published != restated
    namespace: dict[str, Any] = {}
    read, duck, as_of = snippets(lake, "python", moment)
    for code in (read, duck):
        exec(code, namespace)
    assert by_brand(namespace["by_brand"]) == restated
    for code in (as_of, duck):
        exec(code, namespace)
    assert by_brand(namespace["by_brand"]) == published
    with thrift.connect(lake.settings) as cursor:
        for at, figures in ((moment, published), (now, restated)):
            sql, _ = snippets(lake, "sql", at)
            assert by_brand(thrift.rows(cursor, sql)) == figures
