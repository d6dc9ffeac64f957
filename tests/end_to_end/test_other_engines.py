"""What other engines read or build, against Spark: by docs/other-engines.md, and in a quick review."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from python_common.catalog.catalog import load_catalog
from python_common.config.environment import PROJECT_ROOT, changed_environment, home
from python_common.spark import thrift
from python_dbt.compile import compiled_manifest
from python_dbt.manifest import REFERENCED, DbtManifest
from python_dbt.project import Project
from python_dev.review import quick, sample, scope
from python_dev.review.quick import Engine, Places
from python_dev.review.report import Review
from tests.support.commands import run_dbt, run_lakehouse
from tests.support.lake import Lake, produce, succeed
from tests.support.other_engines import by_brand, of_file, snippets


@pytest.fixture(scope="module")
def versions(lake: Lake, first_wave: object) -> Path:
    """The published versions of a week that late data has changed."""
    if lake.expected["parameters"]["wave"] == 1:
        succeed({"sample-data": lambda: produce(wave=2), "weekly": lambda: run_lakehouse("weekly")})
    return Path(lake.settings.export_root) / "product_sales" / str(lake.last_week)


def test_other_engines_have_the_numbers_of_the_file(lake: Lake, versions: Path) -> None:
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


# DuckDB numbers positions in a wider type.
OTHER_TYPES = {("exp_weekly__order_lines", "line_number"), ("fct_order_lines", "line_number")}
# Its rows are of the weeks that were exported last, and of those alone.
OTHER_ROWS = {"ops_reconciliation"}


@pytest.fixture(scope="module")
def landed(lake: Lake, first_wave: object, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, DbtManifest]:
    """The landed rows as a quick review reads them, and the project, compiled for the exported week."""
    directory = tmp_path_factory.mktemp("landed")
    sample.write(directory / "sample")
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
    assert {node.name for node in nodes if places.key(node.unique_id) in engine.reasons} == {
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
        table = places.tables()[node.table]
        kinds, others = engine.columns("memory.spark"), engine.columns(table)
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
    answers, refused = engine.answers(places, [one for one in tests if not OTHER_ROWS & {*one.name.split("__")}])
    assert {name: f"fail {failures[name]}" if failures[name] else "pass" for name in answers} == {
        name: answer.replace("warn", "fail") for name, answer in answers.items()
    }
    assert len(answers) > 10 * len(refused)


# A model, what is replaced in its compiled SQL, and where the report must say so.
PLANTED = [
    ("fct_product_demand_weekly", "and product_key is not null", "and line_amount > 20", "adds_up_ops_reconciliation"),
    ("int_payments_unmatched", "interval 96 hours", "interval 48 hours", "int_payments_unmatched"),
    ("fct_completed_orders", "interval 96 hours", "interval 48 hours", "exp_weekly__completed_orders"),
    ("int_order_items_priced", "left join", "inner join", "assert_fct_product_sales__every_item_sold_or_excluded"),
    ("dim_customers", "coalesce(customers.is_deleted, false)", "customers.is_deleted", "keeps_contract_dim_customers_"),
    ("dim_customers", "    union\n", "    union all\n", "unique_dim_customers_customer_id"),
    ("stg_shop__orders", "nullif(", "coalesce(", "int_orders_deduplicated"),
    ("int_orders_deduplicated", "max(struct(", "min(struct(", "int_orders_deduplicated"),
    ("int_customers_masked", "'$1***'", "'$1**'", "dim_customers"),
    ("int_store_order_lines_exploded", "quantity", "quantity + 1 as quantity", "fct_order_lines"),
    ("fct_orders", "lower(channel_spelling)", "channel_spelling", "fct_orders"),
]


@pytest.mark.parametrize(("model", "old", "new", "named"), PLANTED)
def test_quick_names_a_planted_change(
    landed: tuple[Path, DbtManifest], monkeypatch: pytest.MonkeyPatch, model: str, old: str, new: str, named: str
) -> None:
    directory, manifest = landed
    monkeypatch.setattr(quick, "SAMPLE", directory)
    node = manifest.named(model)
    sql = (node.compiled_code or "").replace(old, new)
    assert sql != node.compiled_code
    changed = replace(
        manifest, nodes={**manifest.nodes, node.unique_id: replace(node, raw_code=sql, compiled_code=sql)}
    )
    compared = scope.compare(scope.Side(manifest, {}), scope.Side(changed, {}))
    names = {name: one.name for name, one in {**manifest.nodes, **manifest.unit_tests}.items()}
    of_code = Review("base", "change", False, compared, [], names, {})
    tests = [
        one for one in manifest.nodes.values() if one.resource_type == "test" and compared.reached & {*one.parents}
    ]
    result = quick.review(of_code, *quick.build(manifest, PROJECT_ROOT), Places(changed, PROJECT_ROOT), [tests, tests])
    found = [*result.tests, *(table.node for table in result.differing)]
    assert [name for name in found if name.startswith(named)]
