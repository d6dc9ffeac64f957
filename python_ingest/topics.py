"""Which topics are landed: what the dbt source files declare under config.meta.kafka."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from pyiceberg.types import IcebergType, StructType

from lakehouse.environment import PROJECT_ROOT
from lakehouse.errors import UserError
from python_ingest.schema import column_types

MODELS_DIR = PROJECT_ROOT / "models"
KEY_FORMATS = ("string", "avro", "bytes")
ON_ERROR_MODES = ("dead_letter", "stop", "skip")
# How a producer's serializer names the subject of a schema: after the topic, the record, or both.
SUBJECTS = ("topic", "record", "topic_record")
FIELDS = ("topic", "key", "on_error", "subject", "allow", "max_dead_letters")


@dataclass(frozen=True)
class DeadLetterLimit:
    """How many dead letters are taken as the usual few: a share of the records, from 0 to 1, and a count."""

    share: float = 0.05
    count: int = 20

    def exceeded(self, records: int, dead_letters: int) -> bool:
        """Tell whether so many of the records are more than the count and more than the share."""
        return dead_letters > self.count and dead_letters > self.share * records


@dataclass(frozen=True)
class Declaration:
    """One topic and the bronze table it is landed in.

    `key` says how a key is decoded. `on_error` says what a record that cannot be decoded does:
    `dead_letter` keeps it with its raw bytes, `skip` keeps only its position and the reason,
    `stop` commits nothing of the batch. Beyond `max_dead_letters` something is wrong with the topic.
    `columns` are those that the source gives a type, which is the least that they hold.
    `allow` lists fields, by path, that may be dropped beside an added one, or become narrower.
    `subject` says under which subjects of the registry the topic's schemas are: one of SUBJECTS, or their names.
    """

    topic: str
    schema: str
    table: str
    key: str
    on_error: str
    max_dead_letters: DeadLetterLimit = DeadLetterLimit()
    columns: StructType = column_types.NO_COLUMNS
    subject: str | tuple[str, ...] = "topic"
    allow: tuple[str, ...] = ()

    @property
    def identifier(self) -> str:
        """The table's name within the catalog, for instance `bronze.payments`."""
        return f"{self.schema}.{self.table}"

    def subjects(self, side: str, full_name: str) -> tuple[str, ...]:
        """Return the subjects under which a schema of a side (`value` or `key`) may be registered; `full_name` is the
        record's, with its namespace."""
        if isinstance(self.subject, tuple):
            return self.subject
        return ({"topic": f"{self.topic}-{side}", "record": full_name}.get(self.subject, f"{self.topic}-{full_name}"),)


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
    _refuse_unknown(kafka, FIELDS, f"{place}: kafka")
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
        max_dead_letters=_limit(kafka, f"{place}: kafka.max_dead_letters"),
        columns=_columns(table, place),
        subject=_subject(kafka, place),
        allow=_allow(kafka, place),
    )


def _allow(kafka: dict[str, Any], place: str) -> tuple[str, ...]:
    given = kafka.get("allow", [])
    if not isinstance(given, list) or not all(isinstance(name, str) and name for name in given):
        raise UserError(f"{place}: kafka.allow is not a list of fields", "Write it as [amount, customer.name]")
    return tuple(given)


def _subject(kafka: dict[str, Any], place: str) -> str | tuple[str, ...]:
    given = kafka.get("subject", SUBJECTS[0])
    if isinstance(given, list) and given and all(isinstance(name, str) and name for name in given):
        return tuple(given)
    if given not in SUBJECTS:
        raise UserError(
            f"{place}: kafka.subject is '{given}'", f"Set it to one of {', '.join(SUBJECTS)}, or to a list of names"
        )
    return str(given)


def _columns(table: dict[str, Any], place: str) -> StructType:
    columns: dict[str, IcebergType] = {}
    for column in _list_of_mappings(table, "columns", place):
        name = str(column.get("name"))
        if name.lower() in (other.lower() for other in columns):
            raise UserError(f"{place}: column {name} is declared twice", "Declare it once")
        if "data_type" in column:
            try:
                columns[name] = column_types.of_spark(str(column["data_type"]))
            except ValueError as error:
                raise UserError(
                    f"{place}: data_type of {name}: {error}", "Use a Spark type of docs/type-mapping.md"
                ) from None
    return column_types.struct(columns)


def _refuse_unknown(given: dict[str, Any], known: tuple[str, ...], place: str) -> None:
    unknown = set(given) - set(known)
    if unknown:
        raise UserError(f"{place}.{min(unknown, key=str)} is not a known field", f"Use {', '.join(known)}")


def _limit(kafka: dict[str, Any], place: str) -> DeadLetterLimit:
    given = _mapping(kafka.get("max_dead_letters"), place)
    _refuse_unknown(given, ("share", "count"), place)
    limit = DeadLetterLimit(**given)
    if type(limit.share) not in (int, float) or not 0 <= limit.share <= 1:
        raise UserError(f"{place}.share is '{limit.share}'", "Give a number from 0 to 1, for instance 0.05")
    if type(limit.count) is not int or limit.count < 0:
        raise UserError(f"{place}.count is '{limit.count}'", "Give a whole number from 0 on, for instance 20")
    return limit


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
