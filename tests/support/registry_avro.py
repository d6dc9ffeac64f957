"""Values as registry Avro."""

import json
from io import BytesIO
from typing import Any

import fastavro


def encode(schema: Any, schema_id: int, value: Any) -> bytes:
    """Return a value as registry Avro."""
    body = BytesIO()
    # A copy: fastavro adds to what it parses.
    fastavro.schemaless_writer(body, fastavro.parse_schema(json.loads(json.dumps(schema))), value)
    return b"\x00" + schema_id.to_bytes(4, "big") + body.getvalue()
