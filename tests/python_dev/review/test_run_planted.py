"""Planted changes of files of this project, each with the line that a review without data has of it.

Those that a manifest shows are in test_contracts.py, those of code in test_scope.py.
"""

from dataclasses import replace

import pytest

from python_common.config.environment import PROJECT_ROOT
from python_dbt.project import Project
from python_dev.review import run as job
from python_dev.review import scope
from python_dev.review.report import Review
from tests.support.reviewed import edited_project

MARTS, MASKED = "models/marts", "models/intermediate/masked"
# Files by what is replaced in them, severities or reasons of the scope, and lines. No change here hides another one.
PLANTED = {
    "raw column": (
        (
            f"{MASKED}/int_customers_masked.sql",
            "{{ masked('stg_shop__customers', 'email', as='pseudonym') }} as",
            "lower(email) as",
        ),
        "breaking",
        "personal data: dim_customers: stg_shop__customers.email (email) reaches email_pseudonym without a mask",
    ),
    "model added": (
        (f"{MARTS}/fct_sides.sql", "", "select side, count(*) as trades from {{ ref('fct_trades') }} group by side"),
        "look",
        "fct_sides: model added",
    ),
    "test weaker": (
        (f"{MARTS}/dim_customers.yml", "          - unique\n", "          - unique: {config: {severity: warn}}\n"),
        "look",
        "unique_dim_customers_customer_id: test changed: config severity ERROR becomes warn",
    ),
    "unit test": (
        ("models/staging/shop/stg_shop__customers.yml", "segment: New,", "segment: Old,"),
        "look",
        "test_stg_shop__customers__text_is_trimmed_but_for_keys_and_persons: unit test changed",
    ),
    "snapshot": (
        ("snapshots/weekly_figures_history.yml", "check_cols: all", "check_cols: [total_rows]"),
        "weekly_figures_history",
        "config check_cols all becomes ['total_rows']",
    ),
}
SEVERITIES = ("breaking", "look", "note")


@pytest.fixture(scope="module")
def reviewed(side: scope.Side, tmp_path_factory: pytest.TempPathFactory) -> Review:
    """All changes at once, compiled once."""
    after = edited_project(tmp_path_factory.mktemp("project"), [edit for edit, _, _ in PLANTED.values()])
    # The copy lacks these files.
    settings = {name: after.settings.get(name) for name in scope.SETTINGS}
    before = replace(side, settings={**side.settings, **settings})
    return job._of_code(before, after, "base", Project(PROJECT_ROOT, {}), is_static=True)


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_change_has_its_line(name: str, reviewed: Review) -> None:
    _, kind, line = PLANTED[name]
    reasons = {reviewed.names[one]: reason for one, reason in reviewed.scope.changed.items()}
    if kind in SEVERITIES:
        found = [f"{one.object}: {one.message}" for one in reviewed.findings if one.severity == kind]
        assert [one for one in found if one.startswith(line)], found
    else:
        assert reasons[kind] == line
