"""Default deny over the project itself: as it is it passes, and each thing removed or added is refused by name."""

import pickle
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import sqlglot
from pyiceberg.schema import Schema
from pyiceberg.types import IntegerType, ListType, MapType, NestedField, StringType, StructType

from python_common.catalog.catalog import load_catalog
from python_common.config.environment import PROJECT_ROOT
from python_common.config.settings import Settings
from python_common.errors import UserError
from python_dbt.compile import COPIED, compiled_manifest
from python_dbt.manifest import Column, DbtManifest, Hook, Macro, Node
from python_dbt.pii import check, declared, masks, proof

pytestmark = pytest.mark.integration

MASKS = masks.load()
PROJECT = "retail_lakehouse"


@pytest.fixture
def manifest(compiled_project: DbtManifest) -> DbtManifest:
    """A copy of the project's manifest, to damage."""
    return pickle.loads(pickle.dumps(compiled_project))


def model(manifest: DbtManifest, name: str) -> Node:
    return manifest.nodes[f"model.{PROJECT}.{name}"]


def source(manifest: DbtManifest, name: str) -> Node:
    return manifest.sources[f"source.{PROJECT}.{name}"]


def change(manifest: DbtManifest, node: Node, **fields: Any) -> None:
    manifest.nodes[node.unique_id] = replace(node, **fields)


def change_sql(manifest: DbtManifest, name: str, text: str, sql: str) -> None:
    """Replace a text in the SQL of a model, or all of it."""
    node = model(manifest, name)
    parents = [f"model.{PROJECT}.{parent}" for parent in re.findall(r"(?:deduplicated|staging)\.(\w+)", sql)]
    code = node.compiled_code.replace(text, sql) if text else sql
    change(manifest, node, compiled_code=code, parents=[*node.parents, *parents])


def change_type(columns: dict[str, Column], name: str, old: str, new: str) -> None:
    columns[name] = replace(columns[name], data_type=columns[name].data_type.replace(old, new))


def without_masks(manifest: DbtManifest, name: str) -> str:
    """Return the SQL of a model in which the argument of each mask is in its place."""
    tree = sqlglot.parse_one(model(manifest, name).compiled_code, dialect="spark")
    return tree.transform(lambda node: mask.value if (mask := MASKS.match(node)) else node).sql("spark")


def first(manifest: DbtManifest, resource_type: str) -> Node:
    return next(node for node in manifest.nodes.values() if node.resource_type == resource_type)


def messages(manifest: DbtManifest) -> list[str]:
    return [issue.message for issue in check.issues_of(proof.resolve(manifest))]


def test_the_project_passes_without_a_warehouse(manifest: DbtManifest) -> None:
    assert messages(manifest) == []
    assert len(manifest.models) > 20


def test_a_macro_that_changed_since_its_review_passes(manifest: DbtManifest) -> None:
    unique_id = f"macro.{PROJECT}.describe_many"
    macro = manifest.macros[unique_id]
    manifest.macros[unique_id] = replace(macro, macro_sql=macro.macro_sql.replace("lakehouse_relations", "other"))
    [message] = messages(manifest)
    assert message == "Macro describe_many, which models call, sends SQL and was changed since its review"


LEAK = (
    "select people.email as confirmation_code from masked.int_payments_masked as payments"
    " inner join deduplicated.int_customers_versions as people on payments.order_id = people.customer_id"
)
ASKED = "{{ run_query('select max(email) from deduplicated.people').rows[0][0] }}"
HOOK = Hook("{{ copy_people() }}")
# A model, what is replaced in its SQL ('' for all of it), by what, and what the check reports.
CHANGED_SQL = [
    ("stg_shop__customers", "billing_address_id,", "lower(email) as billing_address_id,",
     "bronze.shiftleft_public_customers.email has one class, but is in "
     "stg_shop__customers.email (email), stg_shop__customers.billing_address_id (none)"),
    ("fct_completed_orders", "", LEAK,
     "fct_completed_orders: stg_shop__customers.email (email) reaches confirmation_code without a mask"),
    ("fct_order_lines", "", "select customer_pseudonym from masked.int_store_orders_masked",
     "fct_order_lines keeps pseudonyms without the version of the key they were made"),
    ("fct_trades", "", "select transform(*) using 'cat' from somewhere", "fct_trades cannot be followed"),
    ("stg_storefront__store_orders", "customer.gender", "cast(customer.gender as int) as gender",
     "stg_storefront__store_orders.gender is computed from a classified column"),
    ("int_addresses_versions", "select * from final", "select * from final where street > 5",
     "int_addresses_versions.city is computed from a classified column"),
    ("stg_brokerage__trades", "", "select customer_name as symbol from staging.stg_shop__customers",
     "stg_brokerage__trades.symbol is made of stg_shop__customers.customer_name, which has"),
    ("stg_payments__payments", "confirmation_code,", "kafka_raw_value as confirmation_code,",
     "stg_payments__payments.confirmation_code holds bronze.payments.kafka_raw_value, a"),
]  # fmt: skip
# A node, the fields that it has instead, and what the check reports.
CHANGED_FIELDS: list[tuple[str, dict[str, Any], str]] = [
    ("dim_products", {"post_hooks": [HOOK]}, "dim_products has a hook, whose SQL is not proven"),
    ("channels", {"pre_hooks": [HOOK]}, "channels has a hook, whose SQL is not proven"),
    ("fct_order_lines", {"sql_header": "create temporary function f() returns string return 'x'"},
     "fct_order_lines has the option sql_header, whose SQL is not proven"),
    ("fct_product_sales", {"incremental_predicates": ["exists (select 1)"]},
     "fct_product_sales has the option incremental_predicates, whose SQL is not proven"),
    ("weekly_figures_history", {"unique_key": "(select max(email) from deduplicated.int_customers_versions)"},
     "weekly_figures_history computes (select max(email)"),
    ("exp_weekly__order_lines", {"schema": "deduplicated"},
     "exp_weekly__order_lines is an export in the restricted schema deduplicated"),
]  # fmt: skip
# A model, the Jinja behind its SQL, and what the check reports.
ADDED_JINJA = [
    ("dim_products", "{% if target.name == 'prod' %}{% do run_query('create table copy as select 1') %}{% endif %}",
     "dim_products uses run_query in its Jinja"),
    ("fct_completed_orders", "{{ adapter['execute']('select 1') }}", "fct_completed_orders uses adapter in its Jinja"),
    # Of a macro in a call block dbt notes nothing.
    ("ops_weekly_figures", "{% call(dataset) every_dataset() %}{{ asked() }}{% endcall %}",
     "Models call macro asked with run_query: its SQL is not proven"),
    # A macro that runs what it is given.
    ("fct_trades", "{{ pairs_of('select email, 1 from deduplicated.people') }}",
     "Models call macro pairs_of with run_query, statement: its SQL is not proven"),
]  # fmt: skip
REPORTED = [
    "Models call macro inner with run_query: its SQL is not proven",
    "stg_shop__customers.segment has no PII class",
    "stg_shop__customers.shipping_address_id has the PII class shoe_size, which does not exist",
    "stg_shop__products.color is not in the model's yml",
    "bronze.pizza_orders has the field customer.nickname, which staging does not map",
    "bronze.pizza_orders has the field order_lines.note, which staging does not map",
    "bronze.pizza_orders has the id of a user in customer.userid, and no subjects",
    "bronze.payments lists the field expiration as unused, but staging maps it",
    "int_addresses_masked.postal_area holds stg_shop__addresses.postal_code (none) as it is",
    "int_customers_versions shows a sum of a restricted schema in the report",
    "exp_weekly__product_sales.customer_name_masked holds person_name as",
    "int_payments_masked: stg_payments__payments.card_number is masked as last_four and as pseud",
    "The project has a hook, whose SQL is not proven",
    "test_of_mails shows the result of its fail_calc in logs",
    "stg_shop__customers.email (email) reaches email without a mask of its class",
]


def damage_declarations(manifest: DbtManifest) -> None:
    customers = model(manifest, "stg_shop__customers").columns
    del customers["segment"].meta["pii"]
    customers["shipping_address_id"].meta["pii"] = "shoe_size"
    del model(manifest, "stg_shop__products").columns["color"]
    orders = source(manifest, "storefront.pizza_orders")
    change_type(orders.columns, "customer", "gender", "nickname: string, gender")
    change_type(orders.columns, "order_lines", "category", "note: string, category")
    orders.meta["subjects"] = {"user": ["kafka_key"]}
    source(manifest, "payments.payments").meta["unused"] = ["expiration"]
    # The class `none` has the mask `as_is`, which renders the column itself.
    model(manifest, "stg_shop__addresses").columns["postal_code"].meta["pii"] = "none"
    change_sql(manifest, "int_addresses_masked", "", without_masks(manifest, "int_addresses_masked"))
    model(manifest, "int_customers_versions").meta["excluded"] = {"place": 1, "label": "x", "sum": "phone"}
    model(manifest, "exp_weekly__product_sales").columns["customer_name_masked"].meta["mask"] = "year"


def damage_sql(manifest: DbtManifest) -> None:
    """A card is shown by two masks, a macro asks the warehouse, and a hook, a test and a test's table show rows."""
    rendered = {
        mask.name: mask.tree.sql(dialect="spark").replace(masks.VALUE, "card_number")
        for mask in MASKS.masks
        if mask.pii == "card_number"
    }
    sql = (
        "select order_id, confirmation_code, has_valid_confirmation_code, amount, paid_at, key_version,"
        f" payment_method, {rendered['last_four']} as customer_pseudonym, {rendered['pseudonym']} as card_pseudonym"
        " from (select *, true as has_valid_confirmation_code, 'v1' as key_version"
        " from deduplicated.int_payments_deduplicated)"
    )
    change_sql(manifest, "int_payments_masked", "", sql)
    for name, body, called in (("outer", "{{ inner() }}", ["inner"]), ("inner", ASKED, []), ("asked", ASKED, [])):
        text = f"{{% macro {name}() %}}{body}{{% endmacro %}}"
        macros = [f"macro.{PROJECT}.{macro}" for macro in called]
        manifest.macros[f"macro.{PROJECT}.{name}"] = Macro(name, PROJECT, text, macros)
    model(manifest, "dim_products").macros.append(f"macro.{PROJECT}.outer")
    change(manifest, first(manifest, "operation"), raw_code="create table ops.copy as select 1")
    change(manifest, first(manifest, "test"), name="test_of_mails", fail_calc="max(length(email))")
    attached = f"model.{PROJECT}.int_customers_versions"
    test = next(node for node in manifest.nodes.values() if node.attached_node == attached)
    sql = "select * from deduplicated.int_customers_versions where customer_id is null"
    change(manifest, test, store_failures=True, compiled_code=sql)


@pytest.mark.parametrize("count", [{"where": "card_number like '4%'"}, {"by": "card_number"}])
def test_a_count_by_a_card_number_is_refused(manifest: DbtManifest, count: dict[str, str]) -> None:
    export = model(manifest, "exp_weekly__completed_orders").meta["export"]
    export["counts"] = [{"from": "int_payments_deduplicated", "at": "paid_at", **count}]
    [message] = messages(manifest)
    assert message.startswith("exp_weekly__completed_orders counts events by stg_payments__payments.card_number")


def test_what_is_not_safe_is_refused_by_name(manifest: DbtManifest) -> None:
    damage_declarations(manifest)
    damage_sql(manifest)
    for name, *replaced, _ in CHANGED_SQL:
        change_sql(manifest, name, *replaced)
    for name, fields, _ in CHANGED_FIELDS:
        change(manifest, manifest.named(name), **fields)
    for name, jinja, _ in ADDED_JINJA:
        change(manifest, model(manifest, name), raw_code=model(manifest, name).raw_code + jinja)
    refusals = "\n".join(messages(manifest))
    expected = [*REPORTED, *(message for *_, message in (*CHANGED_SQL, *CHANGED_FIELDS, *ADDED_JINJA))]
    assert [message for message in expected if message not in refusals] == []


TYPES = ["string", "int", "bigint", "float", "double", "boolean", "date", "timestamp", "timestamp_ntz", "binary",
         "decimal(9,2)", "array<string>", "map<string, int>", "struct<a: int>", None]  # fmt: skip


def small_manifest(schema: str, sql: str, **columns: Column) -> DbtManifest:
    """Return a staging model of some columns, and a model `mart` that reads it."""
    names = ", ".join(f"1 as {name}" for name in columns)
    staged = Node(
        *("stg", "model", "stg", "staging"),
        alias="stg", columns=columns, compiled_code=f"select {names}", parents=["source.project.till.people"],
    )  # fmt: skip
    code = f"select {sql} from staging.stg"
    mart = Node("mart", "model", "mart", schema, alias="mart", compiled_code=code, parents=["stg"])
    return DbtManifest({"stg": staged, "mart": mart})


@pytest.mark.parametrize("data_type", TYPES)
def test_a_column_of_no_class_is_personal_whatever_its_type(data_type: str | None) -> None:
    assert messages(small_manifest("marts", "phone", phone=Column(data_type))) == [
        "stg.phone has no PII class",
        "mart: stg.phone (unclassified) reaches phone without a mask of its class",
    ]
    # A reviewed statement, of any type.
    assert messages(small_manifest("marts", "phone", phone=Column(data_type, meta={"pii": "none"}))) == []


@pytest.mark.parametrize("data_type", TYPES)
def test_a_class_whose_mask_does_not_take_the_type_is_named(data_type: str | None) -> None:
    for pii in MASKS.classes:
        issues = [*declared.unclassified(small_manifest("marts", "1", it=Column(data_type, meta={"pii": pii})))]
        assert len(issues) == (not masks.takes(pii, data_type))
        for issue in issues if data_type else ():
            assert issue.message == f"stg.it has the PII class {pii}, whose mask does not take {data_type}"
            fitting = issue.remedy.partition("one of ")[2].split(", ")
            assert fitting == [name for name in MASKS.classes if masks.takes(name, data_type)]


def test_a_masked_class_needs_a_data_type() -> None:
    [issue] = declared.unclassified(small_manifest("marts", "1", it=Column(meta={"pii": "email"})))
    assert str(issue.message) == "stg.it has the PII class email and no data_type"
    [missing] = declared.unclassified(small_manifest("marts", "1", it=Column()))
    assert missing.remedy == f"Declare config.meta.pii as one of {', '.join(MASKS.classes)}"


def test_a_name_promises_its_mask() -> None:
    classes = {"mail": "email", "plain": "none", "sales_area": "none", "born": "birth", "day": "none"}
    columns = {name: Column("string", meta={"pii": pii}) for name, pii in classes.items()}
    of_class = {mask.pii: mask.tree.sql("spark") for mask in MASKS.masks}
    year, mail = (of_class[pii].replace(masks.VALUE, name) for pii, name in (("birth", "born"), ("email", "mail")))
    kept = (
        f"{year} as birth_year, {mail} as pseudonym, {mail} as mail_masked, year(day) as sales_year, sales_area, mail"
    )
    broken = f"plain as mail_pseudonym, plain as last_four, plain as plain_masked, plain as area, {year} as birth_month"
    for schema, sql, expected in (
        ("marts", kept, []),
        ("marts", broken, ["area", "birth_month", "last_four", "mail_pseudonym", "plain_masked"]),
        ("deduplicated", broken, []),
    ):
        issues = declared.broken_promises(small_manifest(schema, sql, **columns))
        assert sorted(issue.message.split()[0] for issue in issues) == [f"mart.{name}" for name in expected]


def test_masks_are_those_of_other_macros_meanwhile() -> None:
    text = (masks.MACROS / "masks.sql").read_text().replace("'email': ['pseudonym']", "'email': ['as_is']")
    with masks.rendered_by([text]):
        assert "email" not in {mask.pii for mask in masks.load().masks}
    assert "email" in {mask.pii for mask in masks.load().masks}


def test_a_type_that_no_bronze_column_has_is_refused_by_name(manifest: DbtManifest) -> None:
    columns = source(manifest, "storefront.pizza_orders").columns
    columns["customer"] = replace(columns["customer"], data_type="map<int, string>")
    with pytest.raises(
        UserError, match=r"bronze\.pizza_orders\.customer: 'map<int, string>' has keys.*Correct its data_"
    ):
        check.issues_of(proof.resolve(manifest))


def test_an_exported_pseudonym_passes_without_subjects(manifest: DbtManifest) -> None:
    model(manifest, "exp_weekly__completed_orders").columns["payer_pseudonym"].meta["subjects"] = []
    del model(manifest, "exp_weekly__customer_activity").columns["customer_key"].meta["subjects"]
    assert [message.partition(", and no subjects")[0] for message in messages(manifest)] == [
        "exp_weekly__completed_orders.payer_pseudonym has the pseudonym of a payments.customer",
        "exp_weekly__customer_activity.customer_key has the pseudonym of a storefront.user",
    ]


def test_the_original_of_a_stand_in_is_checked(tmp_path: Path) -> None:
    """Also of two files of one name, and where the stand-in itself asks nothing."""
    for folder in COPIED:
        (tmp_path / folder).mkdir(parents=True)
    for name in ("dbt_project.yml", ".sqlfluff"):
        shutil.copy(PROJECT_ROOT / name, tmp_path / name)
    shutil.copytree(PROJECT_ROOT / "macros", tmp_path / "macros")
    folder = tmp_path / "macros" / "more"
    folder.mkdir()
    (folder / "weeks.sql").write_text("{% macro leak() %}{{ run_query('select 1').rows[0][0] }}{% endmacro %}")
    sqlfluff = (tmp_path / ".sqlfluff").read_text()
    stand_in = "leak = {% macro leak() %}1{% endmacro %}\nmasked ="
    (tmp_path / ".sqlfluff").write_text(sqlfluff.replace("\nmasked =", f"\n{stand_in}"))
    (tmp_path / "models" / "leaky.sql").write_text("select {{ leak() }} as x, '{{ last_complete_week() }}' as y")
    shutil.copy(PROJECT_ROOT / "profiles.yml", tmp_path)
    refusals = "\n".join(issue.message for issue in check.issues_of(proof.resolve(compiled_manifest(tmp_path))))
    assert "Models call macro leak with run_query: its SQL is not proven" in refusals


def test_batches_are_checked_for_every_bronze_table(manifest: DbtManifest) -> None:
    sql = model(manifest, "ops_ingest_batches").compiled_code
    tables = [source.identifier for source in manifest.landed]
    assert len(tables) == 8
    assert [name for name in tables if f"from bronze.{name}\n" not in sql] == []


def test_only_what_an_export_is_made_of_is_checked(manifest: DbtManifest) -> None:
    change_sql(manifest, "fct_completed_orders", "", LEAK)
    change(manifest, model(manifest, "fct_product_sales"), incremental_predicates=["exists (select 1)"])

    def messages_for(name: str) -> list[str]:
        return [issue.message for issue in check.issues_upstream(manifest, [f"model.{PROJECT}.exp_weekly__{name}"])]

    leak = "fct_completed_orders: stg_shop__customers.email (email) reaches confirmation_code"
    assert any(message.startswith(leak) for message in messages_for("completed_orders"))
    assert messages_for("customer_activity") == []
    [message] = messages_for("product_sales")
    assert message.startswith("fct_product_sales has the option incremental_predicates")


def test_sql_that_dbt_did_not_run_is_no_proof(manifest: DbtManifest) -> None:
    change(manifest, model(manifest, "int_order_items_priced"), compiled_code=None)
    [issue, *_] = check.issues_upstream(manifest, [f"model.{PROJECT}.exp_weekly__product_sales"])
    assert "int_order_items_priced cannot be followed, the dbt command did not compile it" in issue.message


def test_an_export_names_what_it_is_grouped_by(manifest: DbtManifest) -> None:
    del model(manifest, "exp_weekly__customer_activity").columns["customer_key"].meta["pii"]
    assert messages(manifest) == [
        "exp_weekly__customer_activity is grouped by a classified column that its yml does not name"
    ]


def test_a_landed_field_passes_without_a_class(manifest: DbtManifest, offline_settings: Settings) -> None:
    catalog = load_catalog(offline_settings, create=True)
    catalog.create_namespace("bronze")
    line = StructType(NestedField(4, "product_id", IntegerType()), NestedField(5, "gift_note", StringType()))
    gift = NestedField(14, "weight", IntegerType())
    catalog.create_table(
        "bronze.pizza_orders",
        Schema(
            NestedField(1, "store_id", IntegerType()),
            NestedField(2, "phone", StringType()),
            NestedField(3, "order_lines", ListType(6, line)),
            NestedField(7, "kafka_key", StringType()),
            NestedField(8, "home", StructType(NestedField(9, "street", StringType()))),
            NestedField(10, "gifts", MapType(11, StringType(), 12, ListType(13, StructType(gift)))),
        ),
    )
    fields = check.require_classified(manifest, catalog)
    for field in fields:
        assert (
            f"bronze.pizza_orders has the field {field.path}, which its source does not declare" in field.issue.message
        )
    paths = ["phone", "order_lines.gift_note", "home.street", "gifts.weight"]
    assert [(field.path, field.source.meta["kafka"]["topic"]) for field in fields] == [
        (path, "pizza-orders") for path in paths
    ]
    source(manifest, "storefront.pizza_orders").meta["unused"] = paths
    assert check.require_classified(manifest, catalog) == []


@pytest.mark.parametrize(
    ("meta", "pii", "is_refused"),
    [({}, "none", False), ({}, None, True), ({}, "email", True), ({"kafka": {"topic": "people"}}, "none", True)],
    ids=["declared", "no class", "a class", "of a topic"],
)
def test_a_source_is_personal_unless_it_is_declared(meta: dict[str, Any], pii: str | None, is_refused: bool) -> None:
    """Staging classifies the columns of a topic, and none of its source table's is taken for free of personal data."""
    columns = {"name": Column("string", meta={"pii": pii} if pii else {})}
    people = Node("people", "source", "people", "bronze", identifier="people", columns=columns, meta=meta)
    mart = Node("mart", "model", "mart", "ops", alias="mart", compiled_code="select name from bronze.people")
    manifest = DbtManifest({"mart": replace(mart, parents=["people"])}, {"people": people})
    raw = [message for message in messages(manifest) if "bronze.people.name (landed) reaches name" in message]
    assert bool(raw) is is_refused
