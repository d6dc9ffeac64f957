"""Kafka records become bronze rows: Spark expressions that no byte of a record can make fail.

The one exception is deliberate: a schema id that the decoder was not told of fails the job before
anything is committed, so that the caller can look it up and try again. In the common case, no new
id, a batch is read once. With `on_error: stop` a record that cannot be decoded fails it as well.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import reduce

from pyiceberg.types import IcebergType, ListType, MapType, StructType
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.avro.functions import from_avro

from python_ingest import spark_types
from python_ingest.kafka.avro_schema import AvroSchema
from python_ingest.kafka.wire_format import HEADER_BYTES
from python_ingest.schema import merge
from python_ingest.schema.avro import avro_type, not_null, optional, parts
from python_ingest.schema.columns import landed_columns, landed_name
from python_ingest.schema.state import Side, Sides
from python_ingest.topics import Declaration

NEW_SCHEMA_ID = "ingest: new schema id"
STOPPED = "ingest: stopped at"
STOPPED_END = "(end)"
# What a decode_error or key_error begins with.
REASONS = (
    *("not_registry_avro", "unknown_schema_id", "foreign_schema", "incompatible_schema", "decode_failed"),
    "timestamp_out_of_range",
)
FAR_STAMP = "timestamp_out_of_range: stamped after the year 294247, as in nanoseconds"


@dataclass(frozen=True)
class Batch:
    """What the rows of one batch share."""

    number: int
    ingested_at: datetime
    generation: int = 0


def rows(records: DataFrame, declaration: Declaration, sides: Sides, batch: Batch) -> DataFrame:
    """Return the bronze rows of Kafka records, as Spark's Kafka source gives them; a replay adds their generation."""
    value, key = sides.value, sides.key
    avro_key = declaration.key == "avro"
    envelopes = {"_value": _envelope("value", value)}
    # A record that is stamped later than Spark can hold comes without its stamp: far_stamps.py.
    stamped = F.col("timestamp").isNotNull()
    valid = {"_value": F.when(stamped, _only_valid("_value", value))}
    if avro_key:
        envelopes["_key"] = _envelope("key", key)
        valid["_key"] = _only_valid("_key", key)
    raw = F.lit(True)
    if declaration.on_error == "skip":
        raw = (F.col("value").isNull() & stamped) | F.col("_value.decoded").isNotNull()
    error = F.when(stamped, _error("value", value)).otherwise(F.lit(FAR_STAMP))
    key_error = _error("key", key) if avro_key else F.lit(None).cast("string")
    if declaration.on_error == "stop":
        error = _stop_on(error)
        key_error = _stop_on(F.concat(F.lit("key: "), key_error))
    generation = F.col("generation") if "generation" in records.columns else F.lit(batch.generation or None)
    return (
        records.withColumns(envelopes)
        .withColumns(valid)
        .select(
            *_payload(value, sides.columns),
            F.col("topic").alias("kafka_topic"),
            generation.cast("int").alias("kafka_generation"),
            F.col("partition").alias("kafka_partition"),
            F.col("offset").alias("kafka_offset"),
            F.col("timestamp").alias("kafka_timestamp"),
            F.col("timestampType").alias("kafka_timestamp_type"),
            F.when(raw, F.col("headers")).alias("kafka_headers"),
            *(F.when(raw, key_column).alias("kafka_key") for key_column in _key(key, declaration.key, sides.columns)),
            F.when(raw, F.col("key")).alias("kafka_raw_key"),
            F.when(raw, F.col("value")).alias("kafka_raw_value"),
            (_schema_id("key", key) if avro_key else F.lit(None).cast("int")).alias("key_schema_id"),
            _schema_id("value", value).alias("value_schema_id"),
            error.alias("decode_error"),
            key_error.alias("key_error"),
            _passed_in(F.lit(batch.number).cast("long")).alias("ingest_batch"),
            _passed_in(F.lit(batch.ingested_at.isoformat()).cast("timestamp")).alias("ingested_at"),
        )
    )


def _passed_in(constant: Column) -> Column:
    """Return a constant that changes from batch to batch.

    Spark writes a plain number into the code it generates, and would compile every batch anew; an
    array is passed to compiled code, if the place in it is not a constant as well.
    """
    return F.array(constant)[F.col("partition") * 0]


def _envelope(column: str, side: Side) -> Column:
    """Decode a column into struct<payload, decoded>; `decoded` is NULL where it failed.

    A record with one field is encoded as that field is, so every payload can be wrapped; from_avro
    gives a struct of NULLs on failure, so the reader adds a field that no writer has.
    """
    body = F.expr(f"substring({column}, {HEADER_BYTES + 1})")
    cases = []
    for schema_id, writer in sorted(side.writers.items()):
        payload = optional(merge.read_as(side.reader or writer, writer))
        fields = [
            {"name": "payload", "type": payload, "default": None},
            {"name": "decoded", "type": "boolean", "default": True},
        ]
        options = {
            "mode": "PERMISSIVE",
            "avroSchema": json.dumps({"type": "record", "name": "envelope", "fields": fields}),
            "enableStableIdentifiersForUnionType": "true",
        }
        wrapped = {"type": "record", "name": "envelope", "fields": [{"name": "payload", "type": writer}]}
        mine = _header(column) == F.lit(_header_bytes(schema_id))
        cases.append((mine, from_avro(body, json.dumps(wrapped), options)))
    if not cases:
        return F.lit(None).cast("struct<payload: boolean, decoded: boolean>")
    # Where the types of one column differ by writer, Spark casts each case to the widest of them.
    return reduce(lambda chain, case: chain.when(*case), cases[1:], F.when(*cases[0]))


def _only_valid(envelope: str, side: Side) -> Column:
    """Return NULL instead of an envelope with a string that is not UTF-8, on which many readers would fail."""
    is_utf8 = _is_utf8(F.col(f"{envelope}.payload"), side.reader) if side.reader is not None else None
    return F.col(envelope) if is_utf8 is None else F.when(is_utf8, F.col(envelope))


def _is_utf8(column: Column, schema: AvroSchema) -> Column | None:
    """Return whether every string in a column is UTF-8; None if it holds no strings."""
    below = parts(schema)
    found: list[Column | None]
    match avro_type(not_null(schema)):
        case "string":
            found = [F.is_valid_utf8(column)]
        case "array":
            found = [_items_are_utf8(column, below["element"])]
        case "map":
            keys, values = F.map_keys(column), F.map_values(column)
            found = [_items_are_utf8(keys, "string"), _items_are_utf8(values, below["value"])]
        case _:
            found = [_is_utf8(column[name], part) for name, part in below.items()]
    present = [F.coalesce(valid, F.lit(True)) for valid in found if valid is not None]
    return reduce(lambda left, right: left & right, present) if present else None


def _items_are_utf8(array: Column, items: AvroSchema) -> Column | None:
    def is_valid(item: Column) -> Column:
        valid = _is_utf8(item, items)
        return F.lit(True) if valid is None else F.coalesce(valid, F.lit(True))

    return None if _is_utf8(F.lit(None), items) is None else F.forall(array, is_valid)


def _payload(side: Side, columns: StructType) -> list[Column]:
    payload = F.col("_value.payload")
    is_record = side.reader is not None and avro_type(side.reader) == "record"
    landed = {landed_name(name): payload[name] for name in parts(side.reader)} if is_record else {"value": payload}
    return _held(landed, landed_columns("value", side.reader), columns, without="kafka_key")


def _key(side: Side, key_format: str, columns: StructType) -> list[Column]:
    if key_format == "string":
        return [F.try_validate_utf8(F.col("key").cast("string"))]
    if key_format == "bytes":
        return [F.col("key")]
    own = StructType(*(field for field in columns.fields if field.name == "kafka_key"))
    # A table has no column for Avro keys that no source declares, before the first of them: tables.table_schema.
    return _held({"kafka_key": F.col("_key.payload")}, landed_columns("key", side.reader), own)


def _held(landed: Mapping[str, Column], types: StructType, columns: StructType, without: str = "") -> list[Column]:
    """Return columns of a table, filled from those that are landed; NULL where there is none."""
    nothing: tuple[Column, IcebergType | None] = F.lit(None), None
    found = {name.lower(): (landed[name], own) for name, own in spark_types.parts(types).items()}
    return [
        _as(*found.get(name.lower(), nothing), held).alias(name)
        for name, held in spark_types.parts(columns).items()
        if name != without
    ]


def _as(column: Column, own: IcebergType | None, held: IcebergType) -> Column:
    """Return a column of one type as the wider type of a table's column: fields that it lacks are NULL."""
    if own == held:
        return column
    match own, held:
        case StructType(), StructType():
            fields = _held({field.name: column[field.name] for field in own.fields}, own, held)
            return F.when(column.isNotNull(), F.struct(*fields))
        case ListType(), ListType():
            return F.transform(column, lambda item: _as(item, own.element_type, held.element_type))
        case MapType(), MapType():
            return F.transform_values(column, lambda _, item: _as(item, own.value_type, held.value_type))
    return column.cast(spark_types.in_spark(held))


def _schema_id(column: str, side: Side) -> Column:
    """Return the id in a header, by comparison for the known ones: cheaper than computing it.

    A header with an id that the side was not told of fails the job.
    """
    schema_id = F.when(~_has_header(column), F.lit(None).cast("int"))
    for known in sorted(side.writers):
        schema_id = schema_id.when(_header(column) == F.lit(_header_bytes(known)), F.lit(known))
    others = sorted({*side.rejected, *side.unknown})
    found = _id_in_header(column)
    schema_id = schema_id.when(found.isNull(), F.lit(None).cast("int"))
    if side.too_many:
        return schema_id.otherwise(found)
    if others:
        schema_id = schema_id.when(found.isin(others), found)
    return schema_id.otherwise(F.raise_error(F.lit(NEW_SCHEMA_ID)).cast("int"))


def _error(column: str, side: Side) -> Column:
    """Return NULL or `code: detail` for keys or values; a detail never holds a byte of them."""
    found = _id_in_header(column)
    error = (
        F.when(F.col(column).isNull() | F.col(f"_{column}.decoded"), F.lit(None).cast("string"))
        .when(F.length(column) < HEADER_BYTES, F.lit("not_registry_avro: shorter than 5 bytes"))
        .when(~_has_header(column), F.lit("not_registry_avro: the first byte is not 0"))
    )
    for schema_id, text in sorted(side.rejected.items()):
        error = error.when(found == schema_id, F.lit(text))
    unknown = F.concat(F.lit("unknown_schema_id: schema id "), found.cast("string"))
    if side.too_many:
        asked = found.isin(sorted(side.unknown))
        unknown = F.when(asked, unknown).otherwise(F.concat(unknown, F.lit(", one of too many to ask for")))
    if side.writers:
        failed = F.concat(F.lit("decode_failed: schema id "), found.cast("string"))
        error = error.when(found.isin(sorted(side.writers)), failed)
    return error.otherwise(F.coalesce(unknown, F.lit("unknown_schema_id: the id is negative")))


def _stop_on(error: Column) -> Column:
    place = F.concat_ws(" ", F.lit(STOPPED), "partition", "offset", error, F.lit(STOPPED_END))
    return F.when(error.isNotNull(), F.raise_error(place).cast("string"))


def _header(column: str) -> Column:
    return F.substring(column, 1, HEADER_BYTES)


def _header_bytes(schema_id: int) -> bytearray:
    return bytearray(b"\x00" + schema_id.to_bytes(4, "big"))


def _has_header(column: str) -> Column:
    starts_with_zero = F.substring(column, 1, 1) == F.lit(bytearray(b"\x00"))
    return F.coalesce(starts_with_zero & (F.length(column) >= HEADER_BYTES), F.lit(False))


def _id_in_header(column: str) -> Column:
    """Return the four bytes after the magic byte as an int, NULL for a negative one."""
    return F.expr(f"try_cast(conv(hex(substring({column}, 2, 4)), 16, 10) as int)")
