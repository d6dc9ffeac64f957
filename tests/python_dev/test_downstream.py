"""What a planned schema reaches behind its table, in this project."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from python_common.catalog.catalog import load_catalog
from python_common.config.settings import Settings
from python_common.errors import UserError
from python_dbt.manifest import DbtManifest
from python_dev import downstream
from python_dev.downstream import BREAKING, LOOK, Reach, reaches
from python_ingest.cli import ingest
from python_ingest.landing.schema_plan import SchemaChange
from tests.support.reviewed import with_nodes
from tests.support.topic_fixture import record

ORDERS, STORE_ORDERS = "bronze.shiftleft_public_orders", "bronze.pizza_orders"


def plan(table: str = ORDERS, **changes: object) -> SchemaChange:
    return SchemaChange("proposed.avsc", None, table, **changes)  # type: ignore[arg-type]


def only(manifest: DbtManifest, table: str = ORDERS, **changes: object) -> Reach:
    [reach] = reaches(plan(table, **changes), manifest)
    return reach


def test_a_column_of_a_file_that_gets_no_value_is_breaking(compiled_project: DbtManifest) -> None:
    reach = only(compiled_project, not_written=("channel",))
    assert (reach.exit_code, reach.staging) == (BREAKING, ["stg_shop__orders.channel_spelling"])
    assert reach.files == ["exp_weekly__order_lines.channel"]
    assert {"int_orders_deduplicated.channel_spelling", "fct_orders.channel"} <= {*reach.models}
    # Both are packed into one struct with it, to find the last change of an order.
    assert {"int_orders_deduplicated.order_status", "fct_orders.order_status"}.isdisjoint(reach.models)


def test_a_field_that_decides_on_rows_alone_is_named(compiled_project: DbtManifest) -> None:
    reach = only(compiled_project, not_written=("__deleted",))
    assert (reach.exit_code, reach.staging, reach.files) == (LOOK, ["stg_shop__orders.is_deleted"], [])
    assert {"fct_orders", "exp_weekly__order_lines"} <= {*reach.rows}


def test_a_new_field_has_no_class_unless_it_is_declared(compiled_project: DbtManifest) -> None:
    new = only(compiled_project, added={"coupon": "string"})
    assert (new.exit_code, new.has_class, new.staging) == (LOOK, False, [])
    assert next(line for line in new.lines() if "class" in line).split()[:2] == ["class", "missing:"]
    declared = only(compiled_project, added={"channel": "string"})
    assert (declared.exit_code, declared.has_class) == (LOOK, True)
    unused = [(source.table, path) for source in compiled_project.landed for path in source.meta.get("unused", ())]
    assert unused
    for table, path in unused:
        assert only(compiled_project, table, added={path: "string"}) == Reach(path, "adds")


def test_a_field_of_a_list_is_followed_to_its_columns(compiled_project: DbtManifest) -> None:
    """A step to the elements, which SQL does not have, is no other field."""
    reach = only(compiled_project, STORE_ORDERS, widened={"order_lines.element.net_price": "double"})
    assert (reach.exit_code, reach.staging) == (LOOK, ["stg_storefront__store_orders.order_lines"])
    assert "fct_order_lines.line_amount" in reach.models
    # Staging takes each field by its name.
    new = only(compiled_project, STORE_ORDERS, added={"order_lines.element.discount": "double"})
    assert (new.has_class, new.staging) == (False, [])


def test_what_cannot_be_followed_counts_as_reached(compiled_project: DbtManifest) -> None:
    fct_orders = compiled_project.named("fct_orders")
    broken = with_nodes(compiled_project, replace(fct_orders, compiled_code="select * from pivot(x)"))
    assert "fct_orders" in only(broken, added={"coupon": "string"}).rows


def test_a_table_of_no_source_is_refused(compiled_project: DbtManifest) -> None:
    with pytest.raises(UserError, match=r"No source of the dbt project is bronze\.other"):
        reaches(plan("bronze.other"), compiled_project)


PROPOSED = record("Order", orderid="int", coupon="string")


@pytest.mark.parametrize(
    ("schema", "option", "code"),
    [(PROPOSED, [], 0), (PROPOSED, ["--downstream"], BREAKING), ("enum of none", ["--downstream"], 1)],
)
def test_the_exit_code_is_that_of_the_worst_plan(
    schema: object,
    option: list[str],
    code: int,
    compiled_project: DbtManifest,
    offline_settings: Settings,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The project is compiled once for all tests."""
    monkeypatch.setattr(downstream, "compiled_manifest", lambda _: compiled_project)
    load_catalog(offline_settings, create=True)
    for name, value in {
        "KAFKA_BOOTSTRAP_SERVERS": offline_settings.kafka_bootstrap_servers,
        "SCHEMA_REGISTRY_URL": offline_settings.schema_registry_url,
        "LAKEHOUSE_CATALOG_URI": offline_settings.catalog_uri,
        "LAKEHOUSE_WAREHOUSE": offline_settings.warehouse,
        "LAKEHOUSE_HOME": str(tmp_path),
    }.items():
        monkeypatch.setenv(name, value)
    file = tmp_path / "order.avsc"
    file.write_text(json.dumps(schema))
    arguments = ["plan-schema", "shiftleft.public.orders", "--schema-file", str(file), "--json", *option]
    ended = CliRunner().invoke(ingest.app, arguments)
    assert ended.exit_code == code, ended.exception
    [printed] = json.loads(ended.stdout)
    assert (printed["table"], bool(printed["refused"])) == (ORDERS, code == 1)
    omitted = {reach["path"]: reach["files"] for reach in printed["downstream"] if reach["change"] == "omits"}
    assert bool(omitted.get("channel")) == (code == BREAKING)
