"""The contract of a dataset for its readers, by the Open Data Contract Standard 3.2: what its model's yml declares."""

import hashlib
from typing import Any

import yaml

from python_export.datasets.declared import Dataset
from python_export.datasets.dictionary import Field

FILE = "contract.odcs.yaml"
LOGICAL_TYPES = {"int": "integer", "bigint": "integer", "decimal": "number"}


def text(dataset: Dataset) -> str:
    """Return the contract as YAML. Its version is a hash of the rest, so that it changes with the content alone."""
    content: dict[str, Any] = {
        "apiVersion": "v3.2.0",
        "kind": "DataContract",
        "id": dataset.name,
        "name": dataset.name.replace("_", " ").capitalize(),
        "status": "active",
        "description": {"purpose": dataset.description},
        "schema": [
            {
                "name": dataset.name,
                "logicalType": "object",
                "physicalType": "csv",
                "physicalName": f"{dataset.name}/<week>/v<version>/{dataset.name}_<week>_v<version>.csv",
                "dataGranularityDescription": dataset.description.partition(". ")[0].rstrip("."),
                "properties": [_property(dataset, field) for field in dataset.fields],
            }
        ],
        "slaProperties": [{"property": "frequency", "value": 1, "unit": "week"}],
        "customProperties": _custom(audience=dataset.audience, formats=["csv", *dataset.formats]),
    }
    version = hashlib.sha256(yaml.safe_dump(content).encode()).hexdigest()[:12]
    return yaml.safe_dump({"version": version, **content}, sort_keys=False, allow_unicode=True, width=120)


def _property(dataset: Dataset, field: Field) -> dict[str, Any]:
    kind = field.type.partition("(")[0]
    optional = {
        "description": field.description,
        "primaryKeyPosition": dataset.key.index(field.name) + 1 if field.name in dataset.key else None,
        "classification": field.pii,
        "enum": [{"value": value} for value in field.allowed_values],
        "customProperties": _custom(unit=field.unit, mask=field.mask, isQuasiIdentifier=field.is_quasi_identifier),
    }
    return {
        "name": field.name,
        "logicalType": LOGICAL_TYPES.get(kind, kind),
        "physicalType": field.type,
        "required": not field.nullable,
        "primaryKey": field.name in dataset.key,
        **{name: value for name, value in optional.items() if value},
    }


def _custom(**values: Any) -> list[dict[str, Any]]:
    return [{"property": name, "value": value} for name, value in values.items() if value]
