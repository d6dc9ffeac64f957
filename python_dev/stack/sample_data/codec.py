"""Avro bodies by schema name; the schemas are the .avsc files next to this module."""

import json
from functools import cache
from io import BytesIO
from pathlib import Path
from typing import cast

from fastavro import parse_schema, schemaless_reader, schemaless_writer
from fastavro.types import Schema

from python_dev.stack.sample_data.log import Payload, Wire

SCHEMA_DIRECTORY = Path(__file__).parent / "schemas"


def schema_text(name: str) -> str:
    """Return the Avro schema as JSON text."""
    return (SCHEMA_DIRECTORY / f"{name}.avsc").read_text(encoding="utf-8")


@cache
def _parsed(name: str) -> Schema:
    return parse_schema(json.loads(schema_text(name)))


def encode(name: str, payload: Payload) -> Wire:
    """Return the payload as an Avro body of the named schema."""
    buffer = BytesIO()
    schemaless_writer(buffer, _parsed(name), payload, strict_allow_default=True)
    return Wire(buffer.getvalue(), name)


def decode(wire: Wire | None) -> Payload:
    """Return what an Avro body holds: every schema here is one of records."""
    if wire is None or wire.schema is None:
        raise ValueError("There is no Avro body")
    return cast(Payload, schemaless_reader(BytesIO(wire.body), _parsed(wire.schema), None))


def text(value: str) -> Wire:
    """Return a plain UTF-8 string, as the keys of topics without registry keys are."""
    return Wire(value.encode())
