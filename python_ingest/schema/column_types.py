"""Column types: from Avro to Iceberg, and which type holds the values of two."""

from collections.abc import Mapping

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
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
)

from python_ingest import spark_types
from python_ingest.kafka.avro_schema import AvroSchema, AvroType
from python_ingest.schema.avro import IncompatibleSchema, avro_type, below, made_of, not_null, parts
from python_ingest.schema.merge import column_type
from python_ingest.spark_types import in_spark, list_of, map_of, struct

# Spark reads no Iceberg time and has no nanoseconds: those columns are numbers, in the unit that Avro names.
OF_AVRO: dict[str, IcebergType] = {
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
AVRO_OF: dict[type[IcebergType], str] = {StructType: "record", ListType: "array", MapType: "map"}
WIDER: dict[tuple[IcebergType, IcebergType], IcebergType] = {
    (IntegerType(), LongType()): LongType(),
    (FloatType(), DoubleType()): DoubleType(),
}


def of_avro(schema: AvroSchema) -> IcebergType:
    """Return the type of a reader's schema; field ids are placeholders, as in all types of this module."""
    some = not_null(schema)
    held = column_type(some)
    if isinstance(some, dict) and held == "decimal":
        return DecimalType(some["precision"], some["scale"])
    if held in ("record", "union"):
        return struct_of_avro(parts(some))
    if held == "array":
        return list_of(of_avro(parts(some)["element"]))
    return map_of(of_avro(parts(some)["value"])) if held == "map" else OF_AVRO[held]


def struct_of_avro(fields: Mapping[str, AvroSchema]) -> StructType:
    """Return the struct of fields and their reader's schemas."""
    return struct({name: of_avro(schema) for name, schema in fields.items()})


def joined(held: IcebergType, more: IcebergType, place: str = "") -> IcebergType:
    """Return the type that holds the values of both. Fields match by name, whose case is `held`'s.

    Raises:
        IncompatibleSchema: there is none; it names the field.
    """
    if held == more:
        return held
    if isinstance(held, StructType) and isinstance(more, StructType):
        return joined_columns(held, more, place)
    of_held, of_more = spark_types.parts(held), spark_types.parts(more)
    if of_held and type(held) is type(more) and of_held.keys() == of_more.keys():
        return spark_types.made_of(
            held, {name: joined(of_held[name], of_more[name], below(place, name)) for name in of_held}
        )
    if isinstance(held, DecimalType) and isinstance(more, DecimalType) and held.scale == more.scale:
        return DecimalType(max(held.precision, more.precision), held.scale)
    wider = WIDER.get((held, more)) or WIDER.get((more, held))
    if wider is None:
        raise IncompatibleSchema(place, f"{_spoken(more)} does not fit the column's type {_spoken(held)}")
    return wider


def joined_columns(held: StructType, more: StructType, place: str = "") -> StructType:
    """Return the columns, or fields, that hold the values of both; raises as `joined`."""
    fields = spark_types.parts(held)
    names = {name.lower(): name for name in fields}
    for other, column in spark_types.parts(more).items():
        name = names.get(other.lower(), other)
        fields[name] = joined(fields.get(name, column), column, below(place, name))
    return struct(fields)


def plain(column: IcebergType) -> IcebergType:
    """Return a table's type with placeholders for its field ids, so that it can be compared."""
    return spark_types.made_of(column, {name: plain(part) for name, part in spark_types.parts(column).items()})


def with_names_of(column: IcebergType, reader: AvroSchema | None) -> AvroSchema:
    """Return a reader's form that also has the fields of a column which no schema had yet, without their types."""
    name = AVRO_OF.get(type(column), "")
    if not name or (reader is not None and avro_type(not_null(reader)) != name):
        return reader or "null"
    reader_parts = parts(reader)
    found = {step: with_names_of(part, reader_parts.get(step)) for step, part in spark_types.parts(column).items()}
    return made_of(reader or AvroType(type=name), reader_parts | found)


def _spoken(column: IcebergType) -> str:
    return in_spark(column).replace("`", "")
