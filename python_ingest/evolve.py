"""The schemas of one topic: what is known, what a new id adds, and what does not fit."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from python_ingest import avro, schemas, tables
from python_ingest.avro import IncompatibleSchema, Json
from python_ingest.decode import Side, Sides
from python_ingest.registry import Registered, Registry
from python_ingest.tables import SchemaState


@dataclass(frozen=True)
class Learned:
    """A state that holds every id found that fits; the other ids with what is wrong with them."""

    state: SchemaState
    sides: Sides


@dataclass
class TopicSchemas:
    """Knows what is wrong with schemas of one topic for as long as the process lives.

    Rejected ids are remembered, for a schema never changes under its id. Unknown ids are not: they
    may be registered later.
    """

    registry: Registry
    _rejected: dict[str, dict[int, str]] = field(default_factory=lambda: {"value": {}, "key": {}})

    def known(self, state: SchemaState) -> Sides:
        """Return how to decode what a table's state already holds, without asking the registry."""
        return self.learn(state, (), ()).sides

    def learn(self, state: SchemaState, value_ids: Iterable[int], key_ids: Iterable[int]) -> Learned:
        """Add the schemas of ids found in a batch to a state.

        Raises:
            UserError: the registry is away.
        """
        value = self._side("value", state.value, value_ids)
        key = self._side("key", state.key, key_ids)
        return Learned(SchemaState(value.writers, key.writers), Sides(value, key))

    def _side(self, name: str, merged: Mapping[int, Json], found: Iterable[int]) -> Side:
        rejected = self._rejected[name]
        writers = dict(merged)
        reader = schemas.merge_all(writers)
        unknown = set()
        new = sorted(set(found) - set(writers) - set(rejected))
        answers = self.registry.schemas(new)
        for schema_id in new:
            registered = answers.get(schema_id)
            if registered is None:
                unknown.add(schema_id)
                continue
            try:
                older = {known: writer for known, writer in writers.items() if known < schema_id}
                writers[schema_id] = fitted(reader, older, registered)
            except IncompatibleSchema as error:
                rejected[schema_id] = str(error)
            else:
                reader = schemas.merge(reader, writers[schema_id])
        return Side(reader, writers, dict(rejected), frozenset(unknown))


def fitted(reader: Json | None, older: Mapping[int, Json], registered: Registered) -> Json:
    """Return a schema as the writer's form that can be merged into a reader's, under the names of its columns.

    `older` are the forms with a lower id, which the registry gives in the order of registration: a narrower type or
    another name is refused in a later version, and a version from before the change is none.

    Raises:
        IncompatibleSchema: it does not fit.
    """
    if registered.kind != "AVRO":
        raise IncompatibleSchema("", f"the schema is {registered.kind}, not AVRO")
    writer = schemas.with_column_names(reader, avro.writer_form(registered.text, registered.references))
    tables.payload_columns(schemas.merge(reader, writer))
    schemas.refuse_narrowing(schemas.merge_all(older), writer)
    schemas.refuse_rename(older[max(older)] if older else None, writer)
    return writer
