"""The types of an Avro schema as JSON has it, and how Avro names them."""

from collections.abc import Iterator
from typing import NotRequired, TypeAlias, TypedDict


class AvroField(TypedDict):
    """A field of a record.

    Two keys are of expanded schemas, not Avro's: `optional`, a record may lack the field, and `omitted`, no column can
    hold it: its name and the reason.
    """

    name: str
    type: "AvroSchema"
    aliases: NotRequired[list[str]]
    default: NotRequired[object]
    doc: NotRequired[str]
    optional: NotRequired[bool]
    omitted: NotRequired[str]


class AvroType(TypedDict):
    """Any type that is written as an object; which of the keys it has depends on `type`."""

    type: "AvroSchema"
    name: NotRequired[str]
    namespace: NotRequired[str]
    fields: NotRequired[list[AvroField]]
    items: NotRequired["AvroSchema"]
    values: NotRequired["AvroSchema"]
    symbols: NotRequired[list[str]]
    size: NotRequired[int]
    logicalType: NotRequired[str]
    precision: NotRequired[int]
    scale: NotRequired[int]


AvroSchema: TypeAlias = str | list["AvroSchema"] | AvroType

# Protocols call the records of their errors so.
RECORDS = ("record", "error")
NAMED = (*RECORDS, "enum", "fixed")


def qualified_name(name: str, namespace: str | None) -> str:
    """Return a type's name with its namespace, which is part of the name itself if that has dots."""
    return name if "." in name or not namespace else f"{namespace}.{name}"


def omitted_fields(schema: AvroSchema, prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yield path and reason of each field that an expanded schema omits; nothing but a field is a step of a path."""
    for branch in schema if isinstance(schema, list) else [schema]:
        if isinstance(branch, dict):
            yield from omitted_fields(branch.get("items", branch.get("values", "null")), prefix)
            for field in branch.get("fields", ()):
                name, _, reason = field.get("omitted", "").partition(": ")
                if reason:
                    yield f"{prefix}{name}", reason
                else:
                    yield from omitted_fields(field["type"], f"{prefix}{field['name']}.")


def simple_name(branch: AvroSchema) -> str:
    """Return the name of a branch of a union without its namespace, in lower case."""
    while isinstance(branch, dict):
        branch = branch["name"] if branch["type"] in NAMED else branch["type"]
    return str(branch).rpartition(".")[2].lower()
