import shutil
from pathlib import Path

import pytest

from python_common.config.environment import PROJECT_ROOT
from python_dbt.compile import compiled_manifest
from tests.support.small_project import write_small_project

pytestmark = pytest.mark.integration

FILES = {
    "macros/is_paid.sql": "{% macro is_paid(hours) %}{{ hours }} <= 96{% endmacro %}",
    "models/paid.sql": "select hours, channel from {{ ref('channels') }} where {{ is_paid('hours') }}",
    "models/counted.sql": "select count(*) as payments from {{ ref('paid') }}",
    "models/counted.yml": "models: [{name: counted, description: One row., columns: [{name: payments}]}]",
    "models/paid.yml": "unit_tests: [{name: test_paid__late, model: paid, given: [], expect: {rows: []}}]",
    "seeds/channels.csv": "hours,channel\n1,store\n",
}
EDITED = {
    "macros/is_paid.sql": ("96", "95"),
    "models/paid.sql": ("channel", "upper(channel) as channel"),
    "models/counted.yml": ("One row.", "One row, of all."),
    "models/paid.yml": (FILES["models/paid.yml"], "unit_tests: []"),
    "seeds/channels.csv": ("store", "shop"),
}


def test_what_was_parsed_before_changes_no_manifest(tmp_path: Path) -> None:
    """A macro, a model, a yml and a seed are edited, a model is added and a unit test removed."""
    project, cache = tmp_path / "project", tmp_path / "cache"
    for directory in (project, cache, project / "macros", project / "seeds"):
        directory.mkdir()
    write_small_project(project, **{"macro-paths": ["macros"]})
    for name in ("profiles.yml", ".sqlfluff"):
        shutil.copy(PROJECT_ROOT / name, project / name)
    for name, text in FILES.items():
        (project / name).write_text(text)
    before = compiled_manifest(project, cache, "before")
    for name, (old, new) in EDITED.items():
        (project / name).write_text(FILES[name].replace(old, new, 1))
    (project / "models" / "extra.sql").write_text("select * from {{ ref('counted') }}")
    assert compiled_manifest(project, cache, "before") == before
    after, whole = compiled_manifest(project, cache), compiled_manifest(project)
    assert after.nodes == whole.nodes != before.nodes
    assert (after.sources, after.exposures, after.unit_tests) == (whole.sources, whole.exposures, whole.unit_tests)
    assert after.macros == whole.macros
    assert "95" in (after.named("paid").compiled_code or "")
