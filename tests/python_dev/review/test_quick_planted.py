"""Quick reviews of planted changes of this project, on the sample data."""

from dataclasses import replace
from pathlib import Path

import pytest

from python_common.config.environment import PROJECT_ROOT
from python_dbt.manifest import DbtManifest
from python_dev.review import quick, scope
from python_dev.review.quick import Places
from python_dev.review.report import Review
from python_dev.stack.sample_data import produced_log
from tests.support.lake import SIZE
from tests.support.landed import land_log
from tests.support.reviewed import with_nodes


@pytest.fixture(scope="module")
def landed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("landed")
    land_log(directory, produced_log(**SIZE))
    return directory


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
    compiled_project: DbtManifest,
    landed: Path,
    model: str,
    old: str,
    new: str,
    named: str,
) -> None:
    manifest = compiled_project
    node = manifest.named(model)
    sql = (node.compiled_code or "").replace(old, new)
    assert sql != node.compiled_code
    changed = with_nodes(manifest, replace(node, raw_code=sql, compiled_code=sql))
    compared = scope.compare(scope.Side(manifest, {}), scope.Side(changed, {}))
    names = {name: one.name for name, one in {**manifest.nodes, **manifest.unit_tests}.items()}
    of_code = Review("base", "change", False, compared, [], names, {})
    built = quick.build(manifest, PROJECT_ROOT, landed)
    result = quick.review(of_code, *built, Places(changed, PROJECT_ROOT))
    found = [*result.tests, *(table.node for table in result.differing)]
    assert [name for name in found if name.startswith(named)]
