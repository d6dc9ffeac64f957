"""The datasets and their lineage, as dbt's manifest has them, and what is built for them."""

import csv
import io
import json
import os
import re
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.schema import Schema
from pyiceberg.types import IntegerType, NestedField

from python_common.errors import Issue, UserError
from python_common.weeks import IsoWeek
from python_dbt.manifest import Column, DbtManifest, Node
from python_dbt.manifest import parse as parse_manifest
from python_dbt.pii import masks
from python_dbt.project import Project
from python_dbt.run import build, failures, parse
from python_export.datasets import declared, dictionary
from python_export.datasets.declared import Topic
from python_export.datasets.dictionary import Field
from python_export.datasets.report_spec import Headline, ReportSpec, report_spec
from python_export.datasets.snapshot import require_week
from python_export.readiness import pii_gate
from python_export.readiness.issues import Readiness
from python_export.readiness.unclassified import omitted_fields
from python_ingest.avro.expanded_schema import expand_schema
from python_ingest.declare.topics import MODELS_DIR, read_declarations
from tests.support.hostile_rows import DATASET, arrow_table, current_source, hostile_rows
from tests.support.topic_fixture import record


def node(name: str, *reads: str, kind: str = "model", materialized: str = "table", **meta: Any) -> dict[str, Any]:
    return {
        "unique_id": f"{kind}.p.{name}",
        "resource_type": kind,
        "name": name,
        "alias": name,
        "schema": "exports" if name.startswith("exp") else "marts",
        "config": {"materialized": materialized, "meta": meta},
        "columns": {},
        "attached_node": None,
        "depends_on": {"nodes": [*reads]},
    }


def topic_source(name: str, **meta: Any) -> dict[str, Any]:
    named = {"unique_id": f"source.p.{name}", "resource_type": "source", "name": name}
    return named | {"schema": "bronze", "identifier": name, "config": {"meta": meta}}


@pytest.fixture
def manifest() -> dict[str, Any]:
    """Two exports over one mart; the mart comes from two topics, one through a view; a third topic is not in it."""
    export = {"key": ["id"], "order_by": ["at", "id"]}
    nodes = [
        node("exp_weekly__one", "model.p.fct_sales", export=dict(export)),
        node("exp_weekly__two", "model.p.fct_sales", "source.p.calendar", export=dict(export)),
        node("fct_sales", "model.p.stg_sales", "source.p.users", "seed.p.regions"),
        node("stg_sales", "source.p.sales", materialized="view"),
        node("regions", kind="seed", materialized="seed"),
        node("not_null_fct_sales", kind="test"),
    ]
    return {
        "nodes": {node["unique_id"]: node for node in nodes},
        "sources": {
            "source.p.sales": topic_source("sales", kafka={"topic": "shop.sales"}),
            "source.p.users": topic_source("users", kafka={"topic": "shop.users"}),
            "source.p.other": topic_source("other", kafka={"topic": "shop.other"}),
            "source.p.calendar": topic_source("calendar"),
        },
    }


def meta_of(manifest: dict[str, Any], dataset: str) -> dict[str, Any]:
    return manifest["nodes"][f"model.p.exp_weekly__{dataset}"]["config"]["meta"]


def parsed(manifest: dict[str, Any]) -> DbtManifest:
    return parse_manifest(json.dumps(manifest))


def project(directory: Path, manifest: dict[str, Any]) -> Project:
    (directory / "target").mkdir()
    (directory / "target" / "manifest.json").write_text(json.dumps(manifest))
    return Project(directory, {})


def test_lineage_goes_through_views_to_the_topics(tmp_path: Path, manifest: dict[str, Any]) -> None:
    datasets = declared.load(project(tmp_path, manifest))

    assert list(datasets) == ["one", "two"]
    dataset = datasets["one"]
    assert (dataset.model, dataset.table) == ("exp_weekly__one", "exports.exp_weekly__one")
    assert (dataset.key, dataset.order_by) == (("id",), ("at", "id"))
    assert dataset.topics == (
        Topic("shop.sales", "bronze.sales"),
        Topic("shop.users", "bronze.users"),
    )


def test_an_issue_without_a_dataset_is_named(tmp_path: Path, manifest: dict[str, Any]) -> None:
    datasets = declared.load(project(tmp_path, manifest)).values()
    of_topic = Issue("behind", object="shop.sales")
    stray, of_week = Issue("ops failed", object="model.p.ops"), Issue("export failed", object="model.p.exp_weekly__one")
    readiness = Readiness(issues=[of_topic, stray, stray], in_week=[(IsoWeek(2020, 53), of_week)])
    assert readiness.without_dataset(datasets) == ["ops failed"]


def test_a_mapped_field_that_no_column_holds_withholds_until_it_is_allowed(
    tmp_path: Path, manifest: dict[str, Any], catalog: Catalog
) -> None:
    wide = {"type": "bytes", "logicalType": "decimal", "precision": 50}
    form = expand_schema(json.dumps(record("r", id="int", price=wide, place=record("p", code="int", up=["null", "r"]))))
    properties = {"lakehouse.value-schema.7": json.dumps(form)}
    catalog.create_namespace_if_not_exists("bronze")
    catalog.create_table("bronze.sales", Schema(NestedField(1, "id", IntegerType())), properties=properties)
    sales = manifest["sources"]["source.p.sales"]
    sales["columns"] = {"id": {"data_type": "int"}, "price": {"data_type": "decimal(10,2)"}}
    its_project = project(tmp_path, manifest)

    def omitted() -> tuple[list[Issue], list[str]]:
        its_project.manifest_path.write_text(json.dumps(manifest))
        return omitted_fields(catalog, its_project)

    issues, warnings = omitted()
    warning = "shop.sales: place.up is omitted, a type that contains itself cannot be a column: it is NULL in the table"
    assert warnings == [warning]
    [issue] = issues
    assert issue.object == "shop.sales"
    assert issue.message.startswith("shop.sales: price is omitted, a decimal column has 1 to 38 digits")
    sales["columns"]["place"] = {"data_type": "struct<code: int, up: string>"}
    assert [len(part) for part in omitted()] == [2, 0]
    sales["config"]["meta"]["kafka"]["allow"] = ["price", "place"]
    assert [len(part) for part in omitted()] == [0, 2]


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


def test_datasets_are_chosen_by_name(tmp_path: Path, manifest: dict[str, Any]) -> None:
    datasets = declared.load(project(tmp_path, manifest))

    assert [dataset.name for dataset in declared.choose(datasets, [])] == ["one", "two"]
    assert [dataset.name for dataset in declared.choose(datasets, ["two", "two"])] == ["two"]
    with pytest.raises(UserError, match=r"no dataset three\. Choose from one, two"):
        declared.choose(datasets, ["one", "three"])


def test_report_specs_are_what_models_declare_and_a_misspelt_word_is_named(
    tmp_path: Path, manifest: dict[str, Any]
) -> None:
    headline = {"place": 1, "figure": "rows", "label": "Rows"}
    display = {"measures": ["price"], "headlines": [headline]}
    meta_of(manifest, "one")["export"] |= {"display": display, "suppressed": "is_few"}
    specs = {name: dataset.report_spec for name, dataset in declared.load(project(tmp_path, manifest)).items()}
    assert specs == {"one": ReportSpec(measures=("price",), headlines=(Headline(**headline),)), "two": ReportSpec()}
    assert declared.of_manifest(parsed(manifest))["one"].suppressed == "is_few"
    with pytest.raises(UserError, match="display of exp_weekly__one is wrong at mesures"):
        report_spec("exp_weekly__one", {"display": {"mesures": ["price"]}})


@pytest.mark.parametrize("hold", [{"rows": 1}, {"rows": 0.5}, {"rows": "often"}, {"rows": None}, ["rows"], 3])
def test_a_hold_is_a_factor_above_one_by_figure(tmp_path: Path, manifest: dict[str, Any], hold: object) -> None:
    export = meta_of(manifest, "two")["export"]
    export["hold"] = {"rows": 1.5, "id": 3}
    datasets = declared.of_manifest(parsed(manifest))
    assert (datasets["one"].hold, datasets["two"].hold) == ({}, {"rows": Decimal("1.5"), "id": 3})
    export["hold"] = hold
    with pytest.raises(UserError, match=r"^config.meta.export.hold of exp_weekly__two is wrong at"):
        declared.load(project(tmp_path, manifest))


def test_without_a_manifest_the_remedy_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="Run `dbt build`"):
        declared.load(Project(tmp_path, {"DBT_TARGET_PATH": "elsewhere"}))


@pytest.mark.parametrize("export", [{}, {"key": ["id"]}, {"key": ["id"], "order_by": ["at"]}, {"order_by": ["at"]}])
def test_an_export_without_a_total_order_is_refused(
    tmp_path: Path, manifest: dict[str, Any], export: dict[str, list[str]]
) -> None:
    meta_of(manifest, "two")["export"] = export
    with pytest.raises(UserError, match="exp_weekly__two does not declare a total order"):
        declared.load(project(tmp_path, manifest))


@pytest.mark.parametrize("kind", ["quarantined", "late"])
@pytest.mark.parametrize(
    "events",
    [
        {"from": "fct_sales", "at": "sold_at"},
        ["fct_sales"],
        [{"from": "fct_sales"}],
        [{"at": "sold_at"}],
        [{"from": "fct_sale", "at": "sold_at"}],
        [{"from": "fct_sales", "at": "sold_at", "until": "now"}],
    ],
)
def test_events_in_another_form_are_refused(
    tmp_path: Path, manifest: dict[str, Any], kind: str, events: object
) -> None:
    meta_of(manifest, "two")["export"] |= {kind: events}
    with pytest.raises(UserError, match=rf"^config.meta.export.{kind} of exp_weekly__two"):
        declared.load(project(tmp_path, manifest))


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


def test_what_is_exported_was_tested_for_the_week(catalog: Catalog) -> None:
    week = IsoWeek(2020, 53)
    rows = arrow_table(hostile_rows())
    with pytest.raises(UserError, match=r"exp_weekly__events was not built and tested for 2020-W53\. Run `dbt build"):
        require_week(catalog, DATASET, week)
    table = catalog.create_table(("shop", "exp_weekly__events"), rows.schema)
    table.append(rows)
    tested = table.current_snapshot().snapshot_id
    with table.manage_snapshots() as change:
        change.create_tag(tested, "tested-2020-W52")
    with pytest.raises(UserError, match="was not built and tested for 2020-W53"):
        require_week(catalog, DATASET, week)
    with table.manage_snapshots() as change:
        change.create_tag(tested, "tested-2020-W53")
    # What is written later was not tested.
    table.append(rows)
    source = require_week(catalog, DATASET, week)
    assert source.snapshot_id == tested
    assert [(column.name, column.type) for column in source.columns] == [
        ("event_id", "bigint"),
        ("event_at", "timestamp"),
        ("note", "string"),
        ("amount", "decimal(12,2)"),
        ("tiny", "decimal(38,10)"),
        ("quantity", "int"),
        ("sold_on", "date"),
        ("is_gift", "boolean"),
    ]


@pytest.mark.parametrize(
    ("change", "suppressed", "message"),
    [
        (
            lambda rows: rows.set_column(3, "amount", rows["amount"].cast("double")),
            None,
            "Column amount of .* is a double",
        ),
        (lambda rows: rows.drop(["event_id"]), None, "no column event_id"),
        (lambda rows: rows, "is_supressed", "no column is_supressed"),
    ],
    ids=["a type without an exact text form", "a key that is no column", "a misspelt column of small groups"],
)
def test_a_table_that_does_not_fit_its_declaration_is_refused(
    catalog: Catalog, change: Callable[[pa.Table], pa.Table], suppressed: str | None, message: str
) -> None:
    rows = change(arrow_table(hostile_rows()))
    catalog.create_table(("shop", "exp_weekly__events"), rows.schema).append(rows)
    with pytest.raises(UserError, match=message):
        current_source(catalog, replace(DATASET, suppressed=suppressed))


def test_an_audience_gets_what_is_meant_for_it(manifest: dict[str, Any], tmp_path: Path) -> None:
    meta_of(manifest, "one")["export"] |= {"audience": "partners"}
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


def test_a_hold_names_rows_and_numeric_columns(compiled_project: DbtManifest) -> None:
    datasets = declared.of_manifest(compiled_project).values()
    assert {dataset.name for dataset in datasets if dataset.hold} == {"order_lines"}
    for dataset in datasets:
        types = {name: column.data_type for name, column in compiled_project.named(dataset.model).columns.items()}
        for figure in dataset.hold.keys() - {"rows"}:
            assert re.match("bigint|int|decimal", types[figure] or ""), figure


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


def test_the_dictionary_has_what_is_in_the_contract(compiled_project: DbtManifest) -> None:
    datasets = declared.of_manifest(compiled_project)
    fields = {field.name: field for field in datasets["product_demand"].fields}
    assert {name for name, field in fields.items() if not field.nullable} == {
        "ordered_week",
        "channel_group",
        "product_key",
        "is_suppressed",
    }
    assert fields["channel_group"].allowed_values == ("Physical", "Digital", "Other")
    assert fields["category"].allowed_values == ()


def test_no_text_of_the_dictionary_is_run_by_a_spreadsheet() -> None:
    field = Field("note", "string", "=1", description="@SUM(A1)", allowed_values=("-1", "1"))
    [row] = csv.DictReader(io.StringIO(dictionary.text([field])))
    assert (row["unit"], row["description"], row["allowed_values"]) == ("'=1", "'@SUM(A1)", "'-1 | 1")
    assert row["name"] == "note"


def test_a_mask_that_keeps_a_part_of_the_value_leaves_a_quasi_identifier() -> None:
    """A new mask is either a pseudonym or among those that generalise."""
    names = {name for ways in masks.load().classes.values() for name in ways}
    metas: dict[str, dict[str, Any]] = {name: {"pii": "birth", "mask": name} for name in sorted(names)}
    metas |= {"city": {"quasi": True}, "price": {}}
    columns = {name: Column("string", meta=meta) for name, meta in metas.items()}
    described = dictionary.of_model(Node("model.p.one", "model", "one", "exports", columns=columns))
    quasi = {field.name for field in described if field.is_quasi_identifier}
    assert quasi == {"city", *names - {"pseudonym", "as_is"}}

    rows = list(csv.DictReader(io.StringIO(dictionary.text(described, 7))))
    assert {row["name"]: row["k_anonymity"] for row in rows} == {name: "7" if name in quasi else "" for name in metas}
    assert {row["k_anonymity"] for row in csv.DictReader(io.StringIO(dictionary.text(described)))} == {""}


@pytest.mark.parametrize(("k_anonymity", "minimum", "withholds"), [(None, 5, False), (1, 1, False), (4, 5, True)])
def test_an_audience_gets_no_combination_of_fewer_persons_than_it_requires(
    k_anonymity: int | None, minimum: int, withholds: bool
) -> None:
    fields = (Field("city", "string", is_quasi_identifier=True), Field("price", "bigint"))
    expected = pytest.raises(UserError, match="a combination of city has 4 persons, and the audience requires 5")
    with expected if withholds else nullcontext():
        pii_gate.require_persons(replace(DATASET, fields=fields), k_anonymity, minimum)


def test_formats_are_those_that_exist_and_can_be_written(
    manifest: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def formats(wanted: object) -> tuple[str, ...]:
        meta_of(manifest, "one")["export"] |= {"formats": wanted}
        (tmp_path / "manifest.json").write_text(json.dumps(manifest))
        return declared.load(Project(tmp_path, {"DBT_TARGET_PATH": "."}))["one"].formats

    assert formats([]) == formats(None) == formats(["csv"]) == ()
    assert formats(["xlsx", "csv", "csv.gz", "parquet"]) == ("csv.gz", "parquet", "xlsx")
    for wrong in (["xls"], "xlsx", [{"xlsx": 1}]):
        with pytest.raises(
            UserError, match=r"exp_weekly__one has unknown formats: .*Choose from csv, csv.gz, parquet,"
        ):
            formats(wrong)
