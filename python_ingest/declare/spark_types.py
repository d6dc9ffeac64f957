"""Iceberg's types and Spark's text for them; field ids are placeholders."""

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
COLUMN_TYPES = {exp.DataType.build(name, dialect="spark").this: column for column, name in SPARK_NAMES.items()}


def struct(fields: Mapping[str, IcebergType]) -> StructType:
    """Return the struct of optional fields."""
    return StructType(*(NestedField(-1, name, column, required=False) for name, column in fields.items()))


def children(column: IcebergType | None) -> dict[str, IcebergType]:
    """Return what a type is made of, by the name of the step down to it; {} if it has no parts.

    These are the fields of a struct, the `element` of a list, the `value` of a map.
    """
    match column:
        case StructType():
            return {field.name: field.field_type for field in column.fields}
        case ListType():
            return {"element": column.element_type}
        case MapType():
            return {"value": column.value_type}
    return {}


def with_children(column: IcebergType, types: Mapping[str, IcebergType]) -> IcebergType:
    """Return a type with other parts, as `children` names them, and placeholders for its field ids."""
    match column:
        case StructType():
            return struct(types)
        case ListType():
            return list_of(types["element"])
        case MapType():
            return map_of(types["value"])
    return column


def of_spark(text: str) -> IcebergType:
    """Return the type that Spark's text names, for instance `array<struct<sku: string, price: decimal(10,2)>>`.

    Raises:
        ValueError: the type is invalid, or no column of a bronze table has it.
    """
    try:
        return _of_sqlglot(exp.DataType.build(text, dialect="spark"))
    except (SqlglotError, AttributeError):
        raise ValueError(f"'{text}' is not a type") from None


def in_spark(column: IcebergType) -> str:
    """Return Spark's text for a type."""
    if isinstance(column, StructType):
        return f"struct<{', '.join(f'`{name}`: {in_spark(part)}' for name, part in children(column).items())}>"
    if isinstance(column, ListType):
        return f"array<{in_spark(column.element_type)}>"
    if isinstance(column, MapType):
        return f"map<string, {in_spark(column.value_type)}>"
    if isinstance(column, DecimalType):
        return f"decimal({column.precision}, {column.scale})"
    return SPARK_NAMES[column]


def list_of(element: IcebergType) -> ListType:
    """Return the array of elements that may be NULL."""
    return ListType(-1, element, element_required=False)


def map_of(value: IcebergType) -> MapType:
    """Return the map from strings to values that may be NULL."""
    return MapType(-1, StringType(), -1, value, value_required=False)


def _of_sqlglot(parsed: exp.DataType) -> IcebergType:
    text = parsed.sql("spark").lower()
    match parsed.this:
        case exp.DataType.Type.STRUCT if parsed.expressions:
            if not all(isinstance(field, exp.ColumnDef) for field in parsed.expressions):
                raise ValueError(f"'{text}' has a field without name and type")
            return struct({field.name: _of_sqlglot(field.args["kind"]) for field in parsed.expressions})
        case exp.DataType.Type.ARRAY if len(parsed.expressions) == 1:
            return list_of(_of_sqlglot(parsed.expressions[0]))
        case exp.DataType.Type.MAP if len(parsed.expressions) == 2:
            key, value = map(_of_sqlglot, parsed.expressions)
            if key != StringType():
                raise ValueError(f"'{text}' has keys that are not strings")
            return map_of(value)
        case exp.DataType.Type.DECIMAL if parsed.expressions:
            precision, scale = ([int(number.name) for number in parsed.expressions] + [0])[:2]
            if 0 < precision <= 38 and 0 <= scale <= precision:
                return DecimalType(precision, scale)
    if parsed.this in COLUMN_TYPES and not parsed.expressions:
        return COLUMN_TYPES[parsed.this]
    raise ValueError(f"'{text}' is not a type of a bronze table")
