"""Records that could not be decoded: counted by reason, listed, and decoded again after a fix.

A replay changes rows in place: they keep position and bytes, get their payload, and a new batch
number, by which readers downstream find them. It is exact for the same reason a batch is: the new
rows are written to a branch that starts at the base snapshot, and the table moves to the branch
only if it has not moved since. A replay that is cut off leaves a branch nobody reads, for a day.
"""

import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from py4j.protocol import Py4JError
from pyiceberg.expressions import And, BooleanExpression, NotNull, StartsWith
from pyiceberg.table import Table
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from lakehouse.catalog import readable
from lakehouse.errors import UserError
from lakehouse.settings import CATALOG_NAME
from python_ingest import commit, decode, peek, tables
from python_ingest.batch import Lander
from python_ingest.commit import Ledger
from python_ingest.decode import Batch, Sides
from python_ingest.offsets import PositionReader
from python_ingest.session import log_file
from python_ingest.tables import SchemaState

ATTEMPTS = 5


@dataclass(frozen=True)
class DeadLetters:
    """How many rows of a table have one reason and one schema id; `detail` is what their first message adds."""

    reason: str
    schema_id: int | None
    rows: int
    detail: str


@dataclass(frozen=True)
class Replayed:
    """The dead letters looked at, and how many of them are decoded rows now."""

    looked_at: int
    decoded: int


def summary(table: Table) -> list[DeadLetters]:
    """Count a table's dead letters by reason and schema id, the most frequent first. No payload is read."""
    counts: Counter[tuple[str, int | None]] = Counter()
    details: dict[tuple[str, int | None], str] = {}
    for row in _rows(table, NotNull("decode_error"), ("decode_error", "value_schema_id")):
        reason, _, detail = row["decode_error"].partition(": ")
        key = reason, row["value_schema_id"]
        counts[key] += 1
        details.setdefault(key, detail)
    return [DeadLetters(*key, count, details[key]) for key, count in counts.most_common()]


def raw(table: Table, limit: int) -> list[dict[str, Any]]:
    """Return dead letters with position, message, and key and value in hexadecimal. This shows payloads."""
    names = ("kafka_partition", "kafka_offset", "decode_error", "kafka_raw_key", "kafka_raw_value")
    found = []
    for row in _rows(table, NotNull("decode_error"), names, limit):
        found.append({name: part.hex() if isinstance(part, bytes) else part for name, part in row.items()})
    return found


def replay(lander: Lander, reason: str | None) -> Replayed:
    """Decode a table's dead letters again, all or those of one reason; once decoded, never again.

    Raises:
        UserError: there is no table, the registry is away, Spark fails, or the table does not stand still.
    """
    name = lander.declaration.identifier
    condition: BooleanExpression = And(NotNull("decode_error"), NotNull("kafka_raw_value"))
    if reason is not None:
        condition = And(condition, StartsWith("decode_error", f"{reason}:"))
    for _ in range(ATTEMPTS):
        table = tables.existing(lander.catalog, lander.declaration)
        values, keys, looked_at = set(), set(), 0
        for row in _rows(table, condition, ("kafka_raw_value", "kafka_raw_key")):
            looked_at += 1
            values.add(peek.schema_id(row["kafka_raw_value"]))
            keys.add(peek.schema_id(row["kafka_raw_key"]))
        if not looked_at:
            return Replayed(0, 0)
        avro_keys = keys - {None} if lander.declaration.key == "avro" else ()
        state = SchemaState.of(table)
        learned = lander.schemas.learn(state, values - {None}, avro_keys)
        if learned.state != state:
            table = tables.evolve(table, lander.declaration, learned.state)
        decoded = None if table is None else _replace(lander, table, learned.sides, reason)
        if decoded is not None:
            return Replayed(looked_at, decoded)
    raise UserError(
        f"{name}: other commits came first, {ATTEMPTS} times in a row; nothing was replayed",
        "Replay when the ingester of this topic has caught up",
    )


def _replace(lander: Lander, table: Table, sides: Sides, reason: str | None) -> int | None:
    """Replace the dead letters that can be decoded; return how many, None if another commit came first."""
    position = PositionReader().read(table)
    batch = Batch(position.last_batch + 1, datetime.now(UTC))
    ids = tuple(sorted(sides.value.writers))
    ledger = Ledger(lander.writer, batch.number, (), position.next_offsets, ids)
    # A session of its own: the ledger goes into the summary of every snapshot that it commits.
    spark = lander.spark().newSession()
    for key, value in ledger.properties().items():
        spark.conf.set(f"spark.sql.iceberg.snapshot-property.{key}", value)
    identifier = lander.declaration.identifier
    name = f"{CATALOG_NAME}.{identifier}"
    branch = f"replay_{uuid.uuid4().hex}"
    try:
        dead = spark.read.option("versionAsOf", position.snapshot_id).table(name).where(_dead(reason))
        declaration = replace(lander.declaration, on_error="dead_letter")
        rows = decode.rows(_as_records(dead), declaration, sides, batch).where("decode_error is null")
        decoded = rows.count()
        if not decoded:
            return 0
        rows.createOrReplaceTempView("replayed")
        spark.sql(f"alter table {name} create branch {branch} as of version {position.snapshot_id} retain 1 days")
        spark.sql(
            f"merge into {name}.branch_{branch} as landed using replayed"
            " on landed.kafka_partition = replayed.kafka_partition and landed.kafka_offset = replayed.kafka_offset"
            " and landed.decode_error is not null when matched then update set *"
        )
        spark.sql(f"call {CATALOG_NAME}.system.fast_forward('{identifier}', 'main', '{branch}')")
    except (PySparkException, Py4JError) as error:
        # It may have been committed, its answer lost: only the table knows.
        current = table.refresh().current_snapshot()
        if commit.committed(table, ledger) is None:
            moved = current is not None and current.snapshot_id != position.snapshot_id
            # Another process may have changed no more than a column or a property.
            if moved or any(refusal in str(error) for refusal in commit.REFUSALS):
                return None
            raise UserError(
                f"{identifier}: Spark failed ({commit.kind(error)}); nothing was replayed", f"See {log_file()}"
            ) from None
    finally:
        if branch in table.refresh().refs():
            with suppress(PySparkException, Py4JError):
                spark.sql(f"alter table {name} drop branch if exists {branch}")
    return decoded


def _dead(reason: str | None) -> str:
    dead = "decode_error is not null and kafka_raw_value is not null"
    return dead if reason is None else f"{dead} and decode_error like '{reason}:%'"


def _as_records(dead: DataFrame) -> DataFrame:
    return dead.selectExpr(
        "kafka_topic as topic",
        "kafka_partition as partition",
        "kafka_offset as offset",
        "kafka_timestamp as timestamp",
        "kafka_timestamp_type as timestampType",
        "kafka_headers as headers",
        "kafka_raw_key as key",
        "kafka_raw_value as value",
    )


def _rows(
    table: Table, condition: BooleanExpression, names: tuple[str, ...], limit: int | None = None
) -> Iterator[dict[str, Any]]:
    with readable(f"A file of {'.'.join(table.name())}"):
        for batch in table.scan(condition, selected_fields=names, limit=limit).to_arrow_batch_reader():
            yield from batch.select(names).to_pylist()
