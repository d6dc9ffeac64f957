"""The bronze table: its columns, its properties, how it is made and how it grows.

docs/exactly-once.md says why the layout is as it is: a file never mixes Kafka partitions, and the
statistics of partition, offset and batch are always kept, because the positions are read from them.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException, TableAlreadyExistsError
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema, assign_fresh_schema_ids
from pyiceberg.table import Table
from pyiceberg.transforms import DayTransform, IdentityTransform
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
)

from lakehouse.catalog import load_table
from lakehouse.errors import UserError
from python_ingest import avro, schemas
from python_ingest.avro import IncompatibleSchema, Json
from python_ingest.broker import TopicState
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
# Spark reads no Iceberg time and has no nanoseconds: those columns are numbers, in the unit that Avro names.
TYPES: dict[str, IcebergType] = {
    "boolean": BooleanType(),
    "int": IntegerType(),
    "long": LongType(),
    "float": FloatType(),
    "double": DoubleType(),
    "bytes": BinaryType(),
    "string": StringType(),
    "date": DateType(),
    "time-millis": IntegerType(),
    "time-micros": LongType(),
    "timestamp": TimestamptzType(),
    "timestamp-nanos": LongType(),
    "local-timestamp": TimestampType(),
    "local-timestamp-nanos": LongType(),
}


@dataclass(frozen=True)
class SchemaState:
    """The writers' schemas that a table's columns hold, by id.

    They stand in the table's properties, one each: of two processes that add different ones at
    the same time, neither undoes what the other did. The order of merging does not matter.
    """

    value: Mapping[int, Json] = field(default_factory=dict)
    key: Mapping[int, Json] = field(default_factory=dict)

    @classmethod
    def of(cls, table: Table | None) -> "SchemaState":
        """Return the state of a table, empty if there is none yet."""
        sides: dict[str, dict[int, Json]] = {"value": {}, "key": {}}
        for name, text in (table.properties if table is not None else {}).items():
            match = re.fullmatch(r"lakehouse\.(value|key)-schema\.(\d+)", name)
            if match:
                sides[match[1]][int(match[2])] = json.loads(text)
        return cls(**sides)

    def properties(self) -> dict[str, str]:
        """Return the state as table properties."""
        return {
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


def create(catalog: Catalog, declaration: Declaration, topic: TopicState, state: SchemaState) -> Table | None:
    """Create the table; return None if another ingester was faster."""
    schema = table_schema(state, declaration.key)
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
                "lakehouse.topic-id": topic.topic_id,
                "lakehouse.cluster-id": topic.cluster_id,
                "lakehouse.key": declaration.key,
                **state.properties(),
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


def table_schema(state: SchemaState, key_format: str) -> Schema:
    """Return the table's columns: the payload's, then the metadata's."""
    columns: dict[str, IcebergType] = {
        column: iceberg_type(schema) for column, schema in payload_columns(schemas.merge_all(state.value)).items()
    }
    columns |= METADATA_COLUMNS
    if key_format == "bytes":
        columns["kafka_key"] = BinaryType()
    elif key_format == "avro" and state.key:
        columns["kafka_key"] = iceberg_type(schemas.merge_all(state.key))
    elif key_format == "avro":
        # Until the schema of a key is known there is no type that would fit all that may come.
        del columns["kafka_key"]
    fields = [
        NestedField(index, name, each, required=False) for index, (name, each) in enumerate(columns.items(), start=1)
    ]
    return assign_fresh_schema_ids(Schema(*fields))


def payload_columns(value: Json | None) -> dict[str, Json]:
    """Return the payload's top-level columns with their reader types, renamed where they collide.

    Raises:
        IncompatibleSchema: renaming a field makes it collide with another one.
    """
    if value is None:
        return {}
    if avro.kind(value) != "record":
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


def iceberg_type(schema: Json) -> IcebergType:
    """Return the Iceberg type of a reader's schema; field ids are placeholders."""
    some = avro.not_null(schema)
    held = schemas.column_kind(some)
    match held:
        case "record":
            return struct_type({each["name"]: each["type"] for each in some["fields"]})
        case "union":
            return struct_type({avro.member(branch): branch for branch in some})
        case "array":
            return ListType(-1, iceberg_type(some["items"]), element_required=False)
        case "map":
            return MapType(-1, StringType(), -1, iceberg_type(some["values"]), value_required=False)
        case "decimal":
            return DecimalType(some["precision"], some["scale"])
    return TYPES[held]


def struct_type(fields: Mapping[str, Json]) -> StructType:
    """Return the Iceberg struct of fields and their reader's schemas; field ids are placeholders."""
    return StructType(*(NestedField(-1, name, iceberg_type(each), required=False) for name, each in fields.items()))
