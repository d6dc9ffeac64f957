"""The columns of a bronze table that a schema's fields are landed in."""

from pyiceberg.types import StructType

from python_ingest.avro.types import AvroField, AvroSchema, AvroType
from python_ingest.avro.versions import Versions
from python_ingest.avro.walk import IncompatibleSchema, fields, not_null, omitted
from python_ingest.bronze import column_types
from python_ingest.declare import spark_types
from python_ingest.declare.spark_types import struct
from python_ingest.declare.table_layout import METADATA_COLUMNS, RESERVED
from python_ingest.declare.topics import Declaration


def declared_columns(declaration: Declaration) -> StructType:
    """Return the columns of payload and Avro key that the topic's source declares; all others are the ingester's."""
    return decoded_columns(declaration.columns, declaration.key)


def decoded_columns(columns: StructType, key_format: str | None) -> StructType:
    """Return those of a table's columns that are decoded: the payload's, and `kafka_key` where keys are Avro."""
    return struct(
        {
            name: column_types.plain(column)
            for name, column in spark_types.children(columns).items()
            if name.lower() not in METADATA_COLUMNS or (name == "kafka_key" and key_format == "avro")
        }
    )


def landed_columns(side: str, writer: AvroSchema) -> StructType:
    """Return the columns that hold the values or keys (`side`) of an expanded schema; raises as `landed_record`."""
    columns = column_types.of_avro(landed_record(side, writer))
    return columns if isinstance(columns, StructType) else spark_types.NO_COLUMNS


def landed_record(side: str, writer: AvroSchema) -> AvroSchema:
    """Return an expanded schema as a record whose fields are columns; any other type becomes its only field.

    The encoding stays the same.

    Raises:
        IncompatibleSchema: a field that is renamed, because a metadata column has its name, collides with another.
    """
    some = not_null(writer)
    if side == "key" or not isinstance(some, dict) or some["type"] != "record":
        column = AvroField(name="kafka_key" if side == "key" else "value", type=writer)
        return AvroType(type="record", name="landed", fields=[column])
    columns: dict[str, AvroField] = {}
    for field in some["fields"]:
        name = landed_name(field["name"])
        if name in columns:
            raise IncompatibleSchema(field["name"], f"two fields would be landed as {name}")
        columns[name] = {**field, "name": name}
    record: AvroSchema = {**some, "fields": [*columns.values()]}
    return [record if branch is some else branch for branch in writer] if isinstance(writer, list) else record


def without_collisions(writer: AvroSchema, versions: Versions) -> AvroSchema:
    """Omit a field of values whose column another field has: the one that the table has, or that has its name."""
    some = not_null(writer)
    if not isinstance(some, dict) or some["type"] != "record":
        return writer
    names = sorted(fields(some), key=lambda name: name == landed_name(name))
    owners = {landed_name(name).lower(): name for name in (*names, *versions.columns.get("", {}).values())}
    kept: list[AvroField] = []
    for field in some["fields"]:
        owner = owners.get(landed_name(field["name"]).lower(), field["name"])
        taken = field["name"] in names and owner.lower() != field["name"].lower()
        kept.append(omitted(field, field["name"], f"the field {owner} has its column") if taken else field)
    record: AvroSchema = {**some, "fields": kept}
    return [record if branch is some else branch for branch in writer] if isinstance(writer, list) else record


def landed_name(field: str) -> str:
    """Return the column name of a payload field."""
    is_reserved = field.lower() in METADATA_COLUMNS or field.lower() in RESERVED
    return f"value_{field}" if is_reserved else field
