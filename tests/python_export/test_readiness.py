"""What withholds a dataset: an issue of what it comes from, an omitted field."""

import json
from pathlib import Path

from pyiceberg.catalog import Catalog
from pyiceberg.schema import Schema
from pyiceberg.types import IntegerType, NestedField

from python_common.config.settings import Settings
from python_common.errors import Issue
from python_common.weeks import IsoWeek
from python_export.datasets import declared
from python_export.notify.exported import Exported
from python_export.readiness.unclassified import omitted_fields
from python_export.run import Run
from python_ingest.avro.expanded_schema import expand_schema
from tests.support.topic_fixture import record
from tests.support.two_exports import project, two_exports


def test_an_issue_without_a_dataset_is_named(tmp_path: Path, catalog: Catalog, offline_settings: Settings) -> None:
    its_project = project(tmp_path, two_exports())
    datasets = declared.load(its_project).values()
    of_topic = Issue("behind", object="shop.sales")
    stray, of_file = Issue("ops failed", object="model.p.ops"), Issue("a cell differs", object="one", kind="file")
    of_week = Issue("export failed", object="model.p.exp_weekly__one", week="2020-W53")
    run = Run(offline_settings, catalog, its_project, Exported(IsoWeek(2020, 53)))
    run.issues += [of_topic, stray, stray, of_week, of_file]
    assert run.without_dataset(datasets) == ["ops failed"]


def test_a_mapped_field_without_a_column_is_published(tmp_path: Path, catalog: Catalog) -> None:
    manifest = two_exports()
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
