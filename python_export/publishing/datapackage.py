"""datapackage.json: the dialect and the fields of a file in the words of Frictionless Data, for tools that read it."""

import json
from collections.abc import Iterable
from pathlib import PurePosixPath
from typing import Any

from python_export.datasets.dictionary import Field
from python_export.publishing.manifest import Manifest

FILE = "datapackage.json"
TYPES: dict[str, dict[str, str]] = {
    "string": {"type": "string"},
    "int": {"type": "integer"},
    "bigint": {"type": "integer"},
    "boolean": {"type": "boolean"},
    "date": {"type": "date"},
    "timestamp": {"type": "datetime", "format": "%Y-%m-%dT%H:%M:%S.%fZ"},
}


def text(manifest: Manifest, described: Iterable[Field]) -> str:
    """Return the package of one version."""
    resource = {
        "name": manifest.dataset.replace("_", "-"),
        "path": PurePosixPath(manifest.file).name,
        "profile": "tabular-data-resource",
        "format": "csv",
        "mediatype": "text/csv",
        "encoding": "utf-8-sig" if manifest.bom else "utf-8",
        "bytes": manifest.bytes,
        "hash": f"sha256:{manifest.sha256}",
        "dialect": {"delimiter": ",", "lineTerminator": "\n", "quoteChar": '"', "doubleQuote": True, "header": True},
        "schema": {
            "fields": [_field(field) for field in described],
            "primaryKey": manifest.key,
            "missingValues": [""],
        },
    }
    package = {
        "profile": "tabular-data-package",
        "name": f"{resource['name']}-{manifest.week.lower()}-v{manifest.version}",
        "title": f"{manifest.dataset.replace('_', ' ').capitalize()}, {manifest.week}",
        "version": str(manifest.version),
        "resources": [resource],
    }
    return json.dumps(package, indent=2, ensure_ascii=False) + "\n"


def _field(field: Field) -> dict[str, Any]:
    kind = TYPES.get(field.type, {"type": "number"})
    constraints: dict[str, Any] = {} if field.nullable else {"required": True}
    if field.allowed_values:
        constraints["enum"] = list(field.allowed_values)
    return {"name": field.name, **kind, "description": field.description, "constraints": constraints}
