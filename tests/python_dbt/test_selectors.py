import json
import shutil

import pytest

from python_dbt.manifest import REFERENCED, load
from tests.support.in_process import dbt


@pytest.fixture(scope="module")
def selected(parsed_project, tmp_path_factory):
    """Return the manifest, and the unique ids that each selector of selectors.yml selects."""
    target = tmp_path_factory.mktemp("target") / "parsed"
    shutil.copytree(parsed_project, target)
    directories = ("--target-path", str(target), "--log-path", str(target))
    parsed = dbt("parse", *directories).result

    def listed(name):
        output = ("--output", "json", "--output-keys", "unique_id")
        lines = dbt("ls", "--selector", name, *output, *directories, manifest=parsed).result
        return {json.loads(line)["unique_id"] for line in lines}

    return load(target / "manifest.json"), {name: listed(name) for name in ("quick", "weekly", "nightly")}


def test_no_selector_selects_a_unit_test(selected):
    assert not [name for names in selected[1].values() for name in names if name.startswith("unit_test.")]


def test_nightly_is_everything_else(selected):
    manifest, by_selector = selected
    # Hooks run with every build, and analyses are never built.
    built = {name for name in manifest.nodes if not name.startswith(("operation.", "analysis."))}
    assert built <= by_selector["nightly"]


def test_weekly_has_all_that_files_and_the_report_are_made_of(selected):
    manifest, by_selector = selected
    exports = [node.unique_id for node in manifest.models if "export" in node.meta]
    figures = manifest.named("ops_weekly_figures").unique_id
    assert {*exports, figures, *manifest.ancestors(*exports, figures)} <= by_selector["weekly"]
    tests = {name for name, node in manifest.nodes.items() if node.attached_node in by_selector["weekly"]}
    # One that also reads a model that is not built is skipped.
    assert {name for name in tests if {*manifest.nodes[name].parents} <= by_selector["weekly"]} <= by_selector["weekly"]


def test_quick_skips_tests_of_several_tables_and_ops(selected):
    manifest, by_selector = selected
    nodes = [manifest.nodes[name] for name in by_selector["quick"] if name in manifest.nodes]
    assert {node.schema for node in nodes if node.resource_type in REFERENCED} == {
        *("staging", "deduplicated", "masked", "joined", "marts", "exports", "reference")
    }
    assert not [node.name for node in nodes if node.test_name == "relationships"]
