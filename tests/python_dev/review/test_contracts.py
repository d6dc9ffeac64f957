import re
import shutil
from dataclasses import replace

import pytest
import sqlglot
from sqlglot import exp

from python_common.config.environment import PROJECT_ROOT
from python_dbt.compile import COPIED, compiled_manifest
from python_dbt.manifest import Column, Constraint, Hook
from python_dbt.pii import declared, masks, proof
from python_dbt.pii.flows import RESTRICTED, STAGING
from python_dbt.pii.masks import AS_IS
from python_dev.review import scope
from python_dev.review.contracts import findings, impersonal_columns, key

# A class of another mask.
WEAKER = {"person_name": "postal_code"}


def changed(side, name, **fields):
    """The manifest with other fields of a node, and the node."""
    node = side.manifest.named(name)
    return replace(side.manifest, nodes={**side.manifest.nodes, node.unique_id: replace(node, **fields)})


def entries(side, after):
    return [(finding.severity, finding.object, finding.message) for finding in findings(side.manifest, after)]


def columns(side, name, **others):
    """The columns of a node, with others in their place, without those that are None."""
    return {column: new for column, new in {**side.manifest.named(name).columns, **others}.items() if new}


def test_a_changed_column_is_as_bad_as_its_readers_are_far(side):
    price = Column("decimal(30,4)", "Price.", [Constraint("not_null")])
    after = side.manifest
    for name, others in {
        "fct_trades": {"quantity": None, "price": price, "new": Column("int", "New."), "bare": Column("int")},
        "int_trades_deduplicated": {"trade_key": None},
        "exp_weekly__product_sales": {"order_id": Column("bigint", "Order.")},
    }.items():
        after = changed(scope.Side(after, {}), name, columns=columns(side, name, **others))
    names = ("fct_trades", "int_trades_deduplicated", "exp_weekly__product_sales")
    assert [entry for entry in entries(side, after) if entry[1].startswith(names)] == [
        ("breaking", "exp_weekly__product_sales.order_id", "no longer promises not_null"),
        ("breaking", "fct_trades.price", "type decimal(28,2) becomes decimal(30,4)"),
        ("breaking", "fct_trades.quantity", "column removed"),
        ("look", "fct_trades.bare", "column added"),
        ("look", "fct_trades.bare", "column without description"),
        ("look", "fct_trades.new", "column added"),
        ("look", "fct_trades.price", "promises not_null"),
        ("look", "int_trades_deduplicated.trade_key", "column removed"),
    ]


def test_a_removed_column_of_a_file_is_one_finding(side):
    name = "exp_weekly__product_sales"
    after = changed(side, name, columns=columns(side, name, quantity=None))
    of_column = [entry for entry in entries(side, after) if entry[1] == f"{name}.quantity"]
    assert of_column == [("breaking", f"{name}.quantity", "column removed")]


def test_a_new_column_of_a_file_that_is_not_the_last_moves_the_others(side):
    name = "exp_weekly__product_sales"
    moved = ("breaking", name, "columns move: only a new last one moves no other")
    inserted = {"new": Column("int", "New."), **columns(side, name)}
    assert moved in entries(side, changed(side, name, columns=inserted))
    reverse = dict(reversed(columns(side, name).items()))
    assert moved in entries(side, changed(side, name, columns=reverse))
    appended = {**columns(side, name), "new": Column("int", "New.")}
    assert moved not in entries(side, changed(side, name, columns=appended))


def test_another_key_grain_or_access_is_named(side):
    name = "fct_product_sales"
    node = side.manifest.named(name)
    config = {**node.config, "access": "protected", "contract": {"enforced": False}}
    after = changed(side, name, unique_key="order_id", description="One row per order. More.", config=config)
    messages = {message for _, subject, message in entries(side, after) if subject == name}
    assert messages == {
        "key order_item_id becomes order_id",
        f'grain "{node.grain}" becomes "One row per order"',
        "contract no longer enforced",
        "no longer public",
    }


def test_what_decides_on_the_files_of_an_export_is_listed(side):
    name = "exp_weekly__product_sales"
    node = side.manifest.named(name)
    meta = {**node.meta, "export": {**node.meta["export"], "audience": "partners", "order_by": ["order_id"]}}
    quiet = replace(node.columns["brand"], meta={**node.columns["brand"].meta, "pii_scan": "off: names of brands"})
    after = changed(side, name, meta=meta, columns=columns(side, name, brand=quiet))
    assert entries(side, after) == [
        ("look", name, "config.meta changes: audience, order_by"),
        ("look", f"{name}.brand", "config.meta changes: pii_scan"),
    ]


def test_a_key_is_that_of_the_export_the_unique_key_or_a_test(side):
    keys = {name: key(side.manifest.named(name), side.manifest) for name in (
        "exp_weekly__order_lines", "fct_product_sales", "fct_product_demand_weekly", "dim_customers", "channels"
    )}  # fmt: skip
    assert keys["exp_weekly__order_lines"] == ["order_line_key"]
    assert keys["fct_product_sales"] == ["order_item_id"]
    assert keys["fct_product_demand_weekly"] == ["ordered_week", "channel_group", "product_key", "category"]
    assert keys["dim_customers"] == ["customer_id"]


def test_removed_models_and_tests_are_found(side):
    tests = [node for node in side.manifest.nodes.values() if node.test_name == "unique"]
    nodes = {**side.manifest.nodes}
    del nodes[tests[0].unique_id], nodes[side.manifest.named("exp_weekly__product_sales").unique_id]
    assert {
        ("look", tests[0].name, "test removed"),
        ("breaking", "exp_weekly__product_sales", "model removed"),
    } <= {*entries(side, replace(side.manifest, nodes=nodes))}


def with_projection(side, name, alias, sql):
    """The manifest in whose compiled SQL a column is another expression."""
    tree = sqlglot.parse_one(side.manifest.named(name).compiled_code, dialect="spark")
    listed = [part for select in tree.find_all(exp.Select) for part in select.expressions]
    [projection] = [part for part in listed if part.alias_or_name == alias]
    projection.replace(exp.alias_(sqlglot.parse_one(sql, dialect="spark"), alias))
    return changed(side, name, compiled_code=tree.sql("spark"))


def test_a_removed_mask_is_breaking(side):
    after = with_projection(side, "int_customers_masked", "customer_name_masked", "customer_name")
    assert {severity for severity, subject, message in entries(side, after) if "int_customers_masked" in message} == {
        "breaking"
    }


def with_classes(side, directory, change):
    """The project's manifest, compiled with another class of each staging column, and the first mask of that."""

    def masked(match):
        pii = change(side.manifest.named(match[1]).columns[match[2]].meta["pii"])
        return f"masked('{match[1]}', '{match[2]}', as='{masks.load().classes[pii][0]}')"

    for part in (*COPIED, "macros"):
        shutil.copytree(PROJECT_ROOT / part, directory / part)
    for part in ("dbt_project.yml", "profiles.yml", ".sqlfluff"):
        shutil.copy(PROJECT_ROOT / part, directory)
    for file in (directory / "models" / "staging").rglob("*.yml"):
        file.write_text(re.sub(r"(?<=pii: )\w+", lambda match: change(match[0]), file.read_text()))
    for file in (directory / "models" / "intermediate" / "masked").glob("*.sql"):
        file.write_text(re.sub(r"masked\('(\w+)', '(\w+)', as='\w+'\)", masked, file.read_text()))
    return compiled_manifest(directory)


def classified(manifest):
    """The class of each staging column that has one."""
    return {
        f"{node.name}.{name}": column.meta["pii"]
        for node in manifest.models
        for name, column in node.columns.items()
        if node.schema == STAGING and column.meta["pii"] != AS_IS
    }


def masked_columns(manifest):
    """The staging columns that readable ones hold masked."""
    return {
        flow.column
        for _, relation in proof.resolve(manifest).readable()
        for _, flows in relation.columns
        for flow in flows
        if flow.mask
    }


@pytest.mark.parametrize(
    ("change", "severity", "message"),
    [
        (lambda pii: AS_IS, "breaking", "leak: PII class {} becomes none"),
        # shows the first letter of each word, or two characters
        (lambda pii: pii if pii == AS_IS else WEAKER.get(pii, "person_name"), "look", "PII class {} becomes {}"),
    ],
    ids=["none", "weaker"],
)
def test_another_class_of_any_column_is_named(side, tmp_path, change, severity, message):
    after = with_classes(side, tmp_path, change)
    everything = entries(side, after)
    before = classified(side.manifest)
    assert len(before) > 10
    changes = {column: (pii, change(pii)) for column, pii in before.items() if pii != change(pii)}
    named = {(severity, column, message.format(*classes)) for column, classes in changes.items()}
    assert named - {*everything} == set()
    leaks = [text for level, _, text in everything if level == "breaking" and "without a mask of its class" in text]
    reaching = masked_columns(side.manifest)
    assert len(reaching) > 5
    assert {column for column in reaching if not any(f" {column} (" in text for text in leaks)} == set()


def test_a_class_that_is_missing_or_misspelled_is_named_of_any_column(side):
    for change, message in (
        (lambda pii: {}, "{} has no PII class"),
        (lambda pii: {"pii": f"{pii}s"}, "{} has the PII class {}s, which does not exist"),
    ):
        nodes = {
            node.unique_id: replace(
                node,
                columns={
                    name: replace(column, meta={**column.meta, "pii": None, **change(column.meta["pii"])})
                    for name, column in node.columns.items()
                },
            )
            for node in side.manifest.models
            if node.schema == STAGING
        }
        after = replace(side.manifest, nodes={**side.manifest.nodes, **nodes})
        named = {issue.message for issue in declared.unclassified(after)}
        assert {message.format(*entry) for entry in classified(side.manifest).items()} <= named


def test_a_mask_that_any_model_leaves_out_is_breaking(side):
    match = masks.load().match
    nodes = {
        node.unique_id: replace(
            node,
            compiled_code=sqlglot.parse_one(node.compiled_code, dialect="spark")
            .transform(lambda part: mask.value if (mask := match(part)) else part)
            .sql("spark"),
        )
        for node in side.manifest.models
        if node.schema == "masked"
    }
    after = replace(side.manifest, nodes={**side.manifest.nodes, **nodes})
    breaking = [text for severity, _, text in entries(side, after) if severity == "breaking"]
    for column in masked_columns(side.manifest):
        assert any(f" {column} (" in text and "without a mask of its class" in text for text in breaking), column


def test_a_label_or_subject_that_any_file_leaves_out_is_named(side):
    labelled = {
        (node.name, name, label)
        for node in side.manifest.models
        for name, column in node.columns.items()
        for label in ("pii", "mask", "subjects")
        if node.is_export and column.meta.get(label) and column.meta.get("pii") != AS_IS
    }
    assert len(labelled) > 10
    after = side.manifest
    for name, column, label in labelled:
        former = after.named(name).columns[column]
        meta = {key: value for key, value in former.meta.items() if key != label}
        after = changed(
            scope.Side(after, {}), name, columns={**after.named(name).columns, column: replace(former, meta=meta)}
        )
    found = entries(side, after)
    for name, column, label in labelled:
        [message] = [text for _, subject, text in found if subject == f"{name}.{column}" and "config.meta" in text]
        assert label in message


def test_a_hook_that_only_a_yml_adds_is_searched_for_personal_data(side):
    after = changed(side, "fct_trades", post_hooks=[Hook("create table marts.x as select * from staging.y")])
    leak = "fct_trades has a hook, whose SQL is not proven"
    assert [(severity, message) for severity, _, message in entries(side, after)] == [("breaking", leak)]


def test_a_class_that_reaches_another_column_is_listed(side):
    after = with_projection(side, "exp_weekly__product_sales", "customer_name_masked", "brand")
    column = "exp_weekly__product_sales.customer_name_masked"
    assert ("note", column, "person_name no longer reaches it, masked as initials") in entries(side, after)
    back = entries(scope.Side(after, side.variables), side.manifest)
    assert ("look", column, "person_name reaches it, masked as initials") in back


def test_nothing_is_found_without_a_change(side):
    assert entries(side, side.manifest) == []


def test_a_column_that_a_class_reaches_is_in_no_sample_though_it_is_masked(side):
    columns = impersonal_columns(side.manifest, side.manifest)
    assert {"quantity", "line_amount", "order_line_key"} <= columns["fct_order_lines"]
    assert "customer_key" not in columns["fct_order_lines"]
    assert not {node.name for node in side.manifest.models if node.schema in RESTRICTED} & columns.keys()
