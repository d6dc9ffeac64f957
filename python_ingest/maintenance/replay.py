"""Dead letters, records whose value or key could not be decoded: counted by reason, listed, replayed after a fix.

A replay changes rows in place (rewrite.replace_rows): they keep position and bytes, and get their payload and a new
batch number, by which downstream models find them. An erased row, which has no bytes, is no dead letter.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from pyiceberg.table import Table
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from python_common.catalog.catalog import existing_columns, read_batches
from python_common.catalog.commits import until_committed
from python_common.log import log
from python_ingest.bronze import erased, rewrite, tables
from python_ingest.bronze.schema_state import Decoders, SchemaState
from python_ingest.landing import decode
from python_ingest.landing.batch import BatchWriter
from python_ingest.landing.decode import Batch

# Bytes that only look like registry Avro can name a million ids.
MOST_IDS = 1_000
POSITION = ("kafka_generation", "kafka_partition", "kafka_offset")
ERRORS = {"value": "decode_error", "key": "key_error"}


@dataclass(frozen=True)
class DeadLetters:
    """The number of rows with one reason and schema id in their values or keys (`part`); `detail` is of the first."""

    reason: str
    schema_id: int | None
    rows: int
    part: str
    detail: str


@dataclass(frozen=True)
class Replayed:
    """The number of rows with an error in value or key that were read, and of those that lost one."""

    looked_at: int
    decoded: int


def summary(table: Table) -> list[DeadLetters]:
    """Count dead letters by reason and schema id, the most frequent first, without reading payloads."""
    counts: Counter[tuple[str, str, int | None]] = Counter()
    details: dict[tuple[str, str, int | None], str] = {}
    for part, column in ERRORS.items():
        for row in _rows(table, erased.failed(column), (column, f"{part}_schema_id")):
            reason, _, detail = row[column].partition(": ")
            group = part, reason, row[f"{part}_schema_id"]
            counts[group] += 1
            details.setdefault(group, detail)
    return [
        DeadLetters(reason, schema_id, count, part, details[part, reason, schema_id])
        for (part, reason, schema_id), count in counts.most_common()
    ]


def raw(table: Table, limit: int) -> list[dict[str, Any]]:
    """Return dead letters with position, messages, key and value in hexadecimal. This shows payloads."""
    columns = tuple(ERRORS.values())
    names = existing_columns(table, (*POSITION, *columns, "kafka_raw_key", "kafka_raw_value"))
    rows = _rows(table, _any(map(erased.failed, columns)), names, limit)
    return [{name: cell.hex() if isinstance(cell, bytes) else cell for name, cell in row.items()} for row in rows]


def replay(batch_writer: BatchWriter, reason: str | None) -> Replayed:
    """Decode the dead letters of a table again, all or those of one reason.

    Raises:
        UserError: the table is missing, the registry is unavailable, Spark fails, or other commits come first.
    """
    condition = _dead(reason)
    tables.existing(batch_writer.catalog, batch_writer.declaration)

    def replayed() -> Replayed:
        table = tables.prepared(batch_writer.catalog, batch_writer.declaration)
        values, keys = Counter[int | None](), Counter[int | None]()
        for row in _rows(table, condition, ("value_schema_id", "key_schema_id")):
            values[row["value_schema_id"]] += 1
            keys[row["key_schema_id"]] += 1
        looked_at = values.total()
        if not looked_at:
            return Replayed(0, 0)
        state = SchemaState.of(table)
        decoders = batch_writer.schemas.resolve_schemas(state, values, keys, MOST_IDS)
        if decoders.state != state:
            table = tables.evolve(table, batch_writer.declaration, decoders.state)
        return Replayed(looked_at, _replace(batch_writer, table, decoders, reason))

    with rewrite.hold(batch_writer.catalog, batch_writer.declaration.identifier):
        return until_committed(
            replayed,
            f"{batch_writer.declaration.identifier}: nothing was replayed, other commits came first",
            "Replay when the ingester of this topic has caught up",
        )


class Recovery:
    """Replays dead letters whose schemas have been registered since."""

    def __init__(self) -> None:
        self._seeded: set[str] = set()

    def __call__(self, batch_writer: BatchWriter) -> None:
        """Replay those of a topic; raises as `replay`. The first call reads the ids of its dead letters."""
        registry, topic = batch_writer.schemas.registry, batch_writer.declaration.topic
        missing: list[int] = []
        if topic not in self._seeded:
            letters = summary(tables.existing(batch_writer.catalog, batch_writer.declaration))
            ids = [letter.schema_id for letter in letters if letter.reason == "unknown_schema_id"]
            missing = [schema_id for schema_id in ids if schema_id is not None and schema_id >= 0][:MOST_IDS]
        recovered = registry.recovered(missing)
        self._seeded.add(topic)
        if recovered and (decoded := replay(batch_writer, "unknown_schema_id").decoded):
            log.info(f"{topic}: {decoded:,} dead letters are decoded: their schemas are registered now")
        registry.forget_missing(recovered)


def _replace(batch_writer: BatchWriter, table: Table, decoders: Decoders, reason: str | None) -> int:
    """Replace the rows of which more can be decoded, and return their number."""
    ids = tuple(sorted(decoders.value.writers))
    declaration = replace(batch_writer.declaration, on_error="dead_letter")

    def decoded(landed: DataFrame, number: int) -> DataFrame:
        dead, batch = landed.where(_dead(reason)), Batch(number, datetime.now(UTC))
        return _with_fewer_errors(decode.rows(_as_records(dead), declaration, decoders, batch), dead)

    where = "landed.decode_error is not null or landed.key_error is not null"
    return rewrite.replace_rows(batch_writer.spark(), table, batch_writer.writer, decoded, where, rewrite.REPLAY, ids)


def _dead(reason: str | None) -> str:
    like = "is not null" if reason is None else f"like '{reason}:%'"
    return _any(f"{column} {like} and kafka_raw_{part} is not null" for part, column in ERRORS.items())


def _any(conditions: Iterable[str]) -> str:
    return " or ".join(f"({condition})" for condition in conditions)


def _with_fewer_errors(rows: DataFrame, dead: DataFrame) -> DataFrame:
    """Return the rows of which value or key can be decoded now, and neither got worse."""
    before = dead.selectExpr(
        "kafka_generation as _generation",
        "kafka_partition as _partition",
        "kafka_offset as _offset",
        "decode_error as _decode",
        "key_error as _key",
    )
    same = "kafka_generation <=> _generation and kafka_partition = _partition and kafka_offset = _offset"
    better = "(_decode is not null and decode_error is null) or (_key is not null and key_error is null)"
    not_worse = "(_decode is not null or decode_error is null) and (_key is not null or key_error is null)"
    rows_with_errors = rows.join(before, F.expr(same))
    return rows_with_errors.where(f"({better}) and {not_worse}").select(*rows.columns)


def _as_records(dead: DataFrame) -> DataFrame:
    return dead.selectExpr(
        "kafka_topic as topic",
        "kafka_generation as generation",
        "kafka_partition as partition",
        "kafka_offset as offset",
        "kafka_timestamp as timestamp",
        "kafka_timestamp_type as timestampType",
        "kafka_headers as headers",
        "kafka_raw_key as key",
        "kafka_raw_value as value",
    )


def _rows(table: Table, condition: str, names: tuple[str, ...], limit: int | None = None) -> Iterator[dict[str, Any]]:
    for batch in read_batches(table, condition, names, limit):
        yield from batch.select(names).to_pylist()
