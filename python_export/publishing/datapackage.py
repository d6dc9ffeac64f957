"""datapackage.json: the dialect and the fields of a file in the words of Frictionless Data, for tools that read it."""

import json
from collections.abc import Iterable
from pathlib import PurePosixPath

from pydantic import BaseModel, Field

from python_export.datasets import dictionary
from python_export.publishing.manifest import Manifest

FILE = "datapackage.json"
# Type and format of a field by the type of its column; all others are numbers.
TYPES: dict[str, tuple[str, str | None]] = {
    "string": ("string", None),
    "int": ("integer", None),
    "bigint": ("integer", None),
    "boolean": ("boolean", None),
    "date": ("date", None),
    "timestamp": ("datetime", "%Y-%m-%dT%H:%M:%S.%fZ"),
}


class Constraints(BaseModel):
    """What all values of a field hold to."""

    required: bool | None = None
    enum: list[str] | None = None


class Described(BaseModel):
    """A field; without a format it has the usual one of its type."""

    name: str
    type: str
    format: str | None = None
    description: str
    constraints: Constraints


class Fields(BaseModel):
    """The fields of a file, and which of them identify a row."""

    fields: list[Described]
    primary_key: list[str] = Field(alias="primaryKey")
    missing_values: list[str] = Field(default=[""], alias="missingValues")


class Dialect(BaseModel):
    """How cells and rows are told apart: RFC 4180 with LF."""

    delimiter: str = ","
    line_terminator: str = Field(default="\n", alias="lineTerminator")
    quote_char: str = Field(default='"', alias="quoteChar")
    double_quote: bool = Field(default=True, alias="doubleQuote")
    header: bool = True


class Resource(BaseModel):
    """The file."""

    name: str
    path: str
    profile: str = "tabular-data-resource"
    format: str = "csv"
    mediatype: str = "text/csv"
    encoding: str
    bytes: int
    hash: str
    dialect: Dialect = Dialect()
    table_schema: Fields = Field(alias="schema")


class Package(BaseModel):
    """What stands in datapackage.json, in this order."""

    profile: str = "tabular-data-package"
    name: str
    title: str
    version: str
    resources: tuple[Resource]


def text(manifest: Manifest, described: Iterable[dictionary.Field]) -> str:
    """Return the package of one version."""
    name = manifest.dataset.replace("_", "-")
    resource = Resource(
        name=name,
        path=PurePosixPath(manifest.file).name,
        encoding="utf-8-sig" if manifest.bom else "utf-8",
        bytes=manifest.bytes,
        hash=f"sha256:{manifest.sha256}",
        schema=Fields(fields=[_described(field) for field in described], primaryKey=manifest.key),
    )
    package = Package(
        name=f"{name}-{manifest.week.lower()}-v{manifest.version}",
        title=f"{manifest.dataset.replace('_', ' ').capitalize()}, {manifest.week}",
        version=str(manifest.version),
        resources=(resource,),
    )
    return json.dumps(package.model_dump(by_alias=True, exclude_none=True), indent=2, ensure_ascii=False) + "\n"


def describes(content: bytes, manifest: Manifest) -> bool:
    """Tell whether the content of a package is about the file of a manifest.

    Raises:
        ValueError: it is no package.
    """
    [resource] = Package.model_validate_json(content).resources
    said = resource.path, resource.bytes, resource.hash
    return said == (PurePosixPath(manifest.file).name, manifest.bytes, f"sha256:{manifest.sha256}")


def _described(field: dictionary.Field) -> Described:
    datatype, form = TYPES.get(field.type, ("number", None))
    constraints = Constraints(
        required=None if field.nullable else True, enum=list(field.allowed_values) if field.allowed_values else None
    )
    return Described(
        name=field.name, type=datatype, format=form, description=field.description, constraints=constraints
    )
