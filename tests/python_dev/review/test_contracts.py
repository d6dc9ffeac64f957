from dataclasses import replace
from textwrap import shorten

import pytest
import sqlglot
from sqlglot import exp

from python_dbt.manifest import Column, Constraint, DbtManifest, Exposure, Hook
from python_dbt.pii import masks, proof
from python_dbt.pii.flows import RESTRICTED, STAGING
from python_dbt.pii.masks import AS_IS
from python_dev.review import contracts
from python_dev.review.contracts import findings, impersonal_columns, key
from tests.support.reviewed import with_nodes

EXPORT = "exp_weekly__product_sales"
ORDER_ID = f"{EXPORT}.order_id"
MOVED = ("breaking", EXPORT, "columns move: only a new last one moves no other")
ADDED = ("look", f"{EXPORT}.new", "column added, type int, constraints none, description New.")
NEW = Column("int", "New.")
PRICE = "Price of one unit, in currency units. NULL when unknown, or when it has more than 26 digits ..."
# A class of another mask.
WEAKER = {"person_name": "postal_code"}


def entries(before, after):
    return [(finding.severity, finding.object, finding.message) for finding in findings(before, after)]


def of_node(side, name, **fields):
    """What is found of a project of one node, which gets other fields."""
    node = side.manifest.named(name)
    return entries(*(DbtManifest({node.unique_id: one}) for one in (node, replace(node, **fields))))


def columns(side, name, others):
    """The columns of a node, with others in their place, without those that are None."""
    return {column: new for column, new in {**side.manifest.named(name).columns, **others}.items() if new}


@pytest.mark.parametrize(
    ("name", "others", "expected"),
    [
        (
            "fct_trades",
            {
                "quantity": None,
                "price": Column("decimal(30,4)", "Price.", [Constraint("not_null")]),
                "new": NEW,
                "bare": Column("int"),
            },
            [
                ("breaking", "fct_trades.price", "type decimal(28,2) becomes decimal(30,4)"),
                ("breaking", "fct_trades.quantity", "column removed"),
                ("look", "fct_trades.bare", "column added, type int, constraints none, description none"),
                ("look", "fct_trades.new", "column added, type int, constraints none, description New."),
                ("look", "fct_trades.price", "constraints none becomes not_null"),
                (
                    "note",
                    "fct_trades.price",
                    f"description {PRICE} becomes Price.",
                ),
            ],
        ),
        (
            "int_trades_deduplicated",
            {"trade_key": None},
            [("look", "int_trades_deduplicated.trade_key", "column removed")],
        ),
        (
            EXPORT,
            {"order_id": Column("bigint", "Order.")},
            [
                ("breaking", ORDER_ID, "constraints not_null becomes none"),
                ("note", ORDER_ID, "description Order number of the web shop. becomes Order."),
            ],
        ),
        (EXPORT, {"order_id": None}, [("breaking", ORDER_ID, "column removed")]),
        (EXPORT, {"new": NEW}, [ADDED]),
    ],
    ids=["of a mart", "of a restricted model", "promise of a file", "removed of a file", "last of a file"],
)
def test_a_changed_column_is_as_bad_as_its_readers_are_far(side, name, others, expected):
    assert of_node(side, name, columns=columns(side, name, others)) == expected


def test_a_column_of_a_file_that_moves_others_is_breaking(side):
    here = columns(side, EXPORT, {})
    assert of_node(side, EXPORT, columns={"new": NEW, **here}) == [MOVED, ADDED]
    assert of_node(side, EXPORT, columns=dict(reversed(here.items()))) == [MOVED]


def test_another_key_grain_or_access_is_named(side):
    node = side.manifest.named("fct_product_sales")
    config = {**node.config, "access": "protected", "contract": {"enforced": False}}
    found = of_node(side, node.name, unique_key="order_id", description="One row per order. More.", config=config)
    grain = shorten(node.grain, contracts.SHOWN, placeholder=" ...")
    described = shorten(node.description, contracts.SHOWN, placeholder=" ...")
    assert {(severity, message) for severity, _, message in found} == {
        ("breaking", "key order_item_id becomes order_id"),
        ("look", f"grain {grain} becomes One row per order"),
        ("note", f"description {described} becomes One row per order. More."),
        ("breaking", "contract enforced becomes none"),
        ("breaking", "access public becomes none"),
    }


def test_what_decides_on_the_files_of_an_export_is_listed(side):
    node = side.manifest.named(EXPORT)
    meta = {**node.meta, "export": {**node.meta["export"], "audience": "partners", "order_by": ["order_id"]}}
    quiet = replace(node.columns["brand"], meta={**node.columns["brand"].meta, "pii_scan": "off: names of brands"})
    assert of_node(side, EXPORT, meta=meta, columns=columns(side, EXPORT, {"brand": quiet})) == [
        ("look", EXPORT, "config.meta.export.audience analysts becomes partners"),
        ("look", EXPORT, "config.meta.export.order_by ['ordered_at', 'order_item_id'] becomes ['order_id']"),
        ("look", f"{EXPORT}.brand", "config.meta.pii_scan none becomes off: names of brands"),
    ]


def test_a_key_is_that_of_the_export_the_unique_key_or_a_test(side):
    keys = {
        "exp_weekly__order_lines": ["order_line_key"],
        "fct_product_sales": ["order_item_id"],
        "fct_product_demand_weekly": ["ordered_week", "channel_group", "product_key", "category"],
        "dim_customers": ["customer_id"],
    }
    assert {name: key(side.manifest.named(name), side.manifest) for name in keys} == keys


def test_removed_models_and_tests_are_found(side):
    test = next(node for node in side.manifest.nodes.values() if node.test_name == "unique")
    gone = {node.unique_id: node for node in (test, side.manifest.named(EXPORT))}
    assert entries(DbtManifest(gone), DbtManifest()) == [
        ("breaking", EXPORT, "model removed"),
        ("look", test.name, "test removed"),
    ]


def test_exposures_that_differ_are_named(side):
    exposures = {
        name: Exposure(name, parents=[name]) for name in ("exposure.shop.sales_csv", "exposure.shop.stock_csv")
    }
    [removed, kept] = exposures
    before, after = DbtManifest(exposures=exposures), DbtManifest(exposures={kept: Exposure(kept)})
    assert entries(before, after) == [
        ("look", "exposure sales_csv", "removed"),
        ("look", "exposure stock_csv", "changed"),
    ]
    assert entries(DbtManifest(), DbtManifest(exposures={removed: exposures[removed]})) == [
        ("note", "exposure sales_csv", "added")
    ]


def test_nothing_is_found_without_a_change(side):
    assert entries(side.manifest, side.manifest) == []


def staging_columns(manifest):
    return {
        f"{node.name}.{name}": column.meta["pii"]
        for node in manifest.models
        for name, column in node.columns.items()
        if node.schema == STAGING and column.meta["pii"] != AS_IS
    }


def with_classes(manifest, change):
    """The manifest with another class of each staging column."""
    nodes = [
        replace(
            node,
            columns={
                name: replace(column, meta={**column.meta, "pii": change(column.meta["pii"])})
                for name, column in node.columns.items()
            },
        )
        for node in manifest.models
        if node.schema == STAGING
    ]
    return with_nodes(manifest, *nodes)


def without_masks(manifest):
    """The manifest in whose compiled SQL all masks are left out."""
    match = masks.load().match
    nodes = [
        replace(
            node,
            compiled_code=sqlglot.parse_one(node.compiled_code, dialect="spark")
            .transform(lambda part: mask.value if (mask := match(part)) else part)
            .sql("spark"),
        )
        for node in manifest.models
        if node.schema == "masked"
    ]
    return with_nodes(manifest, *nodes)


def masked_columns(manifest):
    """The staging columns that readable ones hold masked."""
    return {
        flow.column
        for _, relation in proof.resolve(manifest).readable()
        for _, flows in relation.columns
        for flow in flows
        if flow.mask
    }


def leaking(found):
    """The messages of masks that are missing or of another class."""
    return [text for level, _, text in found if level == "breaking" and "without a mask of its class" in text]


@pytest.mark.parametrize(
    ("change", "severity", "message"),
    [
        (lambda pii: AS_IS, "breaking", "leak: PII class {} becomes none"),
        # shows the first letter of each word, or two characters
        (lambda pii: pii if pii == AS_IS else WEAKER.get(pii, "person_name"), "look", "PII class {} becomes {}"),
    ],
    ids=["none", "weaker"],
)
def test_another_class_of_any_column_is_named(side, change, severity, message):
    after = with_classes(side.manifest, change)
    found = entries(side.manifest, without_masks(after) if severity == "breaking" else after)
    before = staging_columns(side.manifest)
    assert len(before) > 10
    changes = {column: (pii, change(pii)) for column, pii in before.items() if pii != change(pii)}
    assert {(severity, column, message.format(*classes)) for column, classes in changes.items()} <= {*found}
    reaching = masked_columns(side.manifest)
    assert len(reaching) > 5
    assert {column for column in reaching if not any(f" {column} (" in text for text in leaking(found))} == set()


def test_classes_of_a_project_that_does_not_compile_are_named(side):
    found = contracts.declared_classes(side.manifest, with_classes(side.manifest, lambda _: AS_IS))
    assert {(one.severity, one.object, one.message) for one in found} == {
        ("breaking", column, f"leak: PII class {pii} becomes none")
        for column, pii in staging_columns(side.manifest).items()
    }


def test_a_hook_that_a_yml_adds_is_searched_for_personal_data(side):
    found = of_node(side, "fct_trades", post_hooks=[Hook("create table marts.x as select * from staging.y")])
    assert found == [("breaking", "personal data", "fct_trades has a hook, whose SQL is not proven")]


def test_a_class_that_reaches_another_column_is_listed(side):
    export = side.manifest.named(EXPORT)
    ancestors = {*side.manifest.ancestors(export.unique_id), export.unique_id}
    before = replace(
        side.manifest, nodes={name: side.manifest.nodes[name] for name in ancestors & side.manifest.nodes.keys()}
    )
    tree = sqlglot.parse_one(export.compiled_code, dialect="spark")
    [projection] = [
        part
        for select in tree.find_all(exp.Select)
        for part in select.expressions
        if part.alias_or_name == "customer_name_masked"
    ]
    projection.replace(exp.alias_(exp.column("brand"), "customer_name_masked"))
    after = with_nodes(before, replace(export, compiled_code=tree.sql("spark")))
    column = f"{EXPORT}.customer_name_masked"
    assert ("note", column, "person_name no longer reaches it, masked as initials") in entries(before, after)
    assert ("look", column, "person_name reaches it, masked as initials") in entries(after, before)


@pytest.mark.parametrize(
    ("was", "now", "expected"),
    [
        ({}, {"a": "pseudonym"}, ("look", "m.a", "email reaches it, masked as pseudonym")),
        ({"a": "pseudonym"}, {}, ("note", "m.a", "email no longer reaches it, masked as pseudonym")),
        (
            {"a": "pseudonym"},
            {"a": "initials"},
            ("look", "m.a", "weaker: email reaches it masked as initials, was masked as pseudonym"),
        ),
        (
            {"a": "initials"},
            {"a": "pseudonym"},
            ("look", "m.a", "email reaches it masked as pseudonym, was masked as initials"),
        ),
        ({"a": "pseudonym"}, {"a": "pseudonym"}, None),
    ],
)
def test_only_paths_that_are_new_gone_or_weaker_are_named(was, now, expected):
    old, new = ({("m", name, "email"): {f"masked as {mask}"} for name, mask in one.items()} for one in (was, now))
    found = [(one.severity, one.object, one.message) for one in contracts._flows(old, new, {"m"})]
    assert found == ([expected] if expected else [])


def test_another_mask_names_what_a_full_refresh_must_build(side):
    """Its paths stay: the code before the change is followed with the masks before it."""
    old, new = "'$1***')", "'$1****')"
    macros = {name: replace(one, macro_sql=one.macro_sql.replace(old, new)) for name, one in side.macros.items()}
    nodes = {
        name: replace(node, compiled_code=(node.compiled_code or "").replace(old, new))
        for name, node in side.manifest.nodes.items()
    }
    tables = "exp_weekly__product_sales, fct_customers_rolling_30d, fct_product_sales"
    after = replace(side.manifest, macros={**side.manifest.macros, **macros}, nodes=nodes)
    assert entries(side.manifest, after) == [
        ("look", "masks", f"initials change, of person_name: full refresh of {tables}")
    ]


@pytest.mark.parametrize("name", ["fct_order_lines", "fct_order_lines_excluded", "dim_products_all_channels"])
def test_a_union_of_distinct_rows_is_no_other_path_of_a_person(side, name):
    node = side.manifest.named(name)
    assert "union all" in node.compiled_code
    other = replace(node, compiled_code=node.compiled_code.replace("union all", "union"))
    assert entries(side.manifest, with_nodes(side.manifest, other)) == []


def test_an_added_test_and_another_description_are_notes(side):
    node = side.manifest.named("fct_trades")
    assert of_node(side, "fct_trades", description=f"{node.description} More.") == [
        # The first words are the same.
        ("note", "fct_trades", "description changes")
    ]
    assert of_node(side, "fct_trades", description="") == [
        (
            "look",
            "fct_trades",
            f"description {shorten(node.description, contracts.SHOWN, placeholder=' ...')} becomes none",
        ),
        ("look", "fct_trades", f"grain {shorten(node.grain, contracts.SHOWN, placeholder=' ...')} becomes none"),
    ]
    test = next(node for node in side.manifest.nodes.values() if node.test_name == "unique")
    assert entries(DbtManifest(), DbtManifest({test.unique_id: test})) == [("note", test.name, "test added")]


def test_a_column_that_one_side_lacks_is_in_samples(side):
    node = side.manifest.named("fct_orders")
    fewer = replace(node, compiled_code=node.compiled_code.replace("orders.order_status,", "", 1))
    assert fewer.compiled_code != node.compiled_code
    for sides in (
        (with_nodes(side.manifest, fewer), side.manifest),
        (side.manifest, with_nodes(side.manifest, fewer)),
    ):
        assert "order_status" in impersonal_columns(*sides)["fct_orders"]


def test_columns_of_persons_and_beside_them_are_in_no_sample(side):
    """Neither what a class reaches masked, nor an id of a person, nor a quasi-identifier in the same table."""
    columns = impersonal_columns(side.manifest)
    for table, shown, hidden in (
        ("fct_order_lines", {"quantity", "line_amount", "order_line_key"}, {"customer_key"}),
        (
            "fct_product_sales",
            {"total_amount", "quantity", "product_name", "order_item_id"},
            {"customer_id", "shipping_city", "billing_state"},
        ),
        # Of a struct with the id of a person, the other fields are none.
        ("fct_orders", {"order_status", "ordered_at", "channel"}, set()),
    ):
        assert (shown - columns[table], hidden & columns[table]) == (set(), set())
    assert not {node.name for node in side.manifest.models if node.schema in RESTRICTED} & columns.keys()
