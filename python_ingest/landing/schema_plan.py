"""Plans what a schema changes in a bronze table before its first record, by the ingester's steps."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from pyiceberg.table import Table
from pyiceberg.types import IcebergType, StructType

from python_common.errors import UserError
from python_ingest.avro.walk import below
from python_ingest.bronze.column_types import decoded_columns, landed_columns, widened_columns
from python_ingest.bronze.schema_state import SchemaState
from python_ingest.declare import spark_types
from python_ingest.declare.topics import Declaration
from python_ingest.kafka.registry import Registered, Registry
from python_ingest.landing.schemas import PROPOSED, TopicSchemas, note_name


@dataclass(frozen=True)
class SchemaChange:
    """What one schema would do to a table.

    `source` is a subject, then with the schema's id, or a file. `added` and `widened` have the new types of columns by
    their paths, `not_written` those that its records leave NULL. `refused` is None, or a reason that begins with the
    field; then the rest is empty: its records would be dead letters.
    """

    source: str
    schema_id: int | None
    table: str
    added: Mapping[str, str] = field(default_factory=dict)
    widened: Mapping[str, str] = field(default_factory=dict)
    not_written: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    refused: str | None = None

    def lines(self) -> Iterator[str]:
        """Yield the plan as a person reads it."""
        number = "" if self.schema_id is None else f", schema id {self.schema_id},"
        yield f"{self.source}{number} into {self.table}:"
        if self.refused is not None:
            yield f"  refused    {self.refused}"
            return
        yield from (f"  adds       {path} {new}" for path, new in self.added.items())
        yield from (f"  widens     {path} to {new}" for path, new in self.widened.items())
        yield from (f"  omits      {path} (stays, NULL from then on)" for path in self.not_written)
        yield from (f"  note       {note}" for note in self.notes)


def plans_of_newest(registry: Registry, table: Table | None, declaration: Declaration) -> list[SchemaChange]:
    """Plan the newest schemas under the topic's subjects.

    These are `<topic>-value` and, for a topic with Avro keys, `<topic>-key`, or those that the declaration names; of
    these, keys are under the ones that end in `-key`.

    Raises:
        UserError: no value schema is registered, the subjects' names follow the records', or the registry is away.
    """
    if declaration.subject in ("record", "topic_record"):
        raise UserError(
            f"The subjects of {declaration.topic} are named after its records", "Give a schema with --schema-file"
        )
    plans = []
    for subject in dict.fromkeys(name for side in ("value", "key") for name in declaration.subjects(side, "")):
        side = "key" if subject.endswith("-key") else "value"
        if side == "key" and declaration.key != "avro":
            continue
        newest = registry.latest(subject)
        if newest is not None:
            plans.append(_plan(subject, *newest, table, declaration, side, registry))
        elif side == "value":
            raise UserError(
                f"No schema is registered under {subject}", "Register it, or give a proposed one with --schema-file"
            )
    return plans


def plan_of_file(path: Path, table: Table | None, declaration: Declaration, registry: Registry) -> SchemaChange:
    """Plan a proposed schema of values; `table` may not exist yet. A UserError if the file is unreadable."""
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError):
        raise UserError(f"{path} cannot be read", "Give a file with an Avro schema as JSON") from None
    return _plan(str(path), None, Registered("AVRO", text), table, declaration, "value", registry)


def _plan(
    source: str,
    schema_id: int | None,
    registered: Registered,
    table: Table | None,
    declaration: Declaration,
    side: str,
    registry: Registry,
) -> SchemaChange:
    state, number = SchemaState.of(table), PROPOSED if schema_id is None else schema_id
    declared = decoded_columns(declaration.columns, declaration.key)
    wanted = replace(state, columns=widened_columns(state.columns, declared))
    planned, refused = TopicSchemas(registry, declaration).planned(side, wanted, number, registered)
    if refused is not None:
        return SchemaChange(source, schema_id, declaration.identifier, refused=refused)
    before, after = (dict(_leaves(_of_side(side, columns))) for columns in (state.columns, planned.columns))
    written = {path.lower() for path, _ in _leaves(landed_columns(side, planned.writers[side][number]))}
    _, _, notes = planned.notes.get(note_name(side, number), "").partition(": ")
    return SchemaChange(
        source,
        schema_id,
        declaration.identifier,
        added={path: new for path, new in after.items() if path not in before},
        widened={path: new for path, new in after.items() if before.get(path, new) != new},
        not_written=tuple(path for path in after if path.lower() not in written),
        notes=tuple(filter(None, notes.split("; "))),
    )


def _of_side(side: str, columns: StructType) -> StructType:
    return StructType(*(field for field in columns.fields if (field.name == "kafka_key") == (side == "key")))


def _leaves(column: IcebergType, path: str = "") -> Iterator[tuple[str, str]]:
    """Yield path and type of each part of a column that has no parts."""
    parts = spark_types.children(column)
    if not parts:
        yield path, str(column)
    for name, part in parts.items():
        yield from _leaves(part, below(path, name))
