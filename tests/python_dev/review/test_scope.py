from dataclasses import replace

import pytest

from python_dbt.manifest import DbtManifest, Node
from python_dev.review import scope
from tests.support.reviewed import edited_project, with_nodes


def names(unique_ids):
    return {unique_id.split(".")[2] for unique_id in unique_ids}


def test_nothing_is_changed_without_a_change(side):
    assert scope.compare(side, side) == scope.ReviewScope()


def test_each_kind_of_change_is_found_and_format_is_none(side, tmp_path):
    edits = (
        ("models/marts/dim_products.sql", "order_items as (\n", "-- of both channels\norder_items   AS (\n"),
        ("models/marts/fct_product_sales.sql", "with affected as (", "with\naffected   as ( -- changed"),
        ("models/marts/fct_trades.yml", "description: >", "description: >\n      One."),
        ("macros/incremental/bounds.sql", "{#", "{# Another comment.\n"),
        ("models/marts/fct_product_demand_weekly.sql", "try_sum(quantity)", "sum(quantity)"),
        ("models/marts/dim_customers.yml", "description: >", "config: {partition_by: key_version}\n    description: >"),
        ("macros/retail/is_paid_in_time.sql", "interval 96 hours", "interval 95 hours"),
        ("seeds/channels.csv", "\nstore,", "\nshop,"),
        ("dbt_project.yml", "small_group_threshold: 10", "small_group_threshold: 11"),
        ("dbt_project.yml", "{{ require_lease() }}", "{{ require_lease(at_end=false) }}"),
    )
    diff = scope.compare(side, edited_project(tmp_path, edits))
    assert {name.split(".")[2]: reason for name, reason in diff.changed.items()} == {
        "channels": "its file",
        "dim_customers": "config partition_by None becomes key_version",
        "exp_weekly__product_demand": "variable small_group_threshold",
        "fct_completed_orders": "SQL, by is_paid_in_time",
        "fct_product_demand_weekly": "SQL",
        "int_payments_unmatched": "SQL, by is_paid_in_time",
    }
    assert diff.hooks == [
        "on-run-start: {{ require_lease() }} removed",
        "on-run-start: {{ require_lease(at_end=false) }} added",
    ]
    assert {"exp_weekly__completed_orders", "fct_order_lines"} <= names(diff.affected)
    assert names(diff.affected) & {"dim_products", "fct_product_sales", "fct_trades"} == set()


def changed(side, name, old="%}", new="%}{% set x = 1 %}"):
    """The side with another text of a macro."""
    [macro] = [unique_id for unique_id, macro in side.macros.items() if macro.name == name]
    other = replace(side.macros[macro], macro_sql=side.macros[macro].macro_sql.replace(old, new, 1))
    assert other != side.macros[macro]
    return replace(side, manifest=replace(side.manifest, macros={**side.manifest.macros, macro: other}))


FIRST, SECOND = "{{ first(var('days')) }}", "{{ second() }}"


@pytest.mark.parametrize(
    ("texts", "days", "found"),
    [
        ([FIRST, SECOND], 1, []),
        (["{{  first(var('days'))\n}}", SECOND], 1, []),
        ([SECOND], 1, [f"on-run-end: {FIRST} removed"]),
        ([SECOND, FIRST], 1, ["the order of hooks"]),
        ([FIRST, SECOND], 2, [f"on-run-end: {FIRST}, by its macros or variables"]),
    ],
)
def test_hooks_are_known_by_their_text(texts, days, found):
    def of(hooks, days):
        nodes = [
            Node(f"operation.on-run-end.{at}", "operation", f"on-run-end-{at}", "", raw_code=text)
            for at, text in enumerate(hooks)
        ]
        return scope.Side(DbtManifest({node.unique_id: node for node in nodes}), {"days": days})

    diff = scope.compare(of([FIRST, SECOND], 1), of(texts, days))
    assert (diff.hooks, diff.added, diff.removed) == (found, [], [])


@pytest.mark.parametrize(
    ("macro", "kinds"),
    [
        ("merge_latest_change", {"incremental"}),
        ("materialization_view_spark", {"view"}),
        ("spark__get_where_subquery", {"incremental", "table", "view", "ephemeral", "test", "seed", "snapshot"}),
    ],
)
def test_a_macro_that_dbt_calls_changes_what_it_builds(side, macro, kinds):
    diff = scope.compare(side, changed(side, macro))
    of_kinds = {name for name, node in side.manifest.nodes.items() if node.materialized in kinds}
    assert {*diff.changed} == of_kinds
    assert {*diff.changed.values()} == {f"{macro}, {scope.BY_DBT}"}
    assert diff.own == set()


def test_a_helper_changes_its_callers_and_not_what_hashes_it(side):
    callers = [node for node in side.manifest.nodes.values() if "clean_text(" in node.raw_code]
    assert len(callers) > 5
    after = changed(side, "clean_text", "''", "'-'")
    nodes = [replace(node, compiled_code=f"{node.compiled_code} limit 1") for node in callers]
    diff = scope.compare(side, replace(after, manifest=with_nodes(after.manifest, *nodes)))
    assert diff.changed == {node.unique_id: "SQL, by clean_text" for node in callers}


@pytest.mark.parametrize(
    ("macro", "callers"),
    [
        ("monday", {"exp_weekly__order_lines", "fct_customers_rolling_30d"}),
        # It has a stand-in.
        ("small_group_threshold", {"exp_weekly__product_demand"}),
    ],
)
def test_a_macro_of_what_a_run_decides_on_changes_its_callers(side, macro, callers):
    diff = scope.compare(side, changed(side, macro))
    assert callers <= names(diff.changed)
    assert {*diff.changed.values()} == {f"{macro}, whose SQL a run decides on"}


@pytest.mark.parametrize(("macro", "uncalled"), [("text_rules", ["text_rules"]), ("masked", []), ("tag_tested", [])])
def test_a_macro_that_no_node_or_hook_calls_is_named(side, macro, uncalled):
    assert scope.compare(side, changed(side, macro)).uncalled == uncalled


def test_an_added_model_changes_only_what_reads_all_models(side):
    node = replace(side.manifest.named("fct_trades"), unique_id="model.retail_lakehouse.new", name="new")
    diff = scope.compare(side, replace(side, manifest=with_nodes(side.manifest, node)))
    assert (diff.added, diff.own) == ([node.unique_id], set())
    assert {*diff.changed.values()} == {scope.BY_GRAPH}
    assert {side.manifest.nodes[name].schema for name in diff.changed} <= {"ops", "ops_test__audit", "dbt_test__audit"}
