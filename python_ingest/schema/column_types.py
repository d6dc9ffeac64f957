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

from python_ingest.schema import merge, writer_form
from python_ingest.schema.writer_form import IncompatibleSchema, Json, inside
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
WIDER = {(IntegerType(), LongType()): LongType(), (FloatType(), DoubleType()): DoubleType()}


def of_avro(schema: Json) -> IcebergType:
    """Return the type of a reader's schema; field ids are placeholders, as in all types of this module."""
    some = writer_form.not_null(schema)
    held = merge.column_kind(some)
    match held:
        case "record":
            return struct_of_avro({each["name"]: each["type"] for each in some["fields"]})
        case "union":
            return struct_of_avro({writer_form.member(branch): branch for branch in some})
        case "array":
            return list_of(of_avro(some["items"]))
        case "map":
            return map_of(of_avro(some["values"]))
        case "decimal":
            return DecimalType(some["precision"], some["scale"])
    return OF_AVRO[held]


def struct_of_avro(fields: Mapping[str, Json]) -> StructType:
    """Return the struct of fields and their reader's schemas."""
    return struct({name: of_avro(schema) for name, schema in fields.items()})


def joined(held: IcebergType, more: IcebergType, place: str = "") -> IcebergType:
    """Return the type that holds the values of both. Fields match by name, whose case is `held`'s.

    Raises:
        IncompatibleSchema: there is none; it names the field.
    """
    if held == more:
        return held
    match held, more:
        case StructType(), StructType():
            fields = {each.name: each.field_type for each in held.fields}
            names = {name.lower(): name for name in fields}
            for each in more.fields:
                name = names.get(each.name.lower(), each.name)
                fields[name] = joined(fields.get(name, each.field_type), each.field_type, inside(place, name))
            return struct(fields)
        case ListType(), ListType():
            return list_of(joined(held.element_type, more.element_type, inside(place, "element")))
        case MapType(), MapType():
            return map_of(joined(held.value_type, more.value_type, inside(place, "value")))
        case DecimalType(), DecimalType() if held.scale == more.scale:
            return DecimalType(max(held.precision, more.precision), held.scale)
    wider = WIDER.get((held, more)) or WIDER.get((more, held))
    if wider is None:
        raise IncompatibleSchema(place, f"{_spoken(more)} does not fit the column's type {_spoken(held)}")
    return wider


def plain(column: IcebergType) -> IcebergType:
    """Return a table's type with placeholders for its field ids, so that it can be compared."""
    if isinstance(column, StructType):
        return struct({each.name: plain(each.field_type) for each in column.fields})
    if isinstance(column, ListType):
        return list_of(plain(column.element_type))
    return map_of(plain(column.value_type)) if isinstance(column, MapType) else column


def with_names_of(column: IcebergType, reader: Json | None) -> Json:
    """Return a reader's form that also has the fields of a column which no schema had yet, without their types."""
    if isinstance(column, StructType) and (
        reader is None or writer_form.kind(writer_form.not_null(reader)) == "record"
    ):
        some = {"type": "record", "fields": []} if reader is None else writer_form.not_null(reader)
        fields = {each["name"]: each for each in some["fields"]}
        for each in column.fields:
            known = fields.get(each.name, {"name": each.name})
            fields[each.name] = known | {"type": with_names_of(each.field_type, known.get("type"))}
        return some | {"fields": list(fields.values())}
    if isinstance(column, ListType) and (reader is None or writer_form.kind(writer_form.not_null(reader)) == "array"):
        items = None if reader is None else writer_form.not_null(reader)["items"]
        return {"type": "array", "items": with_names_of(column.element_type, items)}
    if isinstance(column, MapType) and (reader is None or writer_form.kind(writer_form.not_null(reader)) == "map"):
        values = None if reader is None else writer_form.not_null(reader)["values"]
        return {"type": "map", "values": with_names_of(column.value_type, values)}
    return "null" if reader is None else reader


def _spoken(column: IcebergType) -> str:
    return in_spark(column).replace("`", "")
