"""The schemas of a topic in its table's properties, and the state of its key and value decoders."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from pyiceberg.table import Table
from pyiceberg.types import StructType

from python_common.catalog import property_keys
from python_ingest.avro.types import AvroSchema, omitted_fields
from python_ingest.bronze.column_types import decoded_columns, landed_columns, landed_name, widened_columns
from python_ingest.declare import spark_types


@dataclass(frozen=True)
class SchemaState:
    """The columns that a table has, the writers' schemas that they hold, by side (`value`, `key`) and id, and notes.

    `columns` are the payload's, and `kafka_key` where keys are Avro. The schemas are table properties,
    one each: of two processes that add different ones at the same time, neither undoes what the other did.
    """

    writers: Mapping[str, Mapping[int, AvroSchema]] = field(default_factory=lambda: {"value": {}, "key": {}})
    columns: StructType = spark_types.NO_COLUMNS
    notes: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, table: Table | None) -> "SchemaState":
        """Return the state of a table, empty if it does not exist yet."""
        if table is None:
            return cls()
        writers: dict[str, dict[int, AvroSchema]] = {"value": {}, "key": {}}
        for side, of_side in writers.items():
            prefix = property_keys.schema(side)
            for name, text in table.properties.items():
                schema_id = name.removeprefix(prefix)
                if schema_id != name and schema_id.isdecimal():
                    of_side[int(schema_id)] = property_keys.parsed_schema(text)
        notes = {name: text for name, text in table.properties.items() if name.startswith(property_keys.NOTE)}
        columns = decoded_columns(table.schema().as_struct(), table.properties.get(property_keys.KEY_FORMAT))
        return cls(writers, columns, notes)

    def with_writer(self, side: str, schema_id: int, writer: AvroSchema) -> "SchemaState":
        """Add a writer's schema, and the columns that hold its fields; IncompatibleSchema if the table's cannot."""
        columns = widened_columns(self.columns, landed_columns(side, writer))
        writers = {**self.writers, side: {**self.writers[side], schema_id: writer}}
        return replace(self, columns=columns, writers=writers)

    def omitted_fields(self) -> list[tuple[str, str]]:
        """Return column, or path, and reason of each field that no column can hold: in the table it is NULL."""
        values, keys = self.writers["value"].values(), self.writers["key"].values()
        of_values = {(landed_name(path), why) for writer in values for path, why in omitted_fields(writer)}
        of_keys = {(f"kafka_key.{path}", why) for writer in keys for path, why in omitted_fields(writer)}
        return sorted(of_values | of_keys)

    def properties(self) -> dict[str, str]:
        """Return the state as table properties."""
        return {**self.notes} | {
            f"{property_keys.schema(side)}{schema_id}": property_keys.schema_text(writer)
            for side, writers in self.writers.items()
            for schema_id, writer in sorted(writers.items())
        }


@dataclass(frozen=True)
class Decoder:
    """How the keys or the values of a topic are decoded.

    `writers` are the schemas by id. `rejected` maps an id whose schema does not fit, or belongs to another topic, to
    the whole error. `unknown` are the ids that the registry does not have; with `too_many` it was not asked for all,
    and every other id counts as unknown too.
    """

    writers: Mapping[int, AvroSchema] = field(default_factory=dict)
    rejected: Mapping[int, str] = field(default_factory=dict)
    unknown: frozenset[int] = frozenset()
    too_many: bool = False


@dataclass(frozen=True)
class Decoders:
    """How a topic's records are decoded: into the columns of `state`, which has every schema id that is compatible."""

    state: SchemaState
    value: Decoder
    key: Decoder
