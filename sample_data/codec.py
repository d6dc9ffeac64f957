"""Avro bodies by schema name; the schemas are the .avsc files beside this module."""

import json
from functools import cache
from io import BytesIO
from pathlib import Path
from typing import Any

from fastavro import parse_schema, schemaless_reader, schemaless_writer

from sample_data.log import Wire

SCHEMA_DIRECTORY = Path(__file__).parent / "schemas"


def schema_text(name: str) -> str:
    """Return the Avro schema as JSON text."""
    return (SCHEMA_DIRECTORY / f"{name}.avsc").read_text(encoding="utf-8")


@cache
def _parsed(name: str) -> dict[str, Any]:
    return parse_schema(json.loads(schema_text(name)))


def encode(name: str, payload: dict[str, Any]) -> Wire:
    """Return the payload as an Avro body of the named schema."""
    buffer = BytesIO()
    schemaless_writer(buffer, _parsed(name), payload, strict_allow_default=True)
    return Wire(buffer.getvalue(), name)


def decode(name: str, body: bytes) -> Any:
    """Return what an Avro body of the named schema holds."""
    return schemaless_reader(BytesIO(body), _parsed(name), None)


def text(value: str) -> Wire:
    """Return a plain UTF-8 string, as the keys of topics without registry keys are."""
    return Wire(value.encode())
