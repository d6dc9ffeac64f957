"""What the schema registry has of a new topic: the record that lands, and its fields."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from python_common.config.settings import Settings
from python_common.errors import UserError
from python_ingest.avro.expanded_schema import expand_schema
from python_ingest.avro.types import AvroSchema, omitted_fields
from python_ingest.avro.versions import Versions, with_column_names
from python_ingest.avro.walk import IncompatibleSchema, avro_type, below, children, holds_nothing, not_null
from python_ingest.bronze.column_types import landed_name, landed_record, of_avro
from python_ingest.declare.spark_types import in_spark
from python_ingest.declare.topics import read_declarations
from python_ingest.kafka.registry import Registered, Registry


@dataclass(frozen=True)
class SourceField:
    """A field by its path in bronze; `avro` is its type without null."""

    path: str
    avro: AvroSchema
    is_optional: bool

    @property
    def type(self) -> str:
        """Spark's text for its type."""
        text = in_spark(of_avro(self.avro))
        return text.replace(" ", "") if text.startswith("decimal") else text

    @property
    def symbols(self) -> list[str]:
        """The symbols of an enum."""
        return self.avro.get("symbols", []) if isinstance(self.avro, dict) else []


@dataclass(frozen=True)
class ScaffoldedTopic:
    """A topic by its newest schemas: the record that lands, and documentation by path.

    `subject` has the schema of its values, None for the one named by the topic. `key_format` and `key_type` are those
    of its keys.
    """

    name: str
    record: AvroSchema
    docs: dict[str, str] = field(default_factory=dict)
    subject: str | None = None
    key_format: str = "string"
    key_type: str = "string"

    @property
    def fields(self) -> list[SourceField]:
        """The columns of bronze."""
        columns = ((name, part) for name, part in children(self.record).items() if not holds_nothing(part))
        return [
            SourceField(name, not_null(part), _may_be_null(part) or _may_be_null(self.record)) for name, part in columns
        ]

    @property
    def omitted(self) -> dict[str, str]:
        """Reasons by path of the fields that no column can hold."""
        return dict(omitted_fields(self.record))

    @property
    def leaves(self) -> list[SourceField]:
        """The fields that are no record and no union, at any depth."""
        return [*_leaves(self.record)]

    def described(self, path: str) -> str | None:
        """Return a field's documentation in one line, with nothing that dbt would render."""
        text = " ".join(self.docs.get(path, "").split())
        for brace in ("{", "%", "#"):
            text = text.replace(f"{{{brace}", f"{{ {brace}")
        return text or None


def read(settings: Settings, topic: str, subject: str | None = None) -> ScaffoldedTopic:
    """Return what the registry has of a topic; without a `subject` under the one that a source declares, if one does.

    Raises:
        UserError: the registry has no Avro schema of the topic.
    """
    registry = Registry(settings, wait=0)
    for declaration in read_declarations() if subject is None else ():
        if declaration.topic == topic and declaration.subject != "topic":
            names = declaration.subject if isinstance(declaration.subject, tuple) else ()
            subject = next((name for name in names if name != f"{topic}-key"), None)
            if subject is None:
                raise UserError(f"The schemas of {topic} are named by their records", "Name one by --subject")
    of_value = subject or f"{topic}-value"
    value, key = registry.latest(of_value), registry.latest(f"{topic}-key")
    if value is None:
        raise UserError(
            f"The schema registry has no subject {of_value}",
            "Register the topic's schema, check the topic's name, or name the subject by --subject",
        )
    record, docs = landed("value", of_value, value[1])
    key_format, key_type = "string", "string"
    if key:
        try:
            [column] = ScaffoldedTopic(topic, landed("key", f"{topic}-key", key[1])[0]).fields
            key_format, key_type = "avro", column.type
        except (UserError, ValueError):
            # Only its bytes can be landed, also those of a record without a field that a column can hold.
            key_format, key_type = "bytes", "binary"
    return ScaffoldedTopic(topic, record, docs, subject, key_format, key_type)


def landed(side: str, subject: str, registered: Registered) -> tuple[AvroSchema, dict[str, str]]:
    """Return the record that lands, with one field for a schema that is no record, and documentation by path in it.

    Raises:
        UserError: the schema is not Avro, or cannot be landed.
    """
    remedy = "Only Avro is landed, by the types of docs/type-mapping.md"
    if registered.schema_type != "AVRO":
        raise UserError(f"The schema {subject} is {registered.schema_type}", remedy)
    docs: dict[str, str] = {}
    try:
        expanded = expand_schema(registered.text, registered.references, docs)
        record = with_column_names(Versions(), landed_record(side, expanded))
    except IncompatibleSchema as error:
        raise UserError(f"The schema {subject} cannot be landed: {error}", remedy) from None
    if avro_type(not_null(expanded)) != "record":
        return record, {below("value", path): doc for path, doc in docs.items()}
    steps = ((path.split("."), doc) for path, doc in docs.items())
    return record, {".".join([landed_name(first), *rest]): doc for (first, *rest), doc in steps}


def _leaves(schema: AvroSchema, path: str = "", is_optional: bool = False) -> Iterator[SourceField]:
    is_optional |= _may_be_null(schema)
    for name, part in children(schema).items():
        some, its_path = not_null(part), below(path, name)
        if avro_type(some) in ("record", "union"):
            yield from _leaves(part, its_path, is_optional)
        elif not holds_nothing(part):
            yield SourceField(its_path, some, is_optional or _may_be_null(part))


def _may_be_null(schema: AvroSchema) -> bool:
    """Return whether a schema, or each of its several members, may be null."""
    return isinstance(schema, list) and ("null" in schema or isinstance(not_null(schema), list))
