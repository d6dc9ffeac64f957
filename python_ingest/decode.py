"""Kafka records become bronze rows: Spark expressions that no byte of a record can make fail.

The one exception is deliberate: a schema id that the decoder was not told of fails the job before
anything is committed, so that the caller can look it up and try again. In the common case, no new
id, a batch is read once. With `on_error: stop` a record that cannot be decoded fails it as well.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.avro.functions import from_avro

from python_ingest import avro, schemas, tables
from python_ingest.avro import Json
from python_ingest.topics import Declaration

NEW_SCHEMA_ID = "ingest: new schema id"
STOPPED = "ingest: stopped at"
STOPPED_END = "(end)"
HEADER_BYTES = 5
# What a decode_error begins with.
REASONS = ("not_registry_avro", "unknown_schema_id", "incompatible_schema", "decode_failed")


@dataclass(frozen=True)
class Side:
    """How the keys or the values of a topic are decoded.

    `reader` is the merge of the writers' schemas, by id in `writers`. `rejected` maps an id whose
    schema does not fit to the reason. `unknown` are the ids that the registry does not have.
    """

    reader: Json | None = None
    writers: Mapping[int, Json] = field(default_factory=dict)
    rejected: Mapping[int, str] = field(default_factory=dict)
    unknown: frozenset[int] = frozenset()

    def known(self, schema_id: int) -> bool:
        """Tell whether the registry has been asked for this id."""
        return schema_id in self.writers or schema_id in self.rejected or schema_id in self.unknown


@dataclass(frozen=True)
class Sides:
    """How a topic's records are decoded."""

    value: Side
    key: Side


@dataclass(frozen=True)
class Batch:
    """What the rows of one batch share."""

    number: int
    ingested_at: datetime


def rows(records: DataFrame, declaration: Declaration, sides: Sides, batch: Batch) -> DataFrame:
    """Return the bronze rows of Kafka records, as Spark's Kafka source gives them with headers."""
    value, key = sides.value, sides.key
    avro_key = declaration.key == "avro"
    envelopes = {"_value": _envelope("value", value)}
    valid = {"_value": _only_valid("_value", value)}
    if avro_key:
        envelopes["_key"] = _envelope("key", key)
        valid["_key"] = _only_valid("_key", key)
    raw = F.lit(True)
    if declaration.on_error == "skip":
        raw = F.col("value").isNull() | F.col("_value.decoded").isNotNull()
    error = _decode_error(value)
    if declaration.on_error == "stop":
        error = _stop_on(error)
    payload = [
        _payload_column("_value", value.reader, name).alias(tables.landed_name(name))
        for name in _field_names(value.reader)
    ]
    return (
        records.withColumns(envelopes)
        .withColumns(valid)
        .select(
            *payload,
            F.col("topic").alias("kafka_topic"),
            F.col("partition").alias("kafka_partition"),
            F.col("offset").alias("kafka_offset"),
            F.col("timestamp").alias("kafka_timestamp"),
            F.col("timestampType").alias("kafka_timestamp_type"),
            F.when(raw, F.col("headers")).alias("kafka_headers"),
            *_key(key, declaration.key),
            F.when(raw, F.col("key")).alias("kafka_raw_key"),
            F.when(raw, F.col("value")).alias("kafka_raw_value"),
            (_schema_id("key", key) if avro_key else F.lit(None).cast("int")).alias("key_schema_id"),
            _schema_id("value", value).alias("value_schema_id"),
            error.alias("decode_error"),
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
        payload = avro.optional(schemas.read_as(side.reader, writer))
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
    """Return NULL instead of an envelope with a string that is not UTF-8: many readers of the table
    would fail on it."""
    checks = _checks(F.col(f"{envelope}.payload"), side.reader) if side.reader is not None else None
    return F.col(envelope) if checks is None else F.when(checks, F.col(envelope))


def _checks(column: Column, schema: Json) -> Column | None:
    """Return whether every string in a column is UTF-8; None if it holds no strings."""
    schema = avro.not_null(schema)
    found: list[Column | None] = []
    match avro.kind(schema):
        case "string":
            found = [F.is_valid_utf8(column)]
        case "record":
            found = [_checks(column[each["name"]], each["type"]) for each in schema["fields"]]
        case "union":
            found = [_checks(column[avro.member(branch)], branch) for branch in schema]
        case "array":
            found = [_checks_inside(column, schema["items"])]
        case "map":
            found = [
                _checks_inside(F.map_keys(column), "string"),
                _checks_inside(F.map_values(column), schema["values"]),
            ]
    present = [F.coalesce(each, F.lit(True)) for each in found if each is not None]
    return reduce(lambda left, right: left & right, present) if present else None


def _checks_inside(array: Column, items: Json) -> Column | None:
    if _checks(F.lit(None), items) is None:
        return None
    return F.forall(array, lambda item: F.coalesce(_checks(item, items), F.lit(True)))


def _payload_column(envelope: str, reader: Json, name: str) -> Column:
    payload = F.col(f"{envelope}.payload")
    return payload[name] if avro.kind(reader) == "record" else payload


def _field_names(reader: Json | None) -> list[str]:
    if reader is None:
        return []
    if avro.kind(reader) != "record":
        return ["value"]
    return [each["name"] for each in reader["fields"]]


def _key(side: Side, key_format: str) -> list[Column]:
    if key_format == "string":
        return [F.try_validate_utf8(F.col("key").cast("string")).alias("kafka_key")]
    if key_format == "bytes":
        return [F.col("key").alias("kafka_key")]
    # A table has no column for Avro keys before the first of them: tables.table_schema.
    return [F.col("_key.payload").alias("kafka_key")] if side.reader is not None else []


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
    if others:
        schema_id = schema_id.when(found.isin(others), found)
    return schema_id.otherwise(F.raise_error(F.lit(NEW_SCHEMA_ID)).cast("int"))


def _decode_error(side: Side) -> Column:
    """Return NULL or `code: detail`; a detail never holds a byte of the payload."""
    found = _id_in_header("value")
    error = (
        F.when(F.col("value").isNull() | F.col("_value.decoded"), F.lit(None).cast("string"))
        .when(F.length("value") < HEADER_BYTES, F.lit("not_registry_avro: shorter than 5 bytes"))
        .when(~_has_header("value"), F.lit("not_registry_avro: the first byte is not 0"))
    )
    for schema_id, reason in sorted(side.rejected.items()):
        text = f"incompatible_schema: schema id {schema_id}, {reason}"
        error = error.when(found == schema_id, F.lit(text))
    unknown = F.concat(F.lit("unknown_schema_id: schema id "), found.cast("string"))
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
