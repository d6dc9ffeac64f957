"""The columns that a schema's fields land in: their names, their types, and which type holds the values of two."""

from pyiceberg.types import DecimalType, IcebergType, ListType, MapType, StructType

from python_ingest.avro.expanded_schema import PRIMITIVES
from python_ingest.avro.types import AvroField, AvroSchema, AvroType
from python_ingest.avro.versions import Versions, column_type
from python_ingest.avro.walk import (
    WIDER_NUMBERS,
    IncompatibleSchema,
    avro_type,
    below,
    children,
    fields,
    holds_nothing,
    is_name,
    not_null,
    omitted,
    optional,
)
from python_ingest.declare import spark_types
from python_ingest.declare.spark_types import in_spark, list_of, map_of, struct
from python_ingest.declare.table_layout import METADATA_COLUMNS, RESERVED

# Spark reads no Iceberg time and has no nanoseconds: those columns are numbers, in the unit that Avro names.
SPARK_TYPES = {
    "boolean": "boolean",
    "int": "int",
    "long": "bigint",
    "float": "float",
    "double": "double",
    "bytes": "binary",
    "string": "string",
    "date": "date",
    "time-millis": "int",
    "time-micros": "bigint",
    "timestamp": "timestamp",
    "timestamp-nanos": "bigint",
    "local-timestamp": "timestamp_ntz",
    "local-timestamp-nanos": "bigint",
}
COLUMN_TYPES = {name: spark_types.of_spark(text) for name, text in SPARK_TYPES.items()}
AVRO_OF: dict[IcebergType, AvroSchema] = {
    **{column: name for name, column in COLUMN_TYPES.items() if name in PRIMITIVES},
    COLUMN_TYPES["date"]: {"type": "int", "logicalType": "date"},
    COLUMN_TYPES["timestamp"]: {"type": "long", "logicalType": "timestamp-micros"},
    COLUMN_TYPES["local-timestamp"]: {"type": "long", "logicalType": "local-timestamp-micros"},
}
LARGEST_DECIMAL_BYTES = 16
# Spark takes 64 bits of a decimal with fewer digits, however long its bytes are.
EXACT_DIGITS = 19
LONG_BYTES = 8
WIDER = {(COLUMN_TYPES[one], COLUMN_TYPES[other]): COLUMN_TYPES[wider] for (one, other), wider in WIDER_NUMBERS.items()}


def of_avro(schema: AvroSchema) -> IcebergType:
    """Return the type that holds a schema's values; field ids are placeholders, as in all types of this module."""
    some = not_null(schema)
    landed = column_type(some)
    if isinstance(some, dict) and landed == "decimal":
        return DecimalType(some["precision"], some["scale"])
    if landed in ("record", "union"):
        return struct({name: of_avro(part) for name, part in children(some).items() if not holds_nothing(part)})
    if landed == "array":
        return list_of(of_avro(children(some)["element"]))
    return map_of(of_avro(children(some)["value"])) if landed == "map" else COLUMN_TYPES[landed]


def reader_schema(column: IcebergType, writer: AvroSchema | None, path: str = "of") -> AvroSchema:
    """Return the schema by which Avro reads a writer's values in the shape of a column, null where they have no field.

    Spark then has one type for the values of all writers. Where Avro cannot convert, or would misread a logical type,
    the type is the writer's: of an enum, a fixed, a time. A decimal that may exceed 64 bits has the digits of `exact`.
    `path` names the types that the writer lacks.
    """
    some = not_null(writer or "null")
    written_fields = {name.lower(): (name, part) for name, part in children(some).items()}
    schemas: dict[str, AvroSchema] = {}
    for number, (name, part) in enumerate(spark_types.children(column).items()):
        _, written = written_fields.get(name.lower(), (name, None))
        if isinstance(some, list) and written is None:
            schemas[name] = _absent_branch(name.lower(), part, f"{path}.c{number}")
        else:
            schemas[name] = reader_schema(part, written, f"{path}.c{number}")
    if isinstance(some, list):
        return [*schemas.values()]
    match column:
        case StructType():
            fields = []
            for number, (name, schema) in enumerate(schemas.items()):
                # What only a source declares may have a name that Avro does not allow.
                field_name = name if name.lower() in written_fields or is_name(name) else f"c{number}"
                field = AvroField(name=field_name, type=optional(schema), default=None)
                if (written_name := written_fields.get(name.lower(), (name, None))[0]) != name:
                    field["aliases"] = [written_name]
                fields.append(field)
            return {**(some if isinstance(some, dict) else AvroType(type="record", name=path)), "fields": fields}
        case ListType():
            return {"type": "array", "items": optional(schemas["element"])}
        case MapType():
            return {"type": "map", "values": optional(schemas["value"])}
    if isinstance(some, str) and (some == "null" or (COLUMN_TYPES[some], column) in WIDER):
        return _avro_of(column)
    if isinstance(some, dict) and "precision" in some and some.get("size", EXACT_DIGITS) > LONG_BYTES:
        some = {**some, "precision": max(some["precision"], EXACT_DIGITS)}
    return some


def exact(column: IcebergType) -> IcebergType:
    """Return a type whose decimals have as many digits as Spark reads exactly."""
    if isinstance(column, DecimalType):
        return DecimalType(max(column.precision, EXACT_DIGITS), column.scale)
    return spark_types.with_children(column, {name: exact(part) for name, part in spark_types.children(column).items()})


def _avro_of(column: IcebergType) -> AvroSchema:
    """Return an Avro type of a column without parts."""
    if isinstance(column, DecimalType):
        return {"type": "bytes", "logicalType": "decimal", "precision": column.precision, "scale": column.scale}
    return AVRO_OF[column]


def _absent_branch(member: str, column: IcebergType, path: str) -> AvroSchema:
    """Return the branch of a union that a writer's lacks, of the name that the column's field has."""
    name = member.removeprefix("member_")
    schema = reader_schema(column, None, f"{path}.{name}")
    kind = avro_type(schema)
    if name in (kind, "array", "map") or kind == "record":
        return schema
    if name in PRIMITIVES:
        return name
    named = AvroType(type="enum", name=f"{path}.{name}", symbols=["absent"])
    if kind == "bytes":
        named = AvroType(type="fixed", name=f"{path}.{name}", size=LARGEST_DECIMAL_BYTES)
    return {**schema, **named} if isinstance(schema, dict) else named


def widened(current: IcebergType, more: IcebergType, path: str = "") -> IcebergType:
    """Return the type that holds the values of both. Fields match by name, whose case is `current`'s.

    Raises:
        IncompatibleSchema: no type does; it names the field.
    """
    if current == more:
        return current
    if isinstance(current, StructType) and isinstance(more, StructType):
        return widened_columns(current, more, path)
    of_current, of_more = spark_types.children(current), spark_types.children(more)
    if of_current and type(current) is type(more) and of_current.keys() == of_more.keys():
        return spark_types.with_children(
            current, {name: widened(of_current[name], of_more[name], below(path, name)) for name in of_current}
        )
    if isinstance(current, DecimalType) and isinstance(more, DecimalType) and current.scale == more.scale:
        return DecimalType(max(current.precision, more.precision), current.scale)
    wider = WIDER.get((current, more)) or WIDER.get((more, current))
    if wider is None:
        raise IncompatibleSchema(path, f"{_display_name(more)} does not fit the column's type {_display_name(current)}")
    return wider


def widened_columns(current: StructType, more: StructType, path: str = "") -> StructType:
    """Return the columns, or fields, that hold the values of both; raises as `widened`."""
    fields = spark_types.children(current)
    names = {name.lower(): name for name in fields}
    for other, column in spark_types.children(more).items():
        name = names.get(other.lower(), other)
        fields[name] = widened(fields.get(name, column), column, below(path, name))
    return struct(fields)


def plain(column: IcebergType) -> IcebergType:
    """Return a table's type with placeholders for its field ids, so that it can be compared."""
    return spark_types.with_children(column, {name: plain(part) for name, part in spark_types.children(column).items()})


def _display_name(column: IcebergType) -> str:
    return in_spark(column).replace("`", "")


def decoded_columns(columns: StructType, key_format: str | None) -> StructType:
    """Return those of a table's or a declaration's columns that are decoded: the payload's, and an Avro `kafka_key`."""
    return struct(
        {
            name: plain(column)
            for name, column in spark_types.children(columns).items()
            if name.lower() not in METADATA_COLUMNS or (name == "kafka_key" and key_format == "avro")
        }
    )


def landed_columns(side: str, writer: AvroSchema) -> StructType:
    """Return the columns that hold the values or keys (`side`) of an expanded schema; raises as `landed_record`."""
    return struct(spark_types.children(of_avro(landed_record(side, writer))))


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
