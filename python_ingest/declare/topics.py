"""Which topics are landed: what the dbt source files declare under config.meta.kafka."""

import re
from collections.abc import Iterable
from dataclasses import fields
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import yaml
from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic.dataclasses import dataclass
from pyiceberg.types import IcebergType, StructType

from python_common.config.environment import PROJECT_ROOT
from python_common.config.variables import seconds
from python_common.errors import UserError
from python_ingest.declare import persons, spark_types, table_layout
from python_ingest.declare.persons import Name, Subject
from python_ingest.declare.table_layout import PartitionField

MODELS_DIR = PROJECT_ROOT / "models"
# A message names so many topics, those with the most similar names.
NAMED = 5
KeyFormat = Literal["string", "avro", "bytes"]
OnError = Literal["dead_letter", "stop", "skip"]
# How a producer's serializer names the subject of a schema: after the topic, the record, or both.
SubjectNaming = Literal["topic", "record", "topic_record"]
# Options of Kafka's client that begin like this decide what is read, or who reads: they have variables, or are fixed.
RESERVED = (
    *("bootstrap.", "config.", "security.", "sasl.", "ssl.", "group.", "key.", "value.", "isolation."),
    *("auto.", "enable.auto.", "interceptor."),
)
NO_OTHER_FIELDS = ConfigDict(extra="forbid")


def _client_option(name: str) -> str:
    if name.startswith(RESERVED):
        raise ValueError(f"{name} is a setting or fixed, as are all names that begin with {', '.join(RESERVED)}")
    return name


def _duration(text: str | None) -> str | None:
    try:
        seconds(text or "0s")
    except UserError as error:
        raise ValueError(error.message) from None
    return text


def _pairs(value: Any) -> Any:
    """Return a mapping as pairs, with numbers and truth values as text."""
    if isinstance(value, dict):
        return tuple((name, str(it).lower() if isinstance(it, int | float) else it) for name, it in value.items())
    if not isinstance(value, tuple):
        raise ValueError("write it as a mapping")
    return value


@dataclass(frozen=True, config=NO_OTHER_FIELDS)
class DeadLetterLimit:
    """How many dead letters count as the usual few: a share of the records, from 0 to 1, and a count."""

    share: Annotated[float, Field(strict=True, ge=0, le=1)] = 0.05
    count: Annotated[int, Field(strict=True, ge=0)] = 20

    def exceeded(self, records: int, dead_letters: int) -> bool:
        """Return whether so many of the records are more than the count and more than the share."""
        return dead_letters > self.count and dead_letters > self.share * records


@dataclass(frozen=True, config=NO_OTHER_FIELDS)
class Declaration:
    """One topic and the bronze table it is landed in.

    `key` is how a key is decoded. `on_error` is what a record that cannot be decoded does:
    `dead_letter` keeps it with its raw bytes, `skip` keeps only its position and the reason,
    `stop` commits nothing of the batch. Beyond `max_dead_letters` something is wrong with the topic.
    `columns` are those that the source gives a type, which is the least that they hold.
    `allow` lists fields, by path, that may be dropped next to an added one, become narrower, or be omitted.
    `table_properties` are Iceberg's, besides and before those that every bronze table has. Files are
    partitioned by `partition_spec` and by Kafka's partition, rows are sorted by `sort_order`; None keeps what an
    existing table has. `client_options` are those of the Kafka client that reads the records.
    `subject` is under which subjects of the registry the topic's schemas are: after what, or their names.
    `persons` is where the rows of a person are. The exporter alone reads `producer` and `silence`.
    """

    topic: Name
    schema: str
    table: str
    key: KeyFormat = "string"
    on_error: OnError = "dead_letter"
    subject: SubjectNaming | Annotated[tuple[Name, ...], Field(min_length=1)] = "topic"
    allow: tuple[Name, ...] = ()
    max_dead_letters: Annotated[
        DeadLetterLimit, BeforeValidator(lambda value: DeadLetterLimit() if value is None else value)
    ] = DeadLetterLimit()
    table_properties: Annotated[
        tuple[Annotated[tuple[Name, str], AfterValidator(table_layout.table_property)], ...], BeforeValidator(_pairs)
    ] = ()
    partition_spec: tuple[Annotated[PartitionField, BeforeValidator(table_layout.partition_field)], ...] | None = None
    sort_order: Annotated[
        tuple[Annotated[PartitionField, BeforeValidator(table_layout.sort_field)], ...] | None, Field(min_length=1)
    ] = None
    client_options: Annotated[
        tuple[tuple[Annotated[Name, AfterValidator(_client_option)], str], ...], BeforeValidator(_pairs)
    ] = ()
    producer: Name | None = None
    silence: Annotated[str | None, AfterValidator(_duration)] = None
    columns: StructType = spark_types.NO_COLUMNS
    persons: tuple[Subject, ...] = ()

    @property
    def identifier(self) -> str:
        """The table's name within the catalog, for instance `bronze.payments`."""
        return f"{self.schema}.{self.table}"

    def subjects(self, side: str, full_name: str) -> tuple[str, ...]:
        """Return the subjects under which a schema of a side (`value` or `key`) may be registered.

        `full_name` is the record's, with its namespace.
        """
        if isinstance(self.subject, tuple):
            return self.subject
        return ({"topic": f"{self.topic}-{side}", "record": full_name}.get(self.subject, f"{self.topic}-{full_name}"),)


def read_declarations(models_dir: Path = MODELS_DIR) -> list[Declaration]:
    """Return the declarations of every `*sources.yml` below a directory, sorted by topic.

    Raises:
        UserError: a file is not YAML, a declaration is malformed, or two of them name one topic
            or one table. The message names file, table and field.
    """
    declarations: list[tuple[Declaration, Path]] = []
    for path in sorted(models_dir.rglob("*sources.yml")):
        declarations += [(declaration, path) for declaration in _declarations_in(path)]
    for field in ("topic", "identifier"):
        seen: dict[str, Path] = {}
        for declaration, path in declarations:
            value = getattr(declaration, field)
            if value in seen:
                raise UserError(
                    f"{path}: '{value}' is declared twice, first in {seen[value]}",
                    "Declare each topic and each table once",
                )
            seen[value] = path
    return sorted((declaration for declaration, _ in declarations), key=lambda declaration: declaration.topic)


def select(declarations: Iterable[Declaration], topics: Iterable[str]) -> list[Declaration]:
    """Return the declarations of the named topics, or all if none is named; a UserError for an undeclared name."""
    by_topic = {declaration.topic: declaration for declaration in declarations}
    names = list(dict.fromkeys(topics))
    for name in names:
        if name not in by_topic:
            near = [*by_topic] if len(by_topic) <= NAMED else get_close_matches(name, by_topic, NAMED, cutoff=0.0)
            others = f" and {len(by_topic) - len(near)} others" if len(by_topic) > len(near) else ""
            raise UserError(
                f"No dbt source declares the topic '{name}'",
                f"Choose from {', '.join(near) or 'none: no source declares a topic'}{others}",
            )
    return [by_topic[name] for name in names] if names else list(by_topic.values())


def _declarations_in(path: Path) -> list[Declaration]:
    try:
        document = yaml.load(path.read_text(), yaml.CSafeLoader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f" in line {mark.line + 1}" if mark else ""
        raise UserError(f"{path} is not valid YAML{line}", "Correct the file") from None
    declarations = []
    for source in _list_of_mappings(_mapping(document, f"{path}"), "sources", f"{path}"):
        schema = str(source.get("schema", source.get("name")))
        location = f"{path}: source {source.get('name')}"
        of_tables = [
            _declaration(schema, str(source.get("name")), table, f"{path}: table {table.get('name')}")
            for table in _list_of_mappings(source, "tables", location)
        ]
        of_source = [declaration for declaration in of_tables if declaration]
        persons.check_through({declaration.table: declaration.persons for declaration in of_source}, location)
        declarations += of_source
    return declarations


def _declaration(schema: str, source: str, table: dict[str, Any], location: str) -> Declaration | None:
    meta = _mapping(_mapping(table.get("config"), f"{location}: config").get("meta"), f"{location}: meta")
    if "kafka" not in meta:
        return None
    name = table.get("identifier", table.get("name"))
    if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII):
        raise UserError(f"{location}: {name} is not a table name of Spark", "Give `identifier` letters, digits and _")
    subjects = tuple(
        # The columns alone may be declared as a list.
        _validated(
            Subject,
            declared if isinstance(declared, dict) else {"columns": declared},
            f"{location}: subjects.{kind}",
            kind=f"{source}.{kind}",
        )
        for kind, declared in _mapping(meta.get("subjects"), f"{location}: subjects").items()
    )
    columns = _columns(table, location)
    location = f"{location}: kafka"
    kafka = _mapping(meta["kafka"], location)
    declaration = _validated(Declaration, kafka, location, schema=schema, table=name, columns=columns, persons=subjects)
    for field, terms in (("partition_spec", declaration.partition_spec), ("sort_order", declaration.sort_order)):
        table_layout.check(terms or (), declaration.columns, declaration.key, f"{location}.{field}")
    return declaration


Model = TypeVar("Model", Declaration, Subject)


def _validated(model: type[Model], declared: dict[str, Any], location: str, **given: Any) -> Model:
    """Return a model of the fields that a source declares, and of those that are given.

    Raises:
        UserError: a field is unknown, missing or invalid.
    """
    known = [field.name for field in fields(model) if field.name not in given]
    for name in declared:
        if name not in known:
            raise UserError(f"{location}.{name} is not a known field", f"Use {', '.join(known)}")
    try:
        return model(**given, **declared)
    except ValidationError as error:
        raise _as_user_error(error, location) from None


def _as_user_error(error: ValidationError, location: str) -> UserError:
    first = error.errors(include_url=False)[0]
    # Behind the names of fields, `loc` names which of several types did not fit.
    field = ".".join([location, *filter(str.isidentifier, map(str, first["loc"]))])
    reason = first["msg"].removeprefix("Value error, ")
    return UserError(f"{field}: {reason}", "See models/meta.schema.json")


def _columns(table: dict[str, Any], location: str) -> StructType:
    columns: dict[str, IcebergType] = {}
    for column in _list_of_mappings(table, "columns", location):
        name = str(column.get("name"))
        if name.lower() in (other.lower() for other in columns):
            raise UserError(f"{location}: column {name} is declared twice", "Declare it once")
        if "data_type" in column:
            try:
                columns[name] = spark_types.of_spark(str(column["data_type"]))
            except ValueError as error:
                raise UserError(
                    f"{location}: data_type of {name}: {error}", "Use a Spark type of docs/type-mapping.md"
                ) from None
    return spark_types.struct(columns)


def _mapping(value: Any, location: str) -> dict[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise UserError(f"{location} is not a mapping", "Write it as `field: value` lines")
    return value


def _list_of_mappings(parent: dict[str, Any], field: str, location: str) -> list[dict[str, Any]]:
    value = parent.get(field)
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise UserError(f"{location}: {field} is not a list of mappings", "Write it as `- name: ...`")
    return value
