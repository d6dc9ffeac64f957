"""The contract of a dataset: valid by the standard's JSON schema, and what the yml of the model says."""

import json
from dataclasses import replace
from importlib import resources

import yaml
from jsonschema import Draft201909Validator

from python_dbt.manifest import DbtManifest
from python_export.datasets import contract, declared
from python_export.datasets.dictionary import Field
from tests.support.hostile_rows import DATASET

SCHEMA = json.loads(resources.files("open_data_contract_standard").joinpath("schema.json").read_text())


def read(text: str) -> dict:
    content = yaml.safe_load(text)
    Draft201909Validator(SCHEMA).validate(content)
    return content


def test_contract_of_each_export_has_its_model(compiled_project: DbtManifest) -> None:
    datasets = declared.of_manifest(compiled_project)
    assert datasets
    for name, dataset in datasets.items():
        model = compiled_project.named(dataset.model)
        [table] = read(contract.text(dataset))["schema"]
        by_name = {column["name"]: column for column in table["properties"]}
        assert table["dataGranularityDescription"] == model.grain
        assert {column: one["physicalType"] for column, one in by_name.items()} == {
            column: declared.data_type for column, declared in model.columns.items()
        }
        assert [one for one, column in by_name.items() if not column["required"]] == [
            one for one, column in model.columns.items() if not column.constraints
        ]
        key = sorted((one for one in by_name.values() if one["primaryKey"]), key=lambda one: one["primaryKeyPosition"])
        assert [column["name"] for column in key] == model.meta["export"]["key"], name


def test_logical_type_of_each_exported_type() -> None:
    same = ("string", "boolean", "date", "timestamp")
    logical = {"int": "integer", "bigint": "integer", "decimal(38,9)": "number"} | {name: name for name in same}
    fields = tuple(Field(f"column {number}", name) for number, name in enumerate(logical))
    [table] = read(contract.text(replace(DATASET, fields=fields)))["schema"]
    assert [column["logicalType"] for column in table["properties"]] == [*logical.values()]


def test_contract_has_classes_values_and_units() -> None:
    fields = (
        Field("who", "string", pii="customer", mask="pseudonym", is_quasi_identifier=True),
        Field("what", "string", "pieces", allowed_values=("a", "ü")),
    )
    dataset = replace(DATASET, fields=fields, audience="partners", formats=("parquet",))
    content = read(contract.text(dataset))
    who, what = content["schema"][0]["properties"]
    assert who["classification"] == "customer"
    assert who["customProperties"] == [
        {"property": "mask", "value": "pseudonym"},
        {"property": "isQuasiIdentifier", "value": True},
    ]
    assert what["enum"] == [{"value": "a"}, {"value": "ü"}]
    assert what["customProperties"] == [{"property": "unit", "value": "pieces"}]
    assert content["customProperties"] == [
        {"property": "audience", "value": "partners"},
        {"property": "formats", "value": ["csv", "parquet"]},
    ]


def test_version_changes_with_the_content_alone() -> None:
    text = contract.text(DATASET)
    assert contract.text(replace(DATASET, topics=())) == text
    assert read(contract.text(replace(DATASET, description="Others.")))["version"] != read(text)["version"]
