"""The aliases of field names, in all schemas of a topic."""

import json
from collections.abc import Iterable
from contextlib import suppress
from typing import Any


def renamed(texts: Iterable[str]) -> dict[str, list[str]]:
    """Return the aliases of each field name in some schemas, in both directions."""
    others: dict[str, list[str]] = {}

    def note(schema: Any) -> None:  # whatever a registry holds under a schema's keys
        for below in schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else ():
            note(below)
        for field in schema.get("fields", ()) if isinstance(schema, dict) else ():
            for alias in field.get("aliases", ()):
                others.setdefault(field["name"], []).append(alias)
                others.setdefault(alias, []).append(field["name"])

    for text in texts:
        with suppress(ValueError, TypeError, AttributeError, KeyError):  # an invalid schema has no aliases
            note(json.loads(text))
    return others
