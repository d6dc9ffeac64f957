"""dbt's manifest is read as dbt writes it, and what cannot be read is refused without its content."""

import json
from pathlib import Path

import pytest

from python_common.errors import UserError
from python_dbt.manifest import Constraint, DbtManifest, Hook, load, parse

MODEL = "model.retail_lakehouse."
TEST = {"unique_id": "test.p.one", "resource_type": "test", "name": "one", "schema": "audit"}
PRE_HOOK = {"pre-hook": "4111-1111"}


@pytest.fixture(scope="module")
def manifest(parsed_project: Path) -> DbtManifest:
    return load(parsed_project / "manifest.json")


def test_dbt_parses_no_file_again_for_other_weeks(parsed_project: Path) -> None:
    """It would parse again those that ask for an environment variable while they are parsed."""
    from dbt.contracts.graph.manifest import Manifest  # noqa: PLC0415

    parsed = Manifest.from_msgpack((parsed_project / "partial_parse.msgpack").read_bytes())
    assert parsed.env_vars == {}


def test_models_have_their_declarations_and_what_they_read(manifest: DbtManifest) -> None:
    model = manifest.named("exp_weekly__order_lines")
    assert (model.unique_id, model.table) == (f"{MODEL}exp_weekly__order_lines", "exports.exp_weekly__order_lines")
    assert model.original_file_path == "models/exports/exp_weekly__order_lines.sql"
    assert model.meta["export"]["key"] == ["order_line_key"]
    assert (model.materialized, model.partition_by) == ("incremental", "ordered_week")
    assert model.parents == [f"{MODEL}fct_order_lines"]
    assert "select * from final" in model.raw_code
    key = model.columns["order_line_key"]
    assert (key.data_type, key.constraints) == ("string", [Constraint("not_null")])
    assert len(key.description) > 10
    assert model.column_meta("no_column") == {}


def test_the_manifest_lacks_what_is_checked_of_a_node(manifest: DbtManifest) -> None:
    tests = [node for node in manifest.nodes.values() if node.resource_type == "test"]
    assert {test.fail_calc for test in tests} == {"count(*)"}
    assert {test.store_failures for test in tests} == {False}
    assert f"{MODEL}exp_weekly__order_lines" in {test.attached_node for test in tests}
    assert manifest.named("weekly_figures_history").unique_key
    hooks = [node.raw_code for node in manifest.nodes.values() if node.resource_type == "operation"]
    assert "{{ check_pii_key() }}" in hooks
    masked = manifest.macros["macro.retail_lakehouse.masked"]
    assert "macro.retail_lakehouse.mask" in masked.macros
    assert "macro masked(" in masked.macro_sql


def test_landed_tables_are_at_the_end_of_lineage(manifest: DbtManifest) -> None:
    payments = manifest.sources["source.retail_lakehouse.payments.payments"]
    assert payments in manifest.landed
    assert (payments.table, payments.source_name) == ("bronze.payments", "payments")
    ancestors = manifest.ancestors(f"{MODEL}exp_weekly__completed_orders")
    assert {payments.unique_id, f"{MODEL}int_payments_masked"} <= {*ancestors}
    assert f"{MODEL}fct_trades" not in ancestors


def test_configuration_that_is_sql_is_read() -> None:
    config = {"pre-hook": [{"sql": "a", "transaction": True}], "post-hook": [{"sql": "b"}], "sql_header": "c"}
    config |= {"incremental_predicates": ["d"], "fail_calc": "max(e)", "store_failures_as": "table"}
    test = parse(json.dumps({"nodes": {"test.p.one": TEST | {"config": config}}})).nodes["test.p.one"]
    assert (test.pre_hooks, test.post_hooks, test.sql_header) == ([Hook("a")], [Hook("b")], "c")
    assert (test.incremental_predicates, test.fail_calc, test.store_failures_as) == (["d"], "max(e)", "table")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{"nodes": {', "Invalid JSON"),
        ('{"nodes": {"model.p.one": {"name": "4111-1111"}}}', "Field required at nodes.model.p.one.unique_id"),
        (json.dumps({"nodes": {"a": TEST | {"config": PRE_HOOK}}}), "array at nodes.a.config.pre-hook"),
    ],
)
def test_a_manifest_in_another_form_is_refused(tmp_path: Path, text: str, reason: str) -> None:
    path = tmp_path / "manifest.json"
    path.write_text(text)
    with pytest.raises(UserError, match="cannot be read") as refusal:
        load(path)
    assert reason in refusal.value.message
    assert "4111" not in str(refusal.value)
