"""Column types: from Avro and from Spark's text to Iceberg, and which type holds the values of two."""

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
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
)
from sqlglot import exp
from sqlglot.errors import SqlglotError

from python_ingest.schema import merge, writer_form
from python_ingest.schema.writer_form import IncompatibleSchema, Json, inside

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
SPARK_NAMES: dict[IcebergType, str] = {
    BooleanType(): "boolean",
    IntegerType(): "int",
    LongType(): "bigint",
    FloatType(): "float",
    DoubleType(): "double",
    BinaryType(): "binary",
    StringType(): "string",
    DateType(): "date",
    TimestamptzType(): "timestamp",
    TimestampType(): "timestamp_ntz",
}
NO_COLUMNS = StructType()
OF_SPARK = {exp.DataType.build(name, dialect="spark").this: column for column, name in SPARK_NAMES.items()}
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
            return _list(of_avro(some["items"]))
        case "map":
            return _map(of_avro(some["values"]))
        case "decimal":
            return DecimalType(some["precision"], some["scale"])
    return OF_AVRO[held]


def struct_of_avro(fields: Mapping[str, Json]) -> StructType:
    """Return the struct of fields and their reader's schemas."""
    return struct({name: of_avro(schema) for name, schema in fields.items()})


def struct(fields: Mapping[str, IcebergType]) -> StructType:
    """Return the struct of optional fields."""
    return StructType(*(NestedField(-1, name, column, required=False) for name, column in fields.items()))


def of_spark(text: str) -> IcebergType:
    """Return the type that Spark's text names, for instance `array<struct<sku: string, price: decimal(10,2)>>`.

    Raises:
        ValueError: it is no type, or one that no column of a bronze table has.
    """
    try:
        return _of_sqlglot(exp.DataType.build(text, dialect="spark"))
    except (SqlglotError, AttributeError):
        raise ValueError(f"'{text}' is not a type") from None


def in_spark(column: IcebergType) -> str:
    """Return Spark's text for a type."""
    if isinstance(column, StructType):
        return f"struct<{', '.join(f'`{each.name}`: {in_spark(each.field_type)}' for each in column.fields)}>"
    if isinstance(column, ListType):
        return f"array<{in_spark(column.element_type)}>"
    if isinstance(column, MapType):
        return f"map<string, {in_spark(column.value_type)}>"
    if isinstance(column, DecimalType):
        return f"decimal({column.precision}, {column.scale})"
    return SPARK_NAMES[column]


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
            return _list(joined(held.element_type, more.element_type, inside(place, "element")))
        case MapType(), MapType():
            return _map(joined(held.value_type, more.value_type, inside(place, "value")))
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
        return _list(plain(column.element_type))
    return _map(plain(column.value_type)) if isinstance(column, MapType) else column


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


def _of_sqlglot(found: exp.DataType) -> IcebergType:
    text = found.sql("spark").lower()
    match found.this:
        case exp.DataType.Type.STRUCT if found.expressions:
            if not all(isinstance(each, exp.ColumnDef) for each in found.expressions):
                raise ValueError(f"'{text}' has a field without name and type")
            return struct({each.name: _of_sqlglot(each.args["kind"]) for each in found.expressions})
        case exp.DataType.Type.ARRAY if len(found.expressions) == 1:
            return _list(_of_sqlglot(found.expressions[0]))
        case exp.DataType.Type.MAP if len(found.expressions) == 2:
            key, value = map(_of_sqlglot, found.expressions)
            if key != StringType():
                raise ValueError(f"'{text}' has keys that are not strings")
            return _map(value)
        case exp.DataType.Type.DECIMAL if found.expressions:
            precision, scale = ([int(each.name) for each in found.expressions] + [0])[:2]
            if 0 < precision <= 38 and 0 <= scale <= precision:
                return DecimalType(precision, scale)
    if found.this in OF_SPARK and not found.expressions:
        return OF_SPARK[found.this]
    raise ValueError(f"'{text}' is not a type of a bronze table")


def _spoken(column: IcebergType) -> str:
    return in_spark(column).replace("`", "")


def _list(element: IcebergType) -> ListType:
    return ListType(-1, element, element_required=False)


def _map(value: IcebergType) -> MapType:
    return MapType(-1, StringType(), -1, value, value_required=False)
