"""Kafka records become bronze rows: Spark expressions that no byte of a record can make fail.

The one exception is deliberate: a schema id that the decoders do not know fails the job before
anything is committed, so that the caller can resolve it and try again. In the common case, no new
id, a batch is read once. With `on_error: stop` a record that cannot be decoded fails it as well.
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from functools import reduce
from operator import and_

from pyiceberg.types import DecimalType, IcebergType, ListType, MapType, StringType, StructType
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.avro.functions import from_avro

from python_ingest.avro.bounded import bounded
from python_ingest.avro.types import AvroSchema
from python_ingest.avro.walk import below, optional, walk
from python_ingest.bronze.column_types import EXACT_DIGITS, exact, landed_record, reader_schema
from python_ingest.bronze.schema_state import Decoder, Decoders
from python_ingest.declare import spark_types
from python_ingest.declare.spark_types import struct
from python_ingest.declare.topics import Declaration
from python_ingest.kafka.message import HEADER_BYTES, SCHEMA_HEADERS

Digits = tuple[tuple[str, int], ...]
SINGLE_OBJECT = bytearray(b"\xc3\x01")
NEW_SCHEMA_ID = "ingest: new schema id"
# What a decode_error or key_error begins with.
REASONS = (
    *("not_registry_avro", "unknown_schema_id", "foreign_schema", "incompatible_schema", "decode_failed"),
    *("timestamp_out_of_range", "unknown_framing"),
)
TIMESTAMP_OVERFLOW = "timestamp_out_of_range: beyond the years -290308 to 294247, as in nanoseconds"


@dataclass(frozen=True)
class Batch:
    """What the rows of one batch share."""

    number: int
    ingested_at: datetime
    generation: int = 0


def rows(records: DataFrame, declaration: Declaration, decoders: Decoders, batch: Batch) -> DataFrame:
    """Return the bronze rows of Kafka records, as Spark's Kafka source gives them; a replay adds their generation."""
    value, key = decoders.value, decoders.key
    avro_key = declaration.key == "avro"
    # A table has no column for Avro keys that no source declares, before the first of them: tables.table_schema.
    columns = spark_types.children(decoders.state.columns)
    key_columns = {name: columns.pop(name) for name in [*columns] if name == "kafka_key"}
    envelopes = {"_value": _envelope("value", value, struct(columns))}
    # A record whose timestamp exceeds Spark's range comes without it: timestamp_overflow.py.
    stamped = F.col("timestamp").isNotNull()
    valid = {"_value": F.when(stamped & ~_has_schema_header("value"), _only_valid("value", value, struct(columns)))}
    if avro_key:
        envelopes["_key"] = _envelope("key", key, struct(key_columns))
        valid["_key"] = F.when(~_has_schema_header("key"), _only_valid("key", key, struct(key_columns)))
    raw = F.lit(True)
    if declaration.on_error == "skip":
        raw = (F.col("value").isNull() & stamped) | F.col("_value.decoded").isNotNull()
    error = F.when(stamped, _error("value", value)).otherwise(F.lit(TIMESTAMP_OVERFLOW))
    key_error = _error("key", key) if avro_key else F.lit(None).cast("string")
    if declaration.on_error == "stop":
        error = _stop_on(error)
        key_error = _stop_on(F.concat(F.lit("key: "), key_error))
    generation = F.col("generation") if "generation" in records.columns else F.lit(batch.generation or None)
    return (
        records.withColumns(envelopes)
        .withColumns(valid)
        .select(
            *(F.col("_value.payload")[name].alias(name) for name in columns),
            F.col("topic").alias("kafka_topic"),
            generation.cast("int").alias("kafka_generation"),
            F.col("partition").alias("kafka_partition"),
            F.col("offset").alias("kafka_offset"),
            F.col("timestamp").alias("kafka_timestamp"),
            F.col("timestampType").alias("kafka_timestamp_type"),
            F.when(raw, F.col("headers")).alias("kafka_headers"),
            *(F.when(raw, decoded).alias("kafka_key") for decoded in _keys(declaration.key, key_columns)),
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

    Spark writes a plain number into the code it generates, and would compile every batch again; an
    array is passed to compiled code, if the index in it is not a constant as well.
    """
    return F.array(constant)[F.col("partition") * 0]


def _envelope(column: str, side: Decoder, columns: StructType) -> Column:
    """Decode a column into struct<payload: struct<columns>, decoded>; `decoded` is NULL where it failed.

    A record with one field is encoded as that field is, so every payload can be wrapped; from_avro
    gives a struct of NULLs on failure, so the reader adds a field that no writer has.
    """
    body = F.expr(f"substring({column}, {HEADER_BYTES + 1})")
    envelope = _envelope_type(exact(columns))
    cases = []
    # Most records have the newest.
    for schema_id, writer in sorted(side.writers.items(), reverse=True):
        payload = landed_record(column, writer)
        fields = [
            {"name": "payload", "type": optional(reader_schema(columns, payload)), "default": None},
            {"name": "decoded", "type": ["boolean", "null"], "default": True},
        ]
        options = {
            "mode": "PERMISSIVE",
            "avroSchema": json.dumps({"type": "record", "name": "envelope", "fields": fields}),
            "enableStableIdentifiersForUnionType": "true",
        }
        field = {"name": "payload", "type": bounded(payload)}
        wrapped = {"type": "record", "name": "envelope", "fields": [field]}
        # The cast does nothing, unless a type is the writer's.
        decoded = from_avro(body, json.dumps(wrapped), options).cast(envelope)
        cases.append((_header(column) == F.lit(_header_bytes(schema_id)), decoded))
    if not cases:
        return F.lit(None).cast(envelope)
    return reduce(lambda chain, case: chain.when(*case), cases[1:], F.when(*cases[0]))


def _envelope_type(payload: IcebergType) -> str:
    return f"struct<payload: {spark_types.in_spark(payload)}, decoded: boolean>"


def _only_valid(column: str, side: Decoder, columns: StructType) -> Column:
    """Return an envelope with the types of its columns, NULL if a value is invalid.

    Invalid are a string that is not UTF-8, on which many readers would fail, and a decimal of more digits than its
    writer's schema allows.
    """
    envelope = F.col(f"_{column}")
    ids_by_digits: dict[Digits, list[int]] = {}
    for schema_id, writer in side.writers.items():
        ids_by_digits.setdefault(_digits(landed_record(column, writer)), []).append(schema_id)
    cases = []
    for digits, ids in ids_by_digits.items():
        are_valid = reduce(and_, _are_valid(envelope.payload, columns, dict(digits)), F.lit(True))
        cases.append((_header(column).isin(*(F.lit(_header_bytes(schema_id)) for schema_id in ids)), are_valid))
    typed = envelope.cast(_envelope_type(columns)) if exact(columns) != columns else envelope
    if len(cases) < 2:
        return F.when(cases[0][1], typed) if cases else typed
    return F.when(reduce(lambda chain, case: chain.when(*case), cases[1:], F.when(*cases[0])), typed)


def _digits(writer: AvroSchema) -> Digits:
    """Return path and precision of each decimal that is read with more digits."""
    decimals = {path.lower(): some.get("precision") for path, some in walk(writer) if isinstance(some, dict)}
    return tuple((path, digits) for path, digits in decimals.items() if digits and digits < EXACT_DIGITS)


def _are_valid(column: Column, column_type: IcebergType, digits: dict[str, int], path: str = "") -> Iterator[Column]:
    """Yield conditions that hold if every value in a column is valid, none for one without strings and decimals."""
    match column_type:
        case StringType():
            yield F.coalesce(F.is_valid_utf8(column), F.lit(True))
        case DecimalType() if path.lower() in digits:
            greatest = Decimal(10 ** digits[path.lower()] - 1).scaleb(-column_type.scale)
            yield F.coalesce(column.between(F.lit(-greatest), F.lit(greatest)), F.lit(True))
        case ListType():
            yield from _items_are_valid(column, column_type.element_type, digits, below(path, "element"))
        case MapType():
            yield from _items_are_valid(F.map_keys(column), column_type.key_type, {}, path)
            yield from _items_are_valid(F.map_values(column), column_type.value_type, digits, below(path, "value"))
        case _:
            for name, part in spark_types.children(column_type).items():
                yield from _are_valid(column[name], part, digits, below(path, name))


def _items_are_valid(array: Column, items: IcebergType, digits: dict[str, int], path: str) -> Iterator[Column]:
    if [*_are_valid(F.lit(None), items, digits, path)]:
        are_valid = F.forall(array, lambda item: reduce(and_, _are_valid(item, items, digits, path)))
        yield F.coalesce(are_valid, F.lit(True))


def _keys(key_format: str, columns: Iterable[str]) -> list[Column]:
    if key_format == "string":
        return [F.try_validate_utf8(F.col("key").cast("string"))]
    if key_format == "bytes":
        return [F.col("key")]
    return [F.col("_key.payload")[name] for name in columns]


def _schema_id(column: str, side: Decoder) -> Column:
    """Return the id in a header, by comparison for the known ones: cheaper than computing it.

    A header with an id that the decoder does not know fails the job.
    """
    schema_id = F.when(~_has_header(column), F.lit(None).cast("int"))
    for known in sorted(side.writers, reverse=True):
        schema_id = schema_id.when(_header(column) == F.lit(_header_bytes(known)), F.lit(known))
    others = sorted({*side.rejected, *side.unknown})
    id_in_header = _id_in_header(column)
    schema_id = schema_id.when(id_in_header.isNull(), F.lit(None).cast("int"))
    if side.too_many:
        return schema_id.otherwise(id_in_header)
    if others:
        schema_id = schema_id.when(id_in_header.isin(others), id_in_header)
    return schema_id.otherwise(F.raise_error(F.lit(NEW_SCHEMA_ID)).cast("int"))


def _error(column: str, side: Decoder) -> Column:
    """Return NULL or `code: detail` for keys or values; a detail never holds a byte of them."""
    id_in_header = _id_in_header(column)
    error = (
        F.when(F.col(column).isNull() | F.col(f"_{column}.decoded"), F.lit(None).cast("string"))
        .when(_has_schema_header(column), F.lit("unknown_framing: the schema's id is in a header of the record"))
        .when(F.length(column) < HEADER_BYTES, F.lit("not_registry_avro: shorter than 5 bytes"))
        .when(F.substring(column, 1, 2) == F.lit(SINGLE_OBJECT), F.lit("not_registry_avro: single-object encoding"))
        .when(~_has_header(column), F.lit("not_registry_avro: the first byte is not 0"))
    )
    for schema_id, text in sorted(side.rejected.items()):
        error = error.when(id_in_header == schema_id, F.lit(text))
    unknown = F.concat(F.lit("unknown_schema_id: schema id "), id_in_header.cast("string"))
    unknown = F.when(id_in_header == 0, F.concat(unknown, F.lit(", as ids of 8 bytes begin"))).otherwise(unknown)
    if side.too_many:
        asked = id_in_header.isin(sorted(side.unknown))
        unknown = F.when(asked, unknown).otherwise(F.concat(unknown, F.lit(", one of too many to ask for")))
    if side.writers:
        failed = F.concat(F.lit("decode_failed: schema id "), id_in_header.cast("string"))
        error = error.when(id_in_header.isin(sorted(side.writers)), failed)
    return error.otherwise(F.coalesce(unknown, F.lit("unknown_schema_id: the id is negative")))


def _stop_on(error: Column) -> Column:
    stopped = F.to_json(F.struct("partition", "offset", error.alias("reason")))
    return F.when(error.isNotNull(), F.raise_error(stopped).cast("string"))


def _header(column: str) -> Column:
    return F.substring(column, 1, HEADER_BYTES)


def _header_bytes(schema_id: int) -> bytearray:
    return bytearray(b"\x00" + schema_id.to_bytes(4, "big"))


def _has_schema_header(column: str) -> Column:
    names = F.array(*map(F.lit, SCHEMA_HEADERS[column]))
    return F.coalesce(F.arrays_overlap(F.col("headers")["key"], names), F.lit(False))


def _has_header(column: str) -> Column:
    starts_with_zero = F.substring(column, 1, 1) == F.lit(bytearray(b"\x00"))
    return F.coalesce(starts_with_zero & (F.length(column) >= HEADER_BYTES), F.lit(False))


def _id_in_header(column: str) -> Column:
    """Return the four bytes after the magic byte as an int, NULL for a negative one."""
    return F.expr(f"try_cast(conv(hex(substring({column}, 2, 4)), 16, 10) as int)")
