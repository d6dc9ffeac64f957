"""Which topics are landed: what the dbt source files declare under config.meta.kafka."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from lakehouse.errors import UserError
from lakehouse.settings import PROJECT_ROOT

MODELS_DIR = PROJECT_ROOT / "models"
KEY_FORMATS = ("string", "avro", "bytes")
ON_ERROR_MODES = ("dead_letter", "stop", "skip")


@dataclass(frozen=True)
class Declaration:
    """One topic and the bronze table it is landed in.

    `key` says how a key is decoded. `on_error` says what a record that cannot be decoded does:
    `dead_letter` keeps it with its raw bytes, `skip` keeps only its position and the reason,
    `stop` commits nothing of the batch.
    """

    topic: str
    schema: str
    table: str
    key: str
    on_error: str

    @property
    def identifier(self) -> str:
        """The table's name within the catalog, for instance `bronze.payments`."""
        return f"{self.schema}.{self.table}"


def read_declarations(models_dir: Path = MODELS_DIR) -> list[Declaration]:
    """Return the declarations of every `*sources.yml` below a directory, sorted by topic.

    Raises:
        UserError: a file is not YAML, a declaration is malformed, or two of them name one topic
            or one table. The message names file, table and field.
    """
    found: list[tuple[Declaration, Path]] = []
    for path in sorted(models_dir.rglob("*sources.yml")):
        found += [(declaration, path) for declaration in _declarations_in(path)]
    for field in ("topic", "identifier"):
        seen: dict[str, Path] = {}
        for declaration, path in found:
            value = getattr(declaration, field)
            if value in seen:
                raise UserError(
                    f"{path}: '{value}' is declared twice, first in {seen[value]}",
                    "Declare each topic and each table once",
                )
            seen[value] = path
    return sorted((declaration for declaration, _ in found), key=lambda each: each.topic)


def select(declarations: Iterable[Declaration], topics: Iterable[str]) -> list[Declaration]:
    """Return the declarations of the named topics, or all of them if none is named.

    Raises:
        UserError: a name is not declared.
    """
    by_topic = {declaration.topic: declaration for declaration in declarations}
    names = list(dict.fromkeys(topics))
    for name in names:
        if name not in by_topic:
            raise UserError(
                f"No dbt source declares the topic '{name}'",
                f"Choose from {', '.join(by_topic) or 'none: no source declares a topic'}",
            )
    return [by_topic[name] for name in names] if names else list(by_topic.values())


def _declarations_in(path: Path) -> list[Declaration]:
    try:
        document = yaml.safe_load(path.read_text())
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = f" in line {mark.line + 1}" if mark else ""
        raise UserError(f"{path} is not valid YAML{place}", "Correct the file") from None
    declarations = []
    for source in _list_of_mappings(_mapping(document, f"{path}"), "sources", f"{path}"):
        schema = str(source.get("schema", source.get("name")))
        place = f"{path}: source {source.get('name')}"
        for table in _list_of_mappings(source, "tables", place):
            declaration = _declaration(schema, table, f"{path}: table {table.get('name')}")
            declarations += [declaration] if declaration else []
    return declarations


def _declaration(schema: str, table: dict[str, Any], place: str) -> Declaration | None:
    meta = _mapping(_mapping(table.get("config"), f"{place}: config").get("meta"), f"{place}: meta")
    if "kafka" not in meta:
        return None
    kafka = _mapping(meta["kafka"], f"{place}: kafka")
    unknown = set(kafka) - {"topic", "key", "on_error"}
    if unknown:
        raise UserError(
            f"{place}: kafka.{min(unknown, key=str)} is not a known field",
            "Use topic, key and on_error",
        )
    name = table.get("identifier", table.get("name"))
    for field, value in (("name", name), ("kafka.topic", kafka.get("topic"))):
        if not isinstance(value, str) or not value:
            raise UserError(f"{place}: {field} is missing or not text", f"Give {field} as text")
    return Declaration(
        topic=kafka["topic"],
        schema=schema,
        table=name,
        key=_choice(kafka, "key", KEY_FORMATS, place),
        on_error=_choice(kafka, "on_error", ON_ERROR_MODES, place),
    )


def _choice(kafka: dict[str, Any], field: str, allowed: tuple[str, ...], place: str) -> str:
    value = kafka.get(field, allowed[0])
    if value not in allowed:
        raise UserError(f"{place}: kafka.{field} is '{value}'", f"Set it to one of {', '.join(allowed)}")
    return str(value)


def _mapping(value: Any, place: str) -> dict[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise UserError(f"{place} is not a mapping", "Write it as `field: value` lines")
    return value


def _list_of_mappings(parent: dict[str, Any], field: str, place: str) -> list[dict[str, Any]]:
    value = parent.get(field)
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise UserError(f"{place}: {field} is not a list of mappings", "Write it as `- name: ...`")
    return value
