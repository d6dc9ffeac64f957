"""The datasets and their lineage, as dbt's manifest has them, and the lists that must have each of them."""

import re
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from python_common.errors import UserError
from python_dbt.manifest import DbtManifest
from python_dbt.project import Project
from python_export.datasets import declared
from python_export.datasets.report_spec import Headline, ReportSpec
from python_ingest.declare.topics import MODELS_DIR, read_declarations
from tests.support.two_exports import export_of, node, parsed, project, two_exports


@pytest.fixture
def manifest() -> dict[str, Any]:
    return two_exports()


def test_lineage_goes_through_views_to_the_topics(tmp_path: Path, manifest: dict[str, Any]) -> None:
    datasets = declared.load(project(tmp_path, manifest))

    assert list(datasets) == ["one", "two"]
    dataset = datasets["one"]
    assert (dataset.model, dataset.table) == ("exp_weekly__one", "exports.exp_weekly__one")
    assert (dataset.key, dataset.order_by) == (("id",), ("at", "id"))
    assert [(topic.topic, topic.identifier) for topic in dataset.topics] == [
        ("shop.sales", "bronze.sales"),
        ("shop.users", "bronze.users"),
    ]


def test_wrong_numbers_are_of_a_table_or_of_what_it_is_made_from(manifest: dict[str, Any]) -> None:
    manifest["nodes"]["model.p.list"] = node("list", "model.p.stg_sales")
    known = parsed(manifest)
    tables = ("fct_sales", "users", "list", "other", "unknown")
    origins = {table: declared.origins_of(known, table) for table in tables}
    assert origins == {
        "fct_sales": ["model.p.fct_sales"],
        "users": ["source.p.users"],
        "list": ["model.p.stg_sales"],
        "other": ["source.p.other"],
        "unknown": ["model.p.exp_weekly__one", "model.p.exp_weekly__two"],
    }


def test_the_manifest_of_a_former_release_is_read(manifest: dict[str, Any]) -> None:
    """It is there before the first build of an upgrade."""
    former = {"at": "at", "totals_by": ["id"], "quarantined": [], "late": [{"from": "fct_sales", "at": "sold_at"}]}
    export_of(manifest, "one").update(former)
    assert declared.of_manifest(parsed(manifest))["one"].counts == ()


def test_datasets_are_chosen_by_name(manifest: dict[str, Any]) -> None:
    datasets = declared.of_manifest(parsed(manifest))
    assert [dataset.name for dataset in declared.choose(datasets, [])] == ["one", "two"]
    assert [dataset.name for dataset in declared.choose(datasets, ["two", "two"])] == ["two"]
    with pytest.raises(UserError, match=r"no dataset three\. Choose from one, two"):
        declared.choose(datasets, ["one", "three"])


def test_what_a_model_declares_is_read(manifest: dict[str, Any]) -> None:
    display = {"measures": ["price"], "headlines": [{"place": 1, "figure": "rows", "label": "Rows"}]}
    export_of(manifest, "one").update(
        display=display,
        suppressed="is_few",
        hold={"rows": 1.5, "id": 3},
        formats=["xlsx", "csv", "csv.gz", "parquet"],
        counts=[{"from": "fct_sales", "at": "sold_at", "where": "not is_valid"}],
    )
    manifest["nodes"]["model.p.exp_weekly__one"]["config"]["event_time"] = "at"
    datasets = declared.of_manifest(parsed(manifest))
    one, two = datasets.values()
    headline = Headline(place=1, figure="rows", label="Rows")
    assert one.display == ReportSpec(measures=("price",), headlines=(headline,))
    assert (one.suppressed, one.hold) == ("is_few", {"rows": Decimal("1.5"), "id": 3})
    assert one.formats == ("csv.gz", "parquet", "xlsx")
    [of_sales] = one.counts
    read = (of_sales.model, of_sales.table, of_sales.at, of_sales.where)
    assert read == ("fct_sales", "marts.fct_sales", "sold_at", "not is_valid")
    assert (one.at, two.at) == ("at", None)
    assert (two.display, two.suppressed, two.hold, two.formats, two.counts) == (ReportSpec(), None, {}, (), ())


@pytest.mark.parametrize(
    ("key", "value", "wrong"),
    [
        ("key", [], "is wrong at key"),
        ("order_by", ["at"], "exp_weekly__two does not declare a total order"),
        ("formats", ["xls"], "is wrong at formats.0"),
        ("hold", {"rows": 1}, "is wrong at hold.rows"),
        ("display", {"mesures": ["price"]}, "is wrong at display.mesures"),
        ("counts", {"from": "fct_sales", "at": "sold_at"}, "is wrong at counts"),
        ("counts", [{"at": "sold_at"}], "is wrong at counts.0.from"),
        ("counts", [{"from": "fct_sales", "at": "sold_at", "until": "now"}], "is wrong at counts.0.until"),
        ("counts", [{"from": "fct_sale", "at": "sold_at"}], "counts events of fct_sale, which is no model"),
    ],
)
def test_a_wrong_declaration_is_named(manifest: dict[str, Any], key: str, value: object, wrong: str) -> None:
    export_of(manifest, "two")[key] = value
    with pytest.raises(UserError, match=re.escape(wrong)):
        declared.of_manifest(parsed(manifest))


@pytest.mark.parametrize(
    ("setting", "unscanned"),
    [("off: names of brands", {"id": "names of brands"}), ("off:", {}), ("on: names", {}), (False, {})],
)
def test_a_column_is_scanned_unless_a_reason_is_given(
    manifest: dict[str, Any], setting: object, unscanned: dict[str, str]
) -> None:
    columns = {"id": {"config": {"meta": {"pii_scan": setting}}}, "at": {}}
    manifest["nodes"]["model.p.exp_weekly__one"]["columns"] = columns
    assert declared.of_manifest(parsed(manifest))["one"].unscanned == unscanned


def test_without_a_manifest_the_remedy_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="Run `dbt build`"):
        declared.load(Project(tmp_path, {"DBT_TARGET_PATH": "elsewhere"}))


def test_an_audience_gets_what_is_meant_for_it(manifest: dict[str, Any], tmp_path: Path) -> None:
    export_of(manifest, "one")["audience"] = "partners"
    assert list(declared.load(project(tmp_path, manifest))) == ["one", "two"]
    assert list(declared.load(Project(tmp_path, {declared.AUDIENCE: "partners"}))) == ["one"]
    with pytest.raises(UserError, match=r"'press', which no export is meant for\. Set it to one of partners"):
        declared.load(Project(tmp_path, {declared.AUDIENCE: "press"}))


def test_every_dataset_is_in_what_is_listed_by_hand(compiled_project: DbtManifest) -> None:
    """Late data of a dataset without figures would not be seen, and nothing would count what its file lacks."""
    nodes = {node.name: node for node in compiled_project.nodes.values()}
    figures = nodes["ops_weekly_figures"].compiled_code
    datasets = declared.of_manifest(compiled_project).values()
    assert {dataset.name for dataset in datasets} == set(re.findall(r"'(\w+)' as dataset_name", figures))
    reads = {name: set(node.parents) for name, node in nodes.items()}
    counts = nodes["ops_reconciliation"].compiled_code
    # That an export equals its mart is another check: this one is that the mart lacks no row.
    counted = {*re.findall(r"'(?!mart rows)[^']* of the weeks = [^']+' as check_name,\s+'(\w+)' as subject", counts)}
    exposed = {parent for exposure in compiled_project.exposures.values() for parent in exposure.parents}
    for model in (dataset.model for dataset in datasets):
        unique_id = nodes[model].unique_id
        # The figures are of the mart that it is read from.
        assert reads[model] & reads["ops_weekly_figures"], model
        assert unique_id in reads["ops_reconciliation"], model
        marts = {compiled_project.nodes[parent].alias for parent in reads[model] if parent in compiled_project.nodes}
        assert counted & {nodes[model].alias, *marts}, model
        assert unique_id in exposed, model
        has_key = "key_version" in nodes[model].columns
        assert has_key == any(name.startswith(f"one_key_version_{model}_") for name in nodes), model


def test_every_topic_is_in_what_is_listed_by_hand(compiled_project: DbtManifest) -> None:
    nodes = {node.name: node for node in compiled_project.nodes.values()}
    counted = re.findall(
        r"'landed = [^']+' as check_name,\s+'(\w+)' as subject", nodes["ops_reconciliation"].compiled_code
    )
    assert set(counted) == {declaration.table for declaration in read_declarations(MODELS_DIR)}


def test_no_not_null_column_has_a_reason_to_be_null(compiled_project: DbtManifest) -> None:
    tests = (node for node in compiled_project.nodes.values() if node.resource_type == "test")
    tested = {test.attached_node for test in tests if test.name.startswith("keeps_contract")}
    models = [model for model in compiled_project.models if model.schema in ("marts", "exports")]
    assert len(models) >= 15
    for model in models:
        assert model.unique_id in tested, model.name
        for name, column in model.columns.items():
            is_required = {"not_null"} == {constraint.type for constraint in column.constraints}
            assert not (is_required and column.meta.get("nullable")), (model.name, name)
