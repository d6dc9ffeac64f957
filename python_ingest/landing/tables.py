"""The bronze table: its columns, its properties, how it is made and how it grows.

docs/exactly-once.md says why the layout is as it is: a file never mixes Kafka partitions, and the
statistics of partition, offset and batch are always kept, because the positions are read from them.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from uuid import uuid4

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException, TableAlreadyExistsError
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema, assign_fresh_schema_ids
from pyiceberg.table import Table
from pyiceberg.transforms import DayTransform, IdentityTransform
from pyiceberg.types import (
    BinaryType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestamptzType,
)

from lakehouse.catalog import load_table
from lakehouse.errors import UserError
from python_ingest.schema import column_types, merge, writer_form
from python_ingest.schema.column_types import joined
from python_ingest.schema.writer_form import IncompatibleSchema, Json
from python_ingest.topics import Declaration

METADATA_COLUMNS: dict[str, IcebergType] = {
    "kafka_topic": StringType(),
    "kafka_partition": IntegerType(),
    "kafka_offset": LongType(),
    "kafka_timestamp": TimestamptzType(),
    "kafka_timestamp_type": IntegerType(),
    "kafka_headers": ListType(
        element_id=-1,
        element_type=StructType(
            NestedField(-1, "key", StringType(), required=False),
            NestedField(-1, "value", BinaryType(), required=False),
        ),
        element_required=False,
    ),
    "kafka_key": StringType(),
    "kafka_raw_key": BinaryType(),
    "kafka_raw_value": BinaryType(),
    "key_schema_id": IntegerType(),
    "value_schema_id": IntegerType(),
    "decode_error": StringType(),
    "key_error": StringType(),
    "ingest_batch": LongType(),
    "ingested_at": TimestamptzType(),
}
# Iceberg writes columns of these names and then cannot read them back.
RESERVED = ("_file", "_pos", "_deleted", "_spec_id", "_partition", "_row_id", "_commit_snapshot_id")
METRICS = {
    "default": "counts",
    "column.kafka_partition": "full",
    "column.kafka_offset": "full",
    "column.kafka_timestamp": "full",
    "column.ingest_batch": "full",
    "column.ingested_at": "full",
    "column.kafka_raw_key": "none",
    "column.kafka_raw_value": "none",
}
LAYOUT = {
    "format-version": "2",
    "write.distribution-mode": "none",
    "write.spark.fanout.enabled": "true",
    # Spark writes a table that does not say so, as one made by PyIceberg, with gzip: twice the CPU time of a batch.
    "write.parquet.compression-codec": "zstd",
    "write.parquet.compression-level": "1",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "100",
    # A commit opens every manifest, to see what lies in its ranges: there must not be many.
    "commit.manifest.min-count-to-merge": "25",
    **{f"write.metadata.metrics.{name}": mode for name, mode in METRICS.items()},
}
# Of the properties that say what is noteworthy about a schema: its side and id follow.
NOTE = "lakehouse.note."
ATTEMPTS = 5


@dataclass(frozen=True)
class SchemaState:
    """The columns that a table has, the writers' schemas that they hold, by id, and what people should know of them.

    `columns` are the payload's, and `kafka_key` where keys are Avro. The schemas stand in the table's properties,
    one each: of two processes that add different ones at the same time, neither undoes what the other did. The
    order of merging does not matter.
    """

    value: Mapping[int, Json] = field(default_factory=dict)
    key: Mapping[int, Json] = field(default_factory=dict)
    columns: StructType = column_types.NO_COLUMNS
    notes: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, table: Table | None) -> "SchemaState":
        """Return the state of a table, empty if there is none yet."""
        if table is None:
            return cls()
        sides: dict[str, dict[int, Json]] = {"value": {}, "key": {}}
        for name, text in table.properties.items():
            match = re.fullmatch(r"lakehouse\.(value|key)-schema\.(\d+)", name)
            if match:
                sides[match[1]][int(match[2])] = json.loads(text)
        columns = {each.name: each.field_type for each in table.schema().fields}
        notes = {name: text for name, text in table.properties.items() if name.startswith(NOTE)}
        return cls(**sides, columns=_decoded(columns, table.properties.get("lakehouse.key")), notes=notes)

    def held(self) -> StructType:
        """Return the columns that hold what the table has and what the schemas give."""
        held = joined(self.columns, landed_columns("value", merge.merge_all(self.value)))
        return joined(held, landed_columns("key", merge.merge_all(self.key)))

    def properties(self) -> dict[str, str]:
        """Return the state as table properties."""
        return {**self.notes} | {
            f"lakehouse.{side}-schema.{schema_id}": json.dumps(writer, separators=(",", ":"))
            for side, writers in (("value", self.value), ("key", self.key))
            for schema_id, writer in sorted(writers.items())
        }


def load(catalog: Catalog, declaration: Declaration) -> Table | None:
    """Return the bronze table, or None if it does not exist yet.

    Raises:
        UserError: its metadata is missing or damaged.
    """
    return load_table(catalog, declaration.identifier)


def existing(catalog: Catalog, declaration: Declaration) -> Table:
    """Return the bronze table.

    Raises:
        UserError: there is none.
    """
    table = load(catalog, declaration)
    if table is None:
        raise UserError(f"There is no table {declaration.identifier}", "Run `lakehouse ingest run` first")
    return table


def prepared(catalog: Catalog, declaration: Declaration) -> Table:
    """Return the bronze table with every column that its source declares: made if there is none, grown if it lacks one.

    Raises:
        UserError: a column of the table cannot be what its source declares, or others change the table all the time.
    """
    for _ in range(ATTEMPTS):
        table = load(catalog, declaration)
        table = create(catalog, declaration) if table is None else _grown(table, declaration)
        if table is not None:
            return table
    raise UserError(
        f"{declaration.identifier} was changed by others {ATTEMPTS} times in a row", "Run the command again"
    )


def _grown(table: Table, declaration: Declaration) -> Table | None:
    made_for = tuple(table.properties.get(f"lakehouse.{name}") for name in ("topic", "key"))
    if made_for != (declaration.topic, declaration.key):
        return table  # identity.check refuses it
    state = SchemaState.of(table)
    try:
        wanted = joined(state.columns, declared_columns(declaration))
    except IncompatibleSchema as error:
        raise UserError(
            f"{declaration.identifier} cannot have a column that its source declares: {error}",
            "Correct its data_type in the dbt source, or land the topic in a new table (declare another name)",
        ) from None
    # Of the ingester's own columns a table may lack those that came with a later version of it.
    own = METADATA_COLUMNS.keys() - {"kafka_key"}
    if wanted == state.columns and own <= set(table.schema().column_names):
        return table
    return evolve(table, declaration, replace(state, columns=wanted))


def create(catalog: Catalog, declaration: Declaration) -> Table | None:
    """Create the table with the columns that its source declares; return None if another ingester was faster."""
    schema = table_schema(SchemaState(columns=declared_columns(declaration)), declaration.key)
    day = schema.find_field("ingested_at").field_id
    partition = schema.find_field("kafka_partition").field_id
    spec = PartitionSpec(
        PartitionField(day, 1000, DayTransform(), "ingested_at_day"),
        PartitionField(partition, 1001, IdentityTransform(), "kafka_partition"),
    )
    try:
        return catalog.create_table(
            declaration.identifier,
            schema,
            location=_location(catalog, declaration),
            partition_spec=spec,
            properties={
                **LAYOUT,
                "lakehouse.topic": declaration.topic,
                "lakehouse.key": declaration.key,
                # Models read a table with another id from its first batch, see macros/incremental/watermark.sql.
                "lakehouse.table-id": str(uuid4()),
            },
        )
    except TableAlreadyExistsError:
        return None


def _location(catalog: Catalog, declaration: Declaration) -> str:
    return f"{catalog.properties['warehouse'].rstrip('/')}/{declaration.schema}/{declaration.table}"


def evolve(table: Table, declaration: Declaration, state: SchemaState) -> Table | None:
    """Add and widen columns for a new state, in one commit.

    Returns:
        None if another process changed the table meanwhile: load it and merge again.
    """
    try:
        with table.transaction() as transaction:
            with transaction.update_schema() as update:
                update.union_by_name(table_schema(state, declaration.key))
            transaction.set_properties(state.properties())
    except CommitFailedException:
        return None
    return table


def declared_columns(declaration: Declaration) -> StructType:
    """Return the columns of payload and Avro key that the topic's source declares; all others are the ingester's."""
    return _decoded({each.name: each.field_type for each in declaration.columns.fields}, declaration.key)


def _decoded(columns: Mapping[str, IcebergType], key_format: str | None) -> StructType:
    return column_types.struct(
        {
            name: column_types.plain(column)
            for name, column in columns.items()
            if name.lower() not in METADATA_COLUMNS or (name == "kafka_key" and key_format == "avro")
        }
    )


def table_schema(state: SchemaState, key_format: str) -> Schema:
    """Return the table's columns: the payload's, then the metadata's."""
    held = {each.name: each.field_type for each in state.held().fields}
    key = {"bytes": BinaryType(), "string": StringType()}.get(key_format, held.pop("kafka_key", None))
    columns = held | METADATA_COLUMNS | {"kafka_key": key}
    if key is None:
        # Until the schema of a key is known there is no type that would fit all that may come.
        del columns["kafka_key"]
    fields = [
        NestedField(index, name, each, required=False) for index, (name, each) in enumerate(columns.items(), start=1)
    ]
    return assign_fresh_schema_ids(Schema(*fields))


def landed_columns(side: str, reader: Json | None) -> StructType:
    """Return the columns in which a reader's form of a side (`value` or `key`) is landed.

    Raises:
        IncompatibleSchema: renaming a field makes it collide with another one.
    """
    if reader is None:
        return column_types.NO_COLUMNS
    return column_types.struct_of_avro(payload_columns(reader) if side == "value" else {"kafka_key": reader})


def payload_columns(value: Json | None) -> dict[str, Json]:
    """Return the payload's top-level columns with their reader types, renamed where they collide.

    Raises:
        IncompatibleSchema: renaming a field makes it collide with another one.
    """
    if value is None:
        return {}
    if writer_form.kind(value) != "record":
        return {"value": value}
    columns: dict[str, Json] = {}
    for each in value["fields"]:
        name = landed_name(each["name"])
        if name in columns:
            raise IncompatibleSchema(each["name"], f"two fields would be landed as {name}")
        columns[name] = each["type"]
    return columns


def landed_name(field: str) -> str:
    """Return the column name of a payload field."""
    taken = field.lower() in METADATA_COLUMNS or field.lower() in RESERVED
    return f"value_{field}" if taken else field
