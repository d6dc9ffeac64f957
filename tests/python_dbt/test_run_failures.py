"""What failed in a build is found where it is; what is read again, and what is built."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from python_common.weeks import IsoWeek
from python_dbt.project import Project
from python_dbt.run import build, failures, parse
from tests.support.hostile_rows import DATASET
from tests.support.two_exports import node, project, two_exports


@pytest.fixture
def manifest() -> dict[str, Any]:
    return two_exports()


@pytest.mark.parametrize(
    ("results", "expected"),
    [
        ({"model.p.fct_sales": "success", "test.p.not_null_fct_sales": "pass"}, []),
        ({"test.p.not_null_fct_sales": "warn", "model.p.gone": "error"}, []),
        ({"test.p.not_null_fct_sales": "fail"}, [("model.p.fct_sales", "test not_null_fct_sales failed")]),
        (
            {"test.p.assert_all": "error"},
            [("model.p.fct_sales", "test assert_all failed"), ("seed.p.regions", "test assert_all failed")],
        ),
        (
            {"model.p.stg_sales": "error", "model.p.fct_sales": "skipped", "model.p.exp_weekly__one": "skipped"},
            [("model.p.stg_sales", "stg_sales could not be built (CAST_INVALID_INPUT)")],
        ),
        ({"model.p.exp_weekly__one": "skipped"}, [("model.p.exp_weekly__one", "exp_weekly__one was skipped")]),
    ],
)
def test_what_failed_in_a_build_is_found_where_it_is(
    tmp_path: Path, manifest: dict[str, Any], results: dict[str, str], expected: list[tuple[str, str]]
) -> None:
    manifest["nodes"]["test.p.not_null_fct_sales"]["attached_node"] = "model.p.fct_sales"
    manifest["nodes"]["test.p.assert_all"] = node("assert_all", "model.p.fct_sales", "seed.p.regions", kind="test")
    built = project(tmp_path, manifest)
    message = "HiveSQLException: [CAST_INVALID_INPUT] org.apache.spark.SparkNumberFormatException: '4111-1' ..."
    results_of_dbt = [{"unique_id": name, "status": status, "message": message} for name, status in results.items()]
    built.results_path.write_text(json.dumps({"results": results_of_dbt}))
    assert [(issue.object, issue.message) for issue in failures(built)] == expected


def test_the_project_is_read_again_when_it_has_changed(
    tmp_path: Path, manifest: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    its_project = project(tmp_path, manifest)
    calls: list[str] = []
    monkeypatch.setattr("python_dbt.run._dbt", lambda _, command, failed: calls.append(command))
    (its_project.directory / "models").mkdir()
    sources = [its_project.directory / "dbt_project.yml", its_project.directory / "models" / "sales.sql"]
    for path in sources:
        path.touch()
        os.utime(path, (1, 1))
    os.utime(its_project.directory / "models", (1, 1))
    parse(its_project)
    assert calls == []
    for path in sources:
        later = its_project.manifest_path.stat().st_mtime + 1
        os.utime(path, (later, later))
        parse(its_project)
        os.utime(path, (1, 1))
    assert calls == ["parse", "parse"]


def test_what_a_model_comes_from_is_always_built_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Records may have landed after its ancestors were built and before it was: its table is the newest then."""
    dbt = tmp_path / "dbt"
    dbt.write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/arguments\n')
    dbt.chmod(0o755)
    monkeypatch.setattr("sys.executable", str(tmp_path / "python"))
    build(Project(tmp_path, os.environ), [DATASET.model], [IsoWeek(2020, 53)])
    assert (tmp_path / "arguments").read_text().endswith("--select +exp_weekly__events\n")
