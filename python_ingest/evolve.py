"""The schemas of one topic: what is known, what a new id adds, and what does not fit."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from python_ingest import schemas, tables
from python_ingest.decode import Side, Sides
from python_ingest.registry import Registered, Registry
from python_ingest.schemas import IncompatibleSchema, Json
from python_ingest.tables import SchemaState


@dataclass(frozen=True)
class Learned:
    """A state that holds every id found that fits; the other ids with what is wrong with them."""

    state: SchemaState
    sides: Sides


@dataclass
class TopicSchemas:
    """Knows the writers of one topic for as long as the process lives.

    Rejected ids are remembered, for a schema never changes under its id. Unknown ids are not: they
    may be registered later.
    """

    registry: Registry
    _writers: dict[int, Json] = field(default_factory=dict)
    _rejected: dict[str, dict[int, str]] = field(default_factory=lambda: {"value": {}, "key": {}})

    def known(self, state: SchemaState) -> Learned:
        """Return what a table's state already holds.

        Raises:
            UserError: the registry is away.
        """
        return self.learn(state, (), ())

    def learn(self, state: SchemaState, value_ids: Iterable[int], key_ids: Iterable[int]) -> Learned:
        """Merge the schemas of ids found in a batch into a state.

        Raises:
            UserError: the registry is away.
        """
        value, merged_values = self._side("value", state.value, state.value_ids, value_ids)
        key, merged_keys = self._side("key", state.key, state.key_ids, key_ids)
        merged = SchemaState(value.reader, key.reader, merged_values, merged_keys)
        return Learned(merged, Sides(value, key))

    def _side(
        self, name: str, reader: Json | None, merged: tuple[int, ...], found: Iterable[int]
    ) -> tuple[Side, tuple[int, ...]]:
        rejected = self._rejected[name]
        writers: dict[int, Json] = {}
        unknown = set()
        for schema_id in sorted({*merged, *found} - set(rejected)):
            try:
                writer = self._writer(schema_id)
                if writer is None:
                    unknown.add(schema_id)
                    continue
                if schema_id not in merged:
                    candidate = schemas.merge(reader, writer)
                    tables.payload_columns(candidate)
                    reader = candidate
                writers[schema_id] = writer
            except IncompatibleSchema as error:
                rejected[schema_id] = str(error)
        everything = tuple(sorted({*merged, *writers}))
        return Side(reader, writers, dict(rejected), frozenset(unknown)), everything

    def _writer(self, schema_id: int) -> Json | None:
        if schema_id not in self._writers:
            registered = self.registry.schema(schema_id)
            if registered is None:
                return None
            self._writers[schema_id] = _writer_form(registered)
        return self._writers[schema_id]


def _writer_form(registered: Registered) -> Json:
    if registered.kind != "AVRO":
        raise IncompatibleSchema("", f"the schema is {registered.kind}, not AVRO")
    if registered.has_references:
        raise IncompatibleSchema("", "the schema refers to other subjects, which is not supported")
    return schemas.writer_form(registered.text)
