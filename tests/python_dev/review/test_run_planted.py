"""Planted changes of this project, each with the line that a review without data has of it."""

import pytest

from python_common.config.environment import PROJECT_ROOT
from python_dbt.compile import compiled_manifest
from python_dbt.project import Project
from python_dev.review import run as job
from python_dev.review import scope
from python_dev.review.report import Review
from tests.support.small_project import copy_project

MARTS, EXPORTS, MASKED = "models/marts", "models/exports", "models/intermediate/masked"
# Files by what is replaced in them, severities or reasons of the scope, and lines. No change here hides another one.
PLANTED = {
    "column added last": (
        [
            (
                f"{MARTS}/fct_orders.sql",
                "'orders.is_event_time_valid') }} as ordered_week\n",
                "'orders.is_event_time_valid') }} as ordered_week,\n        orders.spelling\n",
            ),
            (
                f"{MARTS}/fct_orders.yml",
                "      - name: order_key\n",
                "      - {name: spelling, data_type: string}\n      - name: order_key\n",
            ),
        ],
        "look",
        "fct_orders.spelling: column added, type string, constraints none, description none",
    ),
    "promise dropped": (
        [
            (
                f"{EXPORTS}/exp_weekly__completed_orders.yml",
                "('paid_at') }}\"\n        constraints: [{type: not_null}]",
                "('paid_at') }}\"",
            )
        ],
        "breaking",
        "exp_weekly__completed_orders.paid_at: constraints not_null becomes none",
    ),
    "order of a file": (
        [(f"{EXPORTS}/exp_weekly__completed_orders.yml", "order_by: [paid_at, order_id]", "order_by: [order_id]")],
        "look",
        "exp_weekly__completed_orders: config.meta.export.order_by ['paid_at', 'order_id'] becomes ['order_id']",
    ),
    "audience": (
        [(f"{EXPORTS}/exp_weekly__order_lines.yml", "audience: analysts", "audience: everyone")],
        "look",
        "exp_weekly__order_lines: config.meta.export.audience analysts becomes everyone",
    ),
    "columns swapped": (
        [
            (
                f"{EXPORTS}/exp_weekly__customer_activity.sql",
                "        order_count,\n        line_count,\n",
                "        line_count,\n        order_count,\n",
            ),
            (f"{EXPORTS}/exp_weekly__customer_activity.yml", "- name: order_count", "- name: swapped"),
            (f"{EXPORTS}/exp_weekly__customer_activity.yml", "- name: line_count", "- name: order_count"),
            (f"{EXPORTS}/exp_weekly__customer_activity.yml", "- name: swapped", "- name: line_count"),
        ],
        "breaking",
        "exp_weekly__customer_activity: columns move: only a new last one moves no other",
    ),
    "type narrowed": (
        [
            (
                f"{MARTS}/fct_completed_orders.sql",
                "        payments.amount,",
                "        cast(payments.amount as decimal(20, 2)) as amount,",
            ),
            (f"{MARTS}/fct_completed_orders.yml", "decimal(28,2)", "decimal(20,2)"),
        ],
        "breaking",
        "fct_completed_orders.amount: type decimal(28,2) becomes decimal(20,2)",
    ),
    "access": (
        [(f"{MARTS}/dim_dates.yml", "    description: >", "    config: {access: protected}\n    description: >")],
        "breaking",
        "dim_dates: access public becomes none",
    ),
    "contract off": (
        [
            (
                f"{MARTS}/fct_product_sales.yml",
                "    description: >",
                "    config: {contract: {enforced: false}}\n    description: >",
            )
        ],
        "breaking",
        "fct_product_sales: contract enforced becomes none",
    ),
    "description": (
        [(f"{MARTS}/fct_trades.yml", "description: \"{{ doc('side') }}\"", "description: Which side.")],
        "note",
        "fct_trades.side: description ",
    ),
    "description lost": (
        [(f"{MARTS}/fct_trades.yml", "description: \"{{ doc('symbol') }}\"", 'description: ""')],
        "look",
        "fct_trades.symbol: description ",
    ),
    "raw column": (
        [
            (
                f"{MASKED}/int_customers_masked.sql",
                "{{ masked('stg_shop__customers', 'email', as='pseudonym') }} as",
                "lower(email) as",
            )
        ],
        "breaking",
        "personal data: dim_customers: stg_shop__customers.email (email) reaches email_pseudonym without a mask",
    ),
    "model added": (
        [(f"{MARTS}/fct_sides.sql", "", "select side, count(*) as trades from {{ ref('fct_trades') }} group by side")],
        "look",
        "fct_sides: model added",
    ),
    "test removed": (
        [(f"{MARTS}/fct_orders.yml", "          - unique\n", "          - not_null\n")],
        "look",
        "unique_fct_orders_order_key: test removed",
    ),
    "test weaker": (
        [(f"{MARTS}/dim_customers.yml", "          - unique\n", "          - unique: {config: {severity: warn}}\n")],
        "look",
        "unique_dim_customers_customer_id: test changed: config severity ERROR becomes warn",
    ),
    "unit test": (
        [("models/staging/shop/stg_shop__customers.yml", "segment: New,", "segment: Old,")],
        "look",
        "test_stg_shop__customers__text_is_trimmed_but_for_keys_and_persons: unit test changed",
    ),
    "layout": (
        [(f"{MARTS}/fct_trades.sql", "truncate(7, traded_week)", "bucket(4, trade_key)")],
        "note",
        "fct_trades: config partition_by truncate(7, traded_week) becomes bucket(4, trade_key)",
    ),
    "table to view": (
        [(f"{MARTS}/dim_products.sql", "with ", "{{ config(materialized='view') }}\nwith ")],
        "note",
        "dim_products: config materialized table becomes view",
    ),
    "macro": (
        [("macros/retail/is_paid_in_time.sql", "interval 96 hours", "interval 95 hours")],
        "int_payments_unmatched",
        "SQL, by is_paid_in_time",
    ),
    "seed": ([("seeds/channels.csv", "\nstore,", "\nshop,")], "channels", "its file"),
    "variable": (
        [("dbt_project.yml", "threshold: 10", "threshold: 4")],
        "exp_weekly__product_demand",
        "variable small_group_threshold",
    ),
    "other join": (
        [(f"{MARTS}/dim_products_all_channels.sql", "    union all\n", "    union\n")],
        "dim_products_all_channels",
        "SQL",
    ),
    "snapshot": (
        [("snapshots/weekly_figures_history.yml", "check_cols: all", "check_cols: [total_rows]")],
        "weekly_figures_history",
        "config check_cols all becomes ['total_rows']",
    ),
    "hook": (
        [("dbt_project.yml", '  - "{{ check_pii_key() }}"\n', "")],
        "hook",
        "on-run-start: {{ check_pii_key() }} removed",
    ),
}
SEVERITIES = ("breaking", "look", "note")


@pytest.fixture(scope="module")
def reviewed(side: scope.Side, tmp_path_factory: pytest.TempPathFactory) -> Review:
    """All changes at once, compiled once."""
    directory = tmp_path_factory.mktemp("project")
    copy_project(directory)
    for edits, _, _ in PLANTED.values():
        for file, old, new in edits:
            path = directory / file
            text = path.read_text() if old else ""
            assert old in text, file
            path.write_text(text.replace(old, new, 1))
    after = scope.side(compiled_manifest(directory), directory)
    before = scope.Side(side.manifest, side.variables, {**side.settings, **without_files(after)})
    return job._of_code(before, after, "base", Project(PROJECT_ROOT, {}), is_static=True)


def without_files(after: scope.Side) -> dict[str, object]:
    """The settings that a copy of the project lacks."""
    return {name: after.settings.get(name) for name in scope.SETTINGS}


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_change_has_its_line(name: str, reviewed: Review) -> None:
    _, kind, line = PLANTED[name]
    reasons = {reviewed.names[one]: reason for one, reason in reviewed.scope.changed.items()}
    if kind in SEVERITIES:
        found = [f"{one.object}: {one.message}" for one in reviewed.findings if one.severity == kind]
        assert [one for one in found if one.startswith(line)], found
    elif kind == "hook":
        assert line in reviewed.scope.hooks
    else:
        assert reasons[kind] == line
