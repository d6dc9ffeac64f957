"""What DuckDB builds in a quick review, against Spark."""

from pathlib import Path

import pytest

from python_common.catalog.catalog import load_catalog
from python_common.config.environment import PROJECT_ROOT, changed_environment, home
from python_dbt.compile import compiled_manifest
from python_dbt.manifest import REFERENCED, DbtManifest
from python_dbt.project import Project
from python_dev.review import sample
from python_dev.review.quick import Engine, Places
from python_dev.review.table_diff import column_types
from tests.support.commands import run_dbt
from tests.support.lake import Lake

pytestmark = pytest.mark.slow

# DuckDB numbers positions in a wider type.
OTHER_TYPES = {("exp_weekly__order_lines", "line_number"), ("fct_order_lines", "line_number")}
# Its rows are of the weeks that were exported last, and of those alone.
OTHER_ROWS = {"ops_reconciliation"}


@pytest.fixture(scope="module")
def landed(lake: Lake, first_wave: object, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, DbtManifest]:
    """The landed rows as a quick review reads them, and the project, compiled for the exported week."""
    directory = tmp_path_factory.mktemp("landed")
    sample.write(lake.settings, directory / "sample")
    with changed_environment({"LAKEHOUSE_WEEKS": str(lake.last_week)}):
        return directory / "sample", compiled_manifest(PROJECT_ROOT)


def test_quick_tables_equal_spark(lake: Lake, landed: tuple[Path, DbtManifest], tmp_path: Path) -> None:
    """Each table that a quick review makes of landed rows has Spark's values, and each test finds as many rows."""
    week, (directory, manifest) = str(lake.last_week), landed
    with changed_environment({"LAKEHOUSE_WEEKS": week}):
        tested = run_dbt("test", "--exclude-resource-type", "unit_test", "--target-path", str(tmp_path / "target"))
    assert tested.returncode in (0, 1), tested.stdout[-3000:]
    failures = {
        one["unique_id"]: one["failures"] or 0
        for one in Project(PROJECT_ROOT, {"DBT_TARGET_PATH": str(tmp_path / "target")}).results()["results"]
    }
    engine = Engine(directory, (home() / "pii.key").read_text().strip())
    places, catalog = Places(manifest, PROJECT_ROOT), load_catalog(lake.settings)
    nodes = [node for node in manifest.nodes.values() if node.resource_type in REFERENCED]
    engine.build(places, [node.unique_id for node in nodes])
    assert {node.name for node in nodes if places.key(node.unique_id) in engine.errors} == {
        *("ops_export_weeks", "ops_ingest_batches", "ops_table_health", "ops_topic_weeks"),
        *("ops_weekly_figures", "weekly_figures_history"),
    }
    differences = []
    for node in nodes:
        if places.key(node.unique_id) not in engine.built or node.materialized in ("view", "ephemeral"):
            continue
        engine.database.register("rows_of_spark", catalog.load_table(node.table).scan().to_arrow())
        # Others are of runs for other weeks.
        partition = f"'{week}'" if node.is_export else f"timestamptz '{lake.last_week.end.isoformat()}'"
        where = f"where {node.partition_by} = {partition}" if node.config.get("partitions") else ""
        engine.run(f"create or replace table spark as select * from rows_of_spark {where}")
        table = places.tables[node.table]
        kinds, others = (column_types(engine.database, one) for one in ("memory.spark", table))
        differences += [
            f"{node.name}.{name}: {others.get(name)}"
            for name, kind in kinds.items()
            if others.get(name) != kind and (node.name, name) not in OTHER_TYPES
        ]
        names = [f'"{name}"' for name in kinds]
        for columns in () if node.name in OTHER_ROWS else (*names, ", ".join(names)):
            spark, duck = (f"(select {columns} from {one})" for one in ("memory.spark", table))
            sql = f"select count(*) from ({spark} except all {duck} union all ({duck} except all {spark}))"
            differences += [f"{node.name}.{columns}: {rows}" for [rows] in engine.run(sql) if rows]
    assert differences == []
    tests = [node for node in manifest.nodes.values() if node.unique_id in failures and node.resource_type == "test"]
    answers = engine.answers(places, [one for one in tests if not OTHER_ROWS & {*one.name.split("__")}])
    refused = [name for name, answer in answers.items() if isinstance(answer, Exception)]
    assert {name: f"fail {failures[name]}" if failures[name] else "pass" for name in answers.keys() - refused} == {
        name: answer.replace("warn", "fail") for name, answer in answers.items() if isinstance(answer, str)
    }
    assert len(answers) > 11 * len(refused)
