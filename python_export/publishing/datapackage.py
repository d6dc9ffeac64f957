"""Describes a file in datapackage.json, the format of Frictionless Data, for tools that read it."""

import json
from collections.abc import Iterable
from pathlib import PurePosixPath
from typing import Any

from python_export.datasets import dictionary
from python_export.publishing.manifest import File, Manifest

FILE = "datapackage.json"
# The type of a field by the type of its column; all others are numbers.
TYPES = {
    "string": {"type": "string"},
    "int": {"type": "integer"},
    "bigint": {"type": "integer"},
    "boolean": {"type": "boolean"},
    "date": {"type": "date"},
    "timestamp": {"type": "datetime", "format": "%Y-%m-%dT%H:%M:%S.%fZ"},
}
# RFC 4180 with LF.
DIALECT = {"delimiter": ",", "lineTerminator": "\n", "quoteChar": '"', "doubleQuote": True, "header": True}


def text(manifest: Manifest, described: Iterable[dictionary.Field]) -> str:
    """Return the package of one version."""
    name = manifest.dataset.replace("_", "-")
    resource = {
        "name": name,
        **_file(manifest),
        "profile": "tabular-data-resource",
        "format": "csv",
        "mediatype": "text/csv",
        "encoding": "utf-8-sig" if manifest.bom else "utf-8",
        "dialect": DIALECT,
        "schema": {"fields": [*map(_field, described)], "primaryKey": manifest.key, "missingValues": [""]},
    }
    # Tools read the CSV; to them the others are files.
    others = [
        {**_file(other), "name": PurePosixPath(other.file).name.lower(), "type": "file"} for other in manifest.files
    ]
    package = {
        "profile": "data-package" if others else "tabular-data-package",
        "name": f"{name}-{manifest.week.lower()}-v{manifest.version}",
        "title": f"{manifest.dataset.replace('_', ' ').capitalize()}, {manifest.week}",
        "version": str(manifest.version),
        "resources": [resource, *others],
    }
    return json.dumps(package, indent=2, ensure_ascii=False) + "\n"


def describes(content: bytes, manifest: Manifest) -> bool:
    """Return whether a package describes the files of a manifest; a ValueError if it is no package."""
    try:
        resources = json.loads(content)["resources"]
        described = [{key: resource[key] for key in ("path", "bytes", "hash")} for resource in resources]
    except (LookupError, TypeError) as error:
        raise ValueError("not a package") from error
    return described == [*map(_file, manifest.all_files)]


def _file(file: Manifest | File) -> dict[str, object]:
    return {"path": PurePosixPath(file.file).name, "bytes": file.bytes, "hash": f"sha256:{file.sha256}"}


def _field(field: dictionary.Field) -> dict[str, Any]:
    required = {} if field.nullable else {"required": True}
    allowed = {"enum": list(field.allowed_values)} if field.allowed_values else {}
    form = TYPES.get(field.type, {"type": "number"})
    return {"name": field.name, **form, "description": field.description, "constraints": required | allowed}
