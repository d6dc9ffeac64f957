"""Resolves the schemas of one topic: known ids, new ids, and those that are incompatible."""

import math
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace

from pyiceberg.types import StructType

from python_common.catalog import property_keys
from python_common.errors import UserError
from python_ingest.avro import expanded_schema
from python_ingest.avro.types import AvroSchema, omitted_fields
from python_ingest.avro.versions import Versions, refuse_narrowing, replaced_fields, with_column_names
from python_ingest.avro.walk import IncompatibleSchema, holds_nothing, walk
from python_ingest.bronze.column_types import widened_columns
from python_ingest.bronze.columns import landed_columns, without_collisions
from python_ingest.bronze.schema_state import Decoder, Decoders, SchemaState
from python_ingest.declare.topics import Declaration
from python_ingest.kafka.registry import Registered, Registry

FOREIGN_SECONDS = 300.0
# A registry that does not answer, or lacks a known schema, is not asked for known ones again for so long.
UNCHECKED_SECONDS = 60.0
# A schema of a plain type may be under hundreds of subjects.
NAMED = 3


class ForeignSchema(Exception):
    """A schema that is registered under no subject of the topic."""


@dataclass(frozen=True)
class Registration:
    """Where a schema is registered for a topic: `lineage` is the subject and the record's name without its namespace.

    Only versions of one lineage are versions of one type: a topic, and a subject, may have several.
    """

    lineage: tuple[str, str]
    version: int


@dataclass
class TopicSchemas:
    """Knows what is wrong with schemas of one topic for as long as the process lives.

    Rejected ids are remembered, for a schema never changes under its id. Unknown ids are for some
    minutes, by the registry's client: they may be registered later. So are foreign ones, here.
    """

    registry: Registry
    declaration: Declaration
    # Returns why Avro's own parser, by which Spark decodes, refuses a schema; None if it takes it.
    refusal: Callable[[AvroSchema], str | None] = lambda _: None
    _refusals: dict[tuple[str, int], str | None] = field(default_factory=dict)
    _registrations: dict[tuple[str, int], Registration] = field(default_factory=dict)
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
        own: dict[int, Registered] = {}
        asked, rest = new[:most], new[len(new[:most]) :]
        while asked:
            answers = self.registry.schemas(asked)
            unknown |= {*asked} - answers.keys()
            for schema_id, registered in sorted(answers.items()):
                try:
                    self._register(name, schema_id, registered)
                    own[schema_id] = registered
                except ForeignSchema as reason:
                    rejected[schema_id] = str(reason), time.monotonic() + FOREIGN_SECONDS
            asked = self._listed(name, rest, len(own.keys() & {*asked}))
            rest = [schema_id for schema_id in rest if schema_id not in asked]
        if own:
            state = self._add(name, state, own)
        reasons = {number: reason for number, (reason, _) in rejected.items()}
        # A table may know a schema from before the parser was asked.
        refused = {number: self._refused(name, number, writer) for number, writer in state.writers[name].items()}
        reasons |= {number: _incompatible(number, reason) for number, reason in refused.items() if reason}
        usable = {number: writer for number, writer in state.writers[name].items() if number not in reasons}
        return state, Decoder(usable, reasons, frozenset(unknown), bool(rest))

    def _refused(self, side: str, schema_id: int, writer: AvroSchema) -> str | None:
        """Return why the parser refuses a schema, asked once."""
        if (side, schema_id) not in self._refusals:
            self._refusals[side, schema_id] = self.refusal(writer)
        return self._refusals[side, schema_id]

    def _listed(self, side: str, schema_ids: list[int], hits: int) -> list[int]:
        """Return those of more ids than a batch may ask for that are asked for all the same.

        These are what the topic's subjects list. Subjects named after records are not known: there each id that was one
        of the topic's lets one more be asked for.
        """
        if self.declaration.subject in ("record", "topic_record"):
            return schema_ids[:hits]
        subjects = self.declaration.subjects(side, "") if schema_ids else ()
        listed = {schema_id for subject in subjects for schema_id in self.registry.ids(subject)}
        return [schema_id for schema_id in schema_ids if schema_id in listed]

    def _add(self, side: str, state: SchemaState, own: Mapping[int, Registered]) -> SchemaState:
        """Add the compatible ones of a topic's new schemas to a state, in the order of their versions."""
        writers = state.writers[side]
        for schema_id, registered in self.registry.schemas(writers).items():
            with suppress(ForeignSchema):
                self._register(side, schema_id, registered)
        registrations = {number: self._registrations.get((side, number)) for number in {*writers, *own}}
        placed = {number: known for number, known in registrations.items() if known is not None}
        versions = Versions.of(writers.values())
        older: dict[tuple[str, str], Versions] = defaultdict(Versions)
        named: dict[tuple[str, str], Versions] = {}
        for schema_id in sorted(placed, key=lambda number: (placed[number].version, number)):
            lineage = placed[schema_id].lineage
            if lineage not in named:
                # A known schema that the registry lost may be of any type.
                others = {number for number, known in placed.items() if known.lineage != lineage}
                named[lineage] = Versions.of(writers[number] for number in writers if number not in others)
            if schema_id not in writers:
                try:
                    writer, notes = check_compatibility(
                        side, self.declaration, state.columns, versions, older[lineage], own[schema_id], named[lineage]
                    )
                    added = state.with_writer(side, schema_id, writer)
                    if refusal := self._refused(side, schema_id, writer):
                        raise IncompatibleSchema("", refusal)
                except IncompatibleSchema as error:
                    self._rejected[side][schema_id] = _incompatible(schema_id, str(error)), math.inf
                    continue
                versions, named[lineage] = versions.with_version(writer), named[lineage].with_version(writer)
                if notes:
                    note = f"{property_keys.NOTE}{side}-schema.{schema_id}"
                    text = f"schema id {schema_id}: {'; '.join(notes)}"
                    added = replace(added, notes={**added.notes, note: text})
                state = added
            older[lineage] = older[lineage].with_version(state.writers[side][schema_id])
        return state

    def _register(self, side: str, schema_id: int, registered: Registered) -> None:
        """Note which version a schema is of which type of the topic; ForeignSchema if it is of none."""
        if (side, schema_id) in self._registrations:
            return
        name = expanded_schema.full_name(registered.text)
        allowed = [*map(self.registry.name_in_context, self.declaration.subjects(side, name))]
        subjects = self.registry.subjects(schema_id, allowed)
        for subject in allowed:
            if subject in subjects:
                lineage = subject, name.rpartition(".")[2]
                self._registrations[side, schema_id] = Registration(lineage, subjects[subject])
                return
        if not subjects:
            raise ForeignSchema(f"foreign_schema: schema id {schema_id} is not registered under {', '.join(allowed)}")
        others = f" and {len(subjects) - NAMED} more" if len(subjects) > NAMED else ""
        raise ForeignSchema(
            f"foreign_schema: schema id {schema_id} belongs to {', '.join(sorted(subjects)[:NAMED])}{others}"
        )


def _incompatible(schema_id: int, reason: str) -> str:
    return f"incompatible_schema: schema id {schema_id}, {reason}"


def check_compatibility(
    side: str,
    declaration: Declaration,
    columns: StructType,
    versions: Versions,
    older: Versions,
    registered: Registered,
    named: Versions | None = None,
) -> tuple[AvroSchema, tuple[str, ...]]:
    """Return the expanded schema of a version, its fields named as their columns, and notes for `ingest status`.

    It must fit `versions`, all that the table knows, and `columns`, for a source may have declared them. `older` are
    the earlier versions of its type: a narrower type or another name is refused in a later version, unless the
    declaration allows it. `named` are all versions of its type, whose names and aliases are those of its fields; by
    default `versions`.

    Raises:
        IncompatibleSchema: it does not fit.
    """
    if registered.schema_type != "AVRO":
        raise IncompatibleSchema("", f"the schema is {registered.schema_type}, not AVRO")
    form = expanded_schema.expand_schema(registered.text, registered.references)
    writer = with_column_names(named or versions, form, columns if side == "value" else None)
    if side == "value":
        writer = without_collisions(writer, versions)
    versions.with_version(writer)
    widened_columns(columns, landed_columns(side, writer))
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
