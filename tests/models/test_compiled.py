"""What can be checked of the models without a warehouse."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from python_common.config.environment import PROJECT_ROOT
from python_dbt.compile import compiled_manifest
from python_dbt.manifest import DbtManifest
from python_dbt.pii import check, proof
from tests.support.commands import run_dbt, run_dbt_well
from tests.support.small_project import copy_project, write_small_project

pytestmark = pytest.mark.integration

Nodes = dict[str, dict[str, Any]]


def compile_models(target: Path, *selection: str, directory: Path = PROJECT_ROOT) -> None:
    """Compile what is selected without a warehouse."""
    run_dbt_well(
        *("--quiet", "compile", "--no-introspect", "--no-populate-cache", "--select", *selection),
        *("--target-path", str(target), "--log-path", str(target)),
        directory=directory,
        LAKEHOUSE_THRIFT_PORT="1",
    )


@pytest.fixture(scope="module")
def manifest(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Nodes]:
    """The project, but for the SQL of ops: that lists the tables that there are; nothing follows from it."""
    target = tmp_path_factory.mktemp("compiled")
    compile_models(target, "resource_type:model", "--indirect-selection", "empty", "--exclude", "ops")
    return json.loads((target / "manifest.json").read_text())


@pytest.fixture(scope="module")
def compiled(manifest: dict[str, Nodes]) -> Nodes:
    """The models of the manifest."""
    return {name: node for name, node in manifest["nodes"].items() if node["resource_type"] == "model"}


def test_no_model_asks_the_warehouse_when_it_compiles(compiled: Nodes) -> None:
    """A view that did would keep the answer: a column that landed later would be NULL for the batches that follow."""
    assert {node["schema"] for node in compiled.values() if not node.get("compiled_code")} == {"ops"}


def test_a_join_is_below_a_storage_partitioned_merge(compiled: Nodes) -> None:
    """See macros/incremental/by_order.sql: each reads one staging view, which reads one topic."""
    merged = [
        name
        for name, node in compiled.items()
        if node["config"].get("incremental_strategy") in ("earliest", "latest_change")
        and node["config"].get("partition_by")
    ]
    assert len(merged) >= 5
    for name in merged:
        (view,) = compiled[name]["depends_on"]["nodes"]
        (topic,) = compiled[view]["depends_on"]["nodes"]
        assert topic.startswith("source."), name


def test_a_partition_column_is_not_null(compiled: Nodes) -> None:
    """A row without a partition belongs to no week or instant, and no export shows it. `keeps_contract` tests it."""
    partitioned = {name: node for name, node in compiled.items() if node["config"].get("partitions")}
    assert len(partitioned) >= 6
    for name, node in partitioned.items():
        constraints = node["columns"][node["config"]["partition_by"]]["constraints"]
        assert [each["type"] for each in constraints] == ["not_null"], name


def test_each_landed_topic_is_upstream_of_its_batches(manifest: dict[str, Nodes]) -> None:
    """Its SQL lists the tables that there are, which dbt does not see: `dbt ls --select source:...+` must name it."""
    commits = manifest["nodes"]["model.retail_lakehouse.ops_commits"]["depends_on"]["nodes"]
    assert {*commits} == {name for name, node in manifest["sources"].items() if node["config"]["meta"].get("kafka")}


def stored_behind(nodes: Nodes, name: str) -> set[str]:
    """Return the models with stored rows that a model reads, through views or as one itself."""
    if nodes[name]["config"]["materialized"] != "view":
        return {name}
    return {stored for upstream in nodes[name]["depends_on"]["nodes"] for stored in stored_behind(nodes, upstream)}


def bounded_by(node: dict[str, Any]) -> set[str]:
    """Return the tables, by their alias, whose new batches a model reads by its SQL."""
    return set(re.findall(r"lakehouse_bound\('(\w+)_after'", node["compiled_code"]))


def followed_by(nodes: Nodes, name: str) -> dict[str, set[str]]:
    """Return the stored models that a recomputed model follows, each with the recomputed models it is read through."""
    readers: dict[str, set[str]] = {}
    for alias in nodes[name]["config"]["follows"]:
        (stored,) = stored_behind(nodes, f"model.retail_lakehouse.{alias}")
        if nodes[stored]["config"].get("incremental_strategy") == "affected_keys":
            for table in followed_by(nodes, stored):
                readers.setdefault(table, set()).add(stored)
        else:
            readers.setdefault(stored, set())
    return readers


def test_a_recomputed_model_reads_what_it_does_not_follow(compiled: Nodes) -> None:
    """A change of a table that it does not follow would leave rows as they were."""
    recomputed = [
        name for name, node in compiled.items() if node["config"].get("incremental_strategy") == "affected_keys"
    ]
    assert len(recomputed) >= 5
    for name in recomputed:
        followed = followed_by(compiled, name)
        read = {
            stored
            for upstream in compiled[name]["depends_on"]["nodes"]
            if upstream in compiled
            for stored in stored_behind(compiled, upstream)
        }
        # A recomputed table changes with the tables that it follows itself.
        between = {
            table
            for table in read & set(recomputed)
            if all(table in followed.get(upstream, ()) for upstream in followed_by(compiled, table))
        }
        assert read - between == followed.keys(), name
        # Each of them decides on affected keys, itself or by the view of it that the model reads.
        behind = {
            stored
            for alias in bounded_by(compiled[name])
            for stored in stored_behind(compiled, f"model.retail_lakehouse.{alias}")
        }
        assert behind == followed.keys(), name


def test_a_deduplicated_model_reads_other_than_new_batches(compiled: Nodes) -> None:
    deduplicated = [node for node in compiled.values() if node["schema"] == "deduplicated"]
    assert len(deduplicated) >= 8
    for node in deduplicated:
        (view,) = node["depends_on"]["nodes"]
        (source,) = compiled[view]["depends_on"]["nodes"]
        assert bounded_by(node) == {source.rpartition(".")[2]}, node["name"]


def test_figures_follow_exported_columns_and_their_masks_alone(tmp_path: Path, compiled_project: DbtManifest) -> None:
    """A new column of a mart makes no published week due, a new one of an export does.

    Figures that differ by a changed mask are no late data, as after a rotation of the key.
    """

    def masks(figures: str) -> dict[str, str]:
        return dict(re.findall(r"'(\w+)' as dataset_name.*?, '([0-9a-f]{8})'\), ''\) as key_version", figures, re.S))

    before = masks(compiled_project.named("ops_weekly_figures").compiled_code)
    copy_project(tmp_path)
    for name, added in (
        ("marts/fct_completed_orders", "added_to_mart"),
        ("marts/fct_completed_orders", "added_to_both"),
        ("exports/exp_weekly__completed_orders", "added_to_both"),
    ):
        described = tmp_path / "models" / f"{name}.yml"
        column = f"    columns:\n      - {{name: {added}, data_type: string}}\n"
        described.write_text(described.read_text().replace("    columns:\n", column, 1))
    changed = tmp_path / "macros" / "pii" / "masks.sql"
    changed.write_text(changed.read_text().replace("$1***", "$1+++"))
    compile_models(tmp_path / "target", "ops_weekly_figures", directory=tmp_path)
    [file] = (tmp_path / "target" / "compiled").rglob("ops_weekly_figures.sql")
    figures = file.read_text()
    assert "xxhash64(added_to_both, amount, confirmation_code, key_version," in figures
    assert "added_to_mart" not in figures
    after = masks(figures)
    assert len(before) == len(after) == 5
    assert {name for name in before if before[name] != after[name]} == {"product_sales"}


def test_a_deduplicated_model_of_a_mart_holds_personal_data(compiled: Nodes) -> None:
    free = [node for node in compiled.values() if node["schema"] == "deduplicated" and node["access"] != "private"]
    assert free
    for node in free:
        (staging,) = node["depends_on"]["nodes"]
        assert staging.startswith("model."), node["name"]
        classes = {column["config"]["meta"]["pii"] for column in compiled[staging]["columns"].values()}
        assert classes == {"none"}, node["name"]
    groups = [
        {node["group"] for node in compiled.values() if node["access"] == access} for access in ("private", "public")
    ]
    assert groups[0].isdisjoint(groups[1])


def test_reconciliation_is_tested_before_what_it_compares(tmp_path: Path) -> None:
    write_small_project(tmp_path)
    shutil.copytree(PROJECT_ROOT / "tests" / "data" / "generic", tmp_path / "tests" / "generic")
    checks = []
    for name in ("older", "built"):
        (tmp_path / "models" / f"{name}.sql").write_text("select 1 as difference")
        (tmp_path / "models" / f"checks_of_{name}.sql").write_text(f"select difference from {{{{ ref('{name}') }}}}")
        checks.append({"name": f"checks_of_{name}", "columns": [{"name": "difference", "data_tests": ["adds_up"]}]})
    (tmp_path / "models" / "checks.yml").write_text(yaml.safe_dump({"models": checks}))
    compile_models(tmp_path / "target", "checks_of_older", "+checks_of_built", directory=tmp_path)
    nodes = json.loads((tmp_path / "target" / "manifest.json").read_text())["nodes"].values()
    compared = {
        node["attached_node"].rpartition("_")[2]: node["compiled_code"].split()[-1]
        for node in nodes
        if node["resource_type"] == "test"
    }
    assert compared == {"older": "false", "built": "true"}


@pytest.mark.parametrize(
    ("follows", "message"),
    [
        ("['stored']", "later follows stored, which keeps no note of what it has read"),
        ("[]", "later reads what changed in stored. Name that in its config follows."),
    ],
)
def test_a_model_whose_bounds_no_run_would_set_is_refused(tmp_path: Path, follows: str, message: str) -> None:
    """It would never see a new batch, or always all."""
    write_small_project(tmp_path)
    config = f"materialized='incremental', incremental_strategy='rebuild_if_changed', follows={follows}"
    (tmp_path / "models" / "stored.sql").write_text("{{ config(materialized='table') }} select 1 as id")
    (tmp_path / "models" / "later.sql").write_text(
        f"{{{{ config({config}) }}}} select id from {{{{ ref('stored') }}}} where {{{{ changed_in(ref('stored')) }}}}"
    )
    options = ("--no-introspect", "--no-populate-cache", "--select", "later")
    refused = run_dbt("compile", *options, directory=tmp_path, LAKEHOUSE_THRIFT_PORT="1")
    assert message in " ".join(refused.stdout.split())


def test_a_macro_that_the_project_calls_is_not_described(manifest: dict[str, Nodes]) -> None:
    called = {name for node in manifest["nodes"].values() for name in node.get("depends_on", {}).get("macros", ())}
    macros = [manifest["macros"][name] for name in called if name.startswith("macro.retail_lakehouse.")]
    assert len(macros) > 25
    assert [macro["name"] for macro in macros if not macro["description"]] == []
    arguments = [(macro["name"], argument) for macro in macros for argument in macro["arguments"]]
    assert [(name, argument["name"]) for name, argument in arguments if not argument["description"]] == []


# Under models: each file, the line behind which a column `currency` is added, and what is added.
IN_YML = """      - name: currency
        data_type: string
        description: "{{ doc('currency') }}"
"""
IN_SOURCE = IN_YML.replace("      ", "          ", 1).replace("        d", "            d")
DESCRIBED = "        description: \"{{ doc('payment_method') }}\"\n"
ADDED = {
    "staging/payments/_payments__sources.yml": (f"    {DESCRIBED}", IN_SOURCE),
    "staging/payments/stg_payments__payments.sql": (
        "        {{ clean_text('payment_method') }} as payment_method,\n",
        "        {{ clean_text('currency') }} as currency,\n",
    ),
    "staging/payments/stg_payments__payments.yml": (
        "      - {name: payment_method, config: {meta: {pii: none}}}\n",
        "      - {name: currency, config: {meta: {pii: none}}}\n",
    ),
    "intermediate/deduplicated/int_payments_deduplicated.sql": ("        payment_method,\n", "        currency,\n"),
    "intermediate/masked/int_payments_masked.sql": ("        payment_method,\n", "        currency,\n"),
    "marts/fct_completed_orders.sql": (
        "        coalesce(payment_methods.payment_method, payments.spelling) as payment_method,\n",
        "        payments.currency,\n",
    ),
    "marts/fct_completed_orders.yml": (DESCRIBED, IN_YML),
    "exports/exp_weekly__completed_orders.sql": ("        payment_method,\n", "        currency,\n"),
    "exports/exp_weekly__completed_orders.yml": (DESCRIBED, IN_YML),
    "docs/columns.md": ("{% docs payment_method %}\n", "The currency of the amount.\n{% enddocs %}\n\n"),
}


@pytest.mark.slow
def test_a_column_of_a_file_is_named_in_ten_files(tmp_path: Path) -> None:
    copy_project(tmp_path)
    for name, (line, added) in ADDED.items():
        file = tmp_path / "models" / name
        text = file.read_text()
        assert text.count(line) == 1, name
        block = f"{{% docs currency %}}\n{added}" if name.endswith(".md") else ""
        file.write_text(text.replace(line, block + line if block else line + added))
    lineage = proof.resolve(compiled_manifest(tmp_path))
    export = next(node for node in lineage.manifest.models if node.name == "exp_weekly__completed_orders")
    columns = [name for name, _ in lineage.relations[export.unique_id].columns]
    assert check.issues_of(lineage) == []
    assert "currency" in columns
    assert sorted(columns) == sorted(export.columns)
    assert len(ADDED) <= 10
