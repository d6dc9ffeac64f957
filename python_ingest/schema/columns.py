"""The columns of a bronze table that a schema's fields are landed in."""

from pyiceberg.types import StructType

from python_ingest import spark_types
from python_ingest.kafka.avro_schema import AvroSchema
from python_ingest.layout import METADATA_COLUMNS
from python_ingest.schema import column_types
from python_ingest.schema.avro import IncompatibleSchema, avro_type, parts
from python_ingest.spark_types import struct
from python_ingest.topics import Declaration

# Iceberg writes columns of these names and then cannot read them back.
RESERVED = ("_file", "_pos", "_deleted", "_spec_id", "_partition", "_row_id", "_commit_snapshot_id")


def declared_columns(declaration: Declaration) -> StructType:
    """Return the columns of payload and Avro key that the topic's source declares; all others are the ingester's."""
    return decoded_columns(declaration.columns, declaration.key)


def decoded_columns(columns: StructType, key_format: str | None) -> StructType:
    """Return those of a table's columns that are decoded: the payload's, and `kafka_key` where keys are Avro."""
    return struct(
        {
            name: column_types.plain(column)
            for name, column in spark_types.parts(columns).items()
            if name.lower() not in METADATA_COLUMNS or (name == "kafka_key" and key_format == "avro")
        }
    )


def landed_columns(side: str, reader: AvroSchema | None) -> StructType:
    """Return the columns in which a reader's form of a side (`value`, `key`) is landed; raises as `payload_columns`."""
    if reader is None:
        return spark_types.NO_COLUMNS
    return column_types.struct_of_avro(payload_columns(reader) if side == "value" else {"kafka_key": reader})


def payload_columns(value: AvroSchema | None) -> dict[str, AvroSchema]:
    """Return the payload's top-level columns with their reader types, renamed where they collide.

    Raises:
        IncompatibleSchema: renaming a field makes it collide with another one.
    """
    if value is None:
        return {}
    if avro_type(value) != "record":
        return {"value": value}
    columns: dict[str, AvroSchema] = {}
    for field, schema in parts(value).items():
        name = landed_name(field)
        if name in columns:
            raise IncompatibleSchema(field, f"two fields would be landed as {name}")
        columns[name] = schema
    return columns


def landed_name(field: str) -> str:
    """Return the column name of a payload field."""
    taken = field.lower() in METADATA_COLUMNS or field.lower() in RESERVED
    return f"value_{field}" if taken else field
