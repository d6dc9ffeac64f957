from pathlib import Path

import pytest

from python_dbt.compile import compiled_manifest
from tests.support.small_project import copy_project

pytestmark = pytest.mark.integration


def test_what_was_parsed_before_changes_no_manifest(tmp_path: Path) -> None:
    """A macro, a model, a yml and a seed are edited, and a model is added."""
    project, cache = tmp_path / "project", tmp_path / "cache"
    project.mkdir()
    cache.mkdir()
    copy_project(project)
    before = compiled_manifest(project, cache, "before")
    for file, old, new in (
        ("macros/retail/is_paid_in_time.sql", "96 hours", "95 hours"),
        ("models/marts/dim_products.sql", "products.color", "upper(products.color) as color"),
        ("models/marts/fct_trades.yml", "description: >", "description: >\n      One."),
        ("seeds/channels.csv", "\nstore,", "\nshop,"),
    ):
        text = (project / file).read_text()
        assert old in text, file
        (project / file).write_text(text.replace(old, new))
    (project / "models" / "marts" / "extra.sql").write_text("select * from {{ ref('dim_products') }}")
    assert compiled_manifest(project, cache, "before") == before
    after, whole = compiled_manifest(project, cache), compiled_manifest(project)
    assert after.nodes == whole.nodes != before.nodes
    assert (after.sources, after.exposures, after.unit_tests) == (whole.sources, whole.exposures, whole.unit_tests)
    assert after.macros == whole.macros
