"""Default deny over the project itself: as it is it passes, and each thing taken away or added is refused by name."""

import copy
from typing import Any

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import IntegerType, ListType, NestedField, StringType, StructType

from lakehouse.catalog import load_catalog
from lakehouse.errors import UserError
from lakehouse.pii import check, masks
from lakehouse.pii.compile import compiled_manifest
from lakehouse.settings import PROJECT_ROOT, Settings

MASKS = masks.load(check.MACROS)
PROJECT = "retail_lakehouse"
Manifest = dict[str, Any]


@pytest.fixture(scope="module")
def compiled() -> Manifest:
    whole = compiled_manifest(PROJECT_ROOT)
    return {part: whole[part] for part in ("nodes", "sources")}


@pytest.fixture
def manifest(compiled: Manifest) -> Manifest:
    """A copy of the project's manifest, to damage."""
    return copy.deepcopy(compiled)


def model(manifest: Manifest, name: str) -> dict[str, Any]:
    return manifest["nodes"][f"model.{PROJECT}.{name}"]


def source(manifest: Manifest, name: str) -> dict[str, Any]:
    return manifest["sources"][f"source.{PROJECT}.{name}"]


def messages(manifest: Manifest) -> list[str]:
    return [problem.message for problem in check.problems(manifest, MASKS)]


def test_the_project_passes_without_a_warehouse(manifest: Manifest) -> None:
    assert messages(manifest) == []
    assert len([node for node in manifest["nodes"].values() if node["resource_type"] == "model"]) > 20


def no_class(manifest: Manifest) -> None:
    del model(manifest, "stg_shop__customers")["columns"]["segment"]["config"]["meta"]["pii"]


def unknown_class(manifest: Manifest) -> None:
    model(manifest, "stg_shop__customers")["columns"]["shipping_address_id"]["config"]["meta"]["pii"] = "shoe_size"


def column_beside_the_yml(manifest: Manifest) -> None:
    del model(manifest, "stg_shop__products")["columns"]["color"]


def field_not_mapped(manifest: Manifest) -> None:
    columns = source(manifest, "storefront.pizza_orders")["columns"]
    columns["customer"]["data_type"] = columns["customer"]["data_type"].replace("gender", "nickname: string, gender")


def field_of_an_array_not_mapped(manifest: Manifest) -> None:
    lines = source(manifest, "storefront.pizza_orders")["columns"]["order_lines"]
    lines["data_type"] = lines["data_type"].replace("category", "note: string, category")


def field_used_and_unused(manifest: Manifest) -> None:
    source(manifest, "payments.payments")["config"]["meta"]["unused"] = ["expiration"]


def understated_copy(manifest: Manifest) -> None:
    node = model(manifest, "stg_shop__customers")
    node["compiled_code"] = node["compiled_code"].replace("billing_address_id,", "lower(email) as billing_address_id,")


def stored_failures(manifest: Manifest) -> None:
    test = next(
        node
        for node in manifest["nodes"].values()
        if node["resource_type"] == "test"
        and node.get("attached_node") == f"model.{PROJECT}.int_customers_deduplicated"
    )
    test["config"]["store_failures"] = True
    test["compiled_code"] = "select * from deduplicated.int_customers_deduplicated where customer_id is null"


def leak_in_a_mart(manifest: Manifest) -> None:
    node = model(manifest, "fct_completed_orders")
    node["compiled_code"] = (
        "select people.email as confirmation_code from masked.int_payments_masked as payments"
        " inner join deduplicated.int_customers_deduplicated as people on payments.order_id = people.customer_id"
    )
    node["depends_on"]["nodes"].append(f"model.{PROJECT}.int_customers_deduplicated")


def card_in_two_masks(manifest: Manifest) -> None:
    rendered = {
        mask.name: mask.tree.sql(dialect="spark").replace(masks.VALUE, "card_number")
        for mask in MASKS.masks
        if mask.pii == "card_number"
    }
    model(manifest, "int_payments_masked")["compiled_code"] = (
        "select order_id, confirmation_code, has_valid_confirmation_code, amount, paid_at, key_version,"
        f" payment_method, {rendered['last_four']} as customer_pseudonym, {rendered['pseudonym']} as card_pseudonym"
        " from (select *, true as has_valid_confirmation_code, 'v1' as key_version"
        " from deduplicated.int_payments_deduplicated)"
    )


def pseudonyms_without_key_version(manifest: Manifest) -> None:
    node = model(manifest, "fct_order_lines")
    node["compiled_code"] = "select customer_pseudonym from masked.int_store_orders_masked"


def strange_sql(manifest: Manifest) -> None:
    model(manifest, "fct_trades")["compiled_code"] = "select transform(*) using 'cat' from somewhere"


def cast_in_staging(manifest: Manifest) -> None:
    node = model(manifest, "stg_storefront__store_orders")
    node["compiled_code"] = node["compiled_code"].replace("customer.gender", "cast(customer.gender as int) as gender")


def condition_in_deduplicated(manifest: Manifest) -> None:
    node = model(manifest, "int_addresses_deduplicated")
    node["compiled_code"] += " where street > 5"


def hook(manifest: Manifest) -> None:
    model(manifest, "dim_products")["config"]["post-hook"] = [{"sql": "select 1"}]


def mislabelled_in_the_dictionary(manifest: Manifest) -> None:
    model(manifest, "exp_weekly__product_sales")["columns"]["customer_name_masked"]["config"]["meta"]["mask"] = "year"


REFUSED = {
    no_class: "stg_shop__customers.segment has no PII class",
    unknown_class: "stg_shop__customers.shipping_address_id has the PII class shoe_size, which does not exist",
    column_beside_the_yml: "stg_shop__products.color is not in the model's yml",
    field_not_mapped: "bronze.pizza_orders has the field customer.nickname, which staging does not map",
    field_of_an_array_not_mapped: "bronze.pizza_orders has the field order_lines.note, which staging does not map",
    field_used_and_unused: "bronze.payments lists the field expiration as unused, but staging maps it",
    understated_copy: "bronze.shiftleft_public_customers.email has one class, but is in "
    "stg_shop__customers.email (email), stg_shop__customers.billing_address_id (none)",
    stored_failures: "stg_shop__customers.email (email) reaches email without a mask of its class",
    leak_in_a_mart: "fct_completed_orders: stg_shop__customers.email (email) reaches confirmation_code without a mask",
    card_in_two_masks: "int_payments_masked: stg_payments__payments.card_number stands there as last_four and as pseud",
    pseudonyms_without_key_version: "fct_order_lines keeps pseudonyms without the version of the key they were made",
    strange_sql: "fct_trades cannot be followed",
    cast_in_staging: "stg_storefront__store_orders.gender is computed from a classified column",
    condition_in_deduplicated: "int_addresses_deduplicated.city is computed from a classified column",
    hook: "dim_products has a hook, whose SQL is not proven",
    mislabelled_in_the_dictionary: "exp_weekly__product_sales.customer_name_masked holds person_name as",
}


def test_what_is_not_safe_is_refused_by_name(manifest: Manifest) -> None:
    for damage in REFUSED:
        damage(manifest)
    found = "\n".join(messages(manifest))
    assert {damage.__name__ for damage, message in REFUSED.items() if message not in found} == set()


def test_an_export_names_what_it_is_grouped_by(manifest: Manifest) -> None:
    del model(manifest, "exp_weekly__customer_activity")["columns"]["customer_key"]["config"]["meta"]["pii"]
    assert messages(manifest) == [
        "exp_weekly__customer_activity is grouped by a classified column that its yml does not name"
    ]


def test_a_field_that_landed_by_schema_evolution_is_refused_until_it_is_classified(
    manifest: Manifest, offline_settings: Settings
) -> None:
    catalog = load_catalog(offline_settings, create=True)
    catalog.create_namespace("bronze")
    line = StructType(NestedField(4, "product_id", IntegerType()), NestedField(5, "gift_note", StringType()))
    catalog.create_table(
        "bronze.pizza_orders",
        Schema(
            NestedField(1, "store_id", IntegerType()),
            NestedField(2, "phone", StringType()),
            NestedField(3, "order_lines", ListType(6, line)),
            NestedField(7, "kafka_key", StringType()),
        ),
    )
    with pytest.raises(UserError) as refusal:
        check.require_classified(manifest, catalog)
    for field in ("phone", "order_lines.gift_note"):
        assert f"bronze.pizza_orders has the field {field}, which its source does not declare" in str(refusal.value)
    assert "2 things to correct" in str(refusal.value)
    source(manifest, "storefront.pizza_orders")["config"]["meta"]["unused"] = ["phone", "order_lines.gift_note"]
    check.require_classified(manifest, catalog)
