"""Resolves the schemas of one topic: known ids, new ids, and those that are incompatible."""

import json
import math
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace

from pyiceberg.types import StructType

from python_common.catalog import property_keys
from python_common.errors import UserError
from python_ingest.avro import expanded_schema
from python_ingest.avro.types import AvroSchema, omitted_fields
from python_ingest.avro.versions import Versions, refuse_narrowing, replaced_fields, with_column_names
from python_ingest.avro.walk import IncompatibleSchema, holds_nothing, walk
from python_ingest.bronze.column_types import without_collisions
from python_ingest.bronze.schema_state import Decoder, Decoders, SchemaState
from python_ingest.declare.topics import Declaration
from python_ingest.kafka.registry import Registered, Registry

FOREIGN_SECONDS = 300.0
# A registry that does not answer, or lacks a known schema, is not asked for known ones again for so long.
UNCHECKED_SECONDS = 60.0
# A schema of a plain type may be under hundreds of subjects.
NAMED = 3
# The id of a schema that is not registered yet.
PROPOSED = -1
# The number of a version, and the type that it is of: the subject, and the record's name without namespace.
_Version = tuple[float, tuple[str, str]]


@dataclass
class TopicSchemas:
    """Knows what is wrong with schemas of one topic for as long as the process lives.

    Rejected ids are remembered, for a schema never changes under its id. Unknown ids are for some
    minutes, by the registry's client: they may be registered later. So are foreign ones, here.
    """

    registry: Registry
    declaration: Declaration
    # Returns why Avro's own parser, by which Spark decodes, refuses a schema as JSON; None if it takes it.
    refusal: Callable[[str], str | None] = lambda _: None
    _versions: dict[tuple[str, int], _Version] = field(default_factory=dict)
    # The reasons, and until when they are believed.
    _rejected: dict[str, dict[int, tuple[str, float]]] = field(default_factory=lambda: {"value": {}, "key": {}})
    _checked: set[tuple[str, int]] = field(default_factory=set)
    _check_from: float = 0.0

    def check(self, state: SchemaState, noted: Mapping[str, str]) -> dict[str, str]:
        """Compare fingerprints of known schemas with the registry's, each once; return those that are not `noted`.

        A table without a fingerprint takes the first answer. A registry that is away stops no known schema.

        Raises:
            UserError: an id has another schema than the one that the table's rows were decoded by.
        """
        wanted = {(side, number) for side, writers in state.writers.items() for number in writers} - self._checked
        if not wanted or time.monotonic() < self._check_from:
            return {}
        registered: dict[int, Registered] = {}
        with suppress(UserError):
            registered = Registry(self.registry.settings, wait=0).schemas(schema_id for _, schema_id in wanted)
        new = {}
        for side, schema_id in wanted:
            if schema_id not in registered:
                self._check_from = time.monotonic() + UNCHECKED_SECONDS
                continue
            name = f"{property_keys.fingerprint(side)}{schema_id}"
            fingerprint = expanded_schema.fingerprint(registered[schema_id].text, registered[schema_id].references)
            if noted.get(name, fingerprint) != fingerprint:
                raise UserError(
                    f"{self.declaration.topic}: schema id {schema_id} of its {side}s is another schema in the registry"
                    " now than when its records were landed",
                    "Restore the registry's ids, or land the topic in a new table (declare another name)",
                )
            self._checked.add((side, schema_id))
            if name not in noted:
                new[name] = fingerprint
        return new

    def resolve_schemas(
        self,
        state: SchemaState,
        value_ids: Iterable[int | None] = (),
        key_ids: Iterable[int | None] = (),
        most: int | None = None,
    ) -> Decoders:
        """Add the schemas of ids found in a batch to a state, at most so many of a side.

        First come those that come most often (in a Counter), and else the lowest, since a registry counts from 1. The
        other ids count as unknown. Keys that are declared as anything but Avro have no schemas.

        Raises:
            UserError: the registry is away.
        """
        state, value = self._side("value", state, value_ids, most)
        state, key = self._side("key", state, key_ids if self.declaration.key == "avro" else (), most)
        return Decoders(state, value, key)

    def _side(
        self, name: str, state: SchemaState, schema_ids: Iterable[int | None], most: int | None
    ) -> tuple[SchemaState, Decoder]:
        """Resolve the schemas of keys or values."""
        now = time.monotonic()
        rejected = {number: known for number, known in self._rejected[name].items() if now < known[1]}
        self._rejected[name] = rejected
        writers = state.writers[name]
        unknown = self.registry.missing() - set(writers)
        times = {number: count for number, count in Counter(schema_ids).items() if number is not None}
        new = sorted(times.keys() - set(writers) - set(rejected) - unknown, key=lambda number: (-times[number], number))
        asked, rest = new[:most], new[len(new[:most]) :]
        own: dict[int, Registered] = {}
        while asked:
            answers = self.registry.schemas(asked)
            unknown |= {*asked} - answers.keys()
            for schema_id, registered in answers.items():
                if foreign := self._foreign(name, schema_id, registered):
                    rejected[schema_id] = foreign, time.monotonic() + FOREIGN_SECONDS
                else:
                    own[schema_id] = registered
            # What the topic's subjects list is asked for, however much it is.
            subjects = {*filter(None, self.declaration.subjects(name, ""))}
            subjects.update(self._versions[name, number][1][0] for number in own)
            listed = {schema_id for subject in subjects for schema_id in self.registry.ids(subject)} if rest else set()
            asked, rest = [number for number in rest if number in listed], [*filter(lambda n: n not in listed, rest)]
        state = self._with_compatible(name, state, own)
        reasons = {number: reason for number, (reason, _) in rejected.items()}
        # A table may know a schema from before the parser was asked.
        writers = state.writers[name]
        refused = {number: self.refusal(json.dumps(writer)) for number, writer in writers.items()}
        reasons |= {number: _incompatible(number, refusal) for number, refusal in refused.items() if refusal}
        usable = {number: writer for number, writer in writers.items() if number not in reasons}
        return state, Decoder(usable, reasons, frozenset(unknown), bool(rest))

    def _with_compatible(self, side: str, state: SchemaState, own: Mapping[int, Registered]) -> SchemaState:
        """Add the compatible ones of a topic's new schemas to a state, in the order of their versions."""
        writers = state.writers[side]
        order = self._order(side, [*writers, *own] if own else ())
        versions = Versions.of(writers.values())
        types = {number: of_type for (_, of_type), number in order}
        older: dict[tuple[str, str], Versions] = defaultdict(Versions)
        named: dict[tuple[str, str], Versions] = {}
        for (_, of_type), schema_id in order:
            # A known schema that the registry lost may be of any type.
            same = (writer for number, writer in writers.items() if types.get(number, of_type) == of_type)
            named[of_type] = names = named.get(of_type) or Versions.of(same)
            if schema_id not in writers:
                try:
                    writer, notes = check_compatibility(
                        side, self.declaration, state.columns, versions, older[of_type], names, own[schema_id]
                    )
                    added = state.with_writer(side, schema_id, writer)
                    if refusal := self.refusal(json.dumps(writer)):
                        raise IncompatibleSchema("", refusal)
                except IncompatibleSchema as error:
                    self._rejected[side][schema_id] = _incompatible(schema_id, error), math.inf
                    continue
                versions, named[of_type] = versions.with_version(writer), names.with_version(writer)
                new_notes = {note_name(side, schema_id): f"schema id {schema_id}: {'; '.join(notes)}"} if notes else {}
                state = replace(added, notes={**added.notes, **new_notes})
            older[of_type] = older[of_type].with_version(state.writers[side][schema_id])
        return state

    def _order(self, side: str, schema_ids: Collection[int]) -> list[tuple[_Version, int]]:
        """Return versions of the topic, with their types, and their ids in order; without those the registry lost."""
        unordered = [number for number in schema_ids if (side, number) not in self._versions]
        for schema_id, registered in self.registry.schemas(unordered).items():
            self._foreign(side, schema_id, registered)
        known = {number: self._versions.get((side, number)) for number in schema_ids}
        return sorted((version, number) for number, version in known.items() if version is not None)

    def planned(
        self, side: str, state: SchemaState, schema_id: int, registered: Registered
    ) -> tuple[SchemaState, str | None]:
        """Add a schema to a state, PROPOSED as the newest version of its type; return why it is refused, if it is."""
        name = expanded_schema.full_name(registered.text)
        subject = self.registry.name_in_context(self.declaration.subjects(side, name)[0])
        if schema_id == PROPOSED or self._foreign(side, schema_id, registered):
            self._versions[side, schema_id] = math.inf, (subject, name.rpartition(".")[2])
        state = self._with_compatible(side, state, {schema_id: registered})
        reason, _ = self._rejected[side].get(schema_id, (None, 0.0))
        return state, reason and reason.removeprefix(_incompatible(schema_id, ""))

    def _foreign(self, side: str, schema_id: int, registered: Registered) -> str | None:
        """Note the version of a schema; return the reason if it is registered under no subject of this topic."""
        name = expanded_schema.full_name(registered.text)
        allowed = [*map(self.registry.name_in_context, self.declaration.subjects(side, name))]
        if (side, schema_id) in self._versions:
            return None
        subjects = self.registry.subjects(schema_id, allowed)
        for subject in filter(subjects.__contains__, allowed):
            self._versions[side, schema_id] = subjects[subject], (subject, name.rpartition(".")[2])
            return None
        if not subjects:
            return f"foreign_schema: schema id {schema_id} is not registered under {', '.join(allowed)}"
        others = f" and {len(subjects) - NAMED} more" if len(subjects) > NAMED else ""
        return f"foreign_schema: schema id {schema_id} belongs to {', '.join(sorted(subjects)[:NAMED])}{others}"


def note_name(side: str, schema_id: int) -> str:
    """Return the table property with the notes on a schema."""
    return f"{property_keys.NOTE}{side}-schema.{schema_id}"


def _incompatible(schema_id: int, reason: object) -> str:
    return f"incompatible_schema: schema id {schema_id}, {reason}"


def check_compatibility(
    side: str,
    declaration: Declaration,
    columns: StructType,
    versions: Versions,
    older: Versions,
    named: Versions,
    registered: Registered,
) -> tuple[AvroSchema, tuple[str, ...]]:
    """Return the expanded schema of a version, its fields named as their columns, and notes for `ingest status`.

    It must fit `versions`, all that the table knows; SchemaState.with_writer compares it with the columns. Those that
    a source declares are `columns`, whose names its fields may have in another case. `older` are the
    earlier versions of its type: a narrower type or another name is refused in a later version, unless the
    declaration allows it. `named` are all versions of its type, whose names and aliases are those of its fields.

    Raises:
        IncompatibleSchema: it does not fit.
    """
    if registered.schema_type != "AVRO":
        raise IncompatibleSchema("", f"the schema is {registered.schema_type}, not AVRO")
    form = expanded_schema.expand_schema(registered.text, registered.references)
    writer = with_column_names(named, form, columns if side == "value" else None)
    if side == "value":
        writer = without_collisions(writer, versions)
    versions.with_version(writer)
    refuse_narrowing(older, writer, declaration.allow)
    for path, schema in walk(writer):
        # Spark would read what remains of the union as another type than the column's.
        if isinstance(schema, list) and any(branch != "null" and holds_nothing(branch) for branch in schema):
            raise IncompatibleSchema(path, "a record in the union has no field that can be a column")
    notes = [f"{path} is omitted, {reason}: NULL in the table" for path, reason in omitted_fields(writer)]
    if notes and holds_nothing(writer):
        raise IncompatibleSchema("", f"no field can be a column: {notes[0]}")
    for dropped, added, required in replaced_fields(older, writer):
        if dropped in declaration.allow:
            continue
        if required:
            raise IncompatibleSchema(dropped, f"renamed to {added} without an alias")
        notes.append(f"{dropped} was dropped and {added} added, as a separate column")
    return writer, tuple(notes)
