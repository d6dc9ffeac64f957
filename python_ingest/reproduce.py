"""Proof that a batch is what the topic says: its ranges read and decoded again, compared with the stored rows.

Rows are compared by a hash per Kafka partition over every column but the batch number and its
time. The order of rows does not count, for a table has none; their number does.
"""

import json
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import reduce
from operator import or_

from py4j.protocol import Py4JError
from pyiceberg.expressions import EqualTo
from pyiceberg.table import Table
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from lakehouse.errors import UserError
from lakehouse.settings import CATALOG_NAME
from python_ingest import commit, decode, peek, tables
from python_ingest.batch import Lander
from python_ingest.broker import TopicState
from python_ingest.decode import Batch, Side, Sides
from python_ingest.offsets import OffsetRange
from python_ingest.session import log_file
from python_ingest.tables import SchemaState

BATCH_COLUMNS = ("ingest_batch", "ingested_at")
# Hashes see microseconds and NULLs, which to_json leaves out by default.
JSON = {
    "ignoreNullFields": "false",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}


@dataclass(frozen=True)
class Proof:
    """One partition of a batch, as it is stored and as it was read again: number of rows and their hash."""

    partition: int
    start: int
    until: int
    rows_stored: int
    rows_read: int
    hash_stored: str
    hash_read: str

    @property
    def equal(self) -> bool:
        return (self.rows_stored, self.hash_stored) == (self.rows_read, self.hash_read)


def reproduce(lander: Lander, topic: TopicState, number: int) -> list[Proof]:
    """Read a batch's offsets from the broker again and compare them with the rows that the table has of them.

    Records are decoded by the schemas that the table knows. A dead letter that could be decoded
    by now is a difference: replay it.

    Raises:
        UserError: there is no such table or batch, or the broker no longer has all of its records.
    """
    declaration = replace(
        lander.declaration, on_error="skip" if lander.declaration.on_error == "skip" else "dead_letter"
    )
    table = tables.existing(lander.catalog, declaration)
    ranges = _ranges(table, number)
    for each in ranges:
        if topic.begin.get(each.partition, each.until) > each.start:
            raise UserError(
                f"{topic.topic}: the broker no longer has all of offsets {each.start} to {each.until - 1}"
                f" of partition {each.partition}",
                "Only a batch that retention has not reached can be read again",
            )
    spark = lander.spark()
    name = f"{CATALOG_NAME}.{declaration.identifier}"
    stored = spark.table(name).where(reduce(or_, map(commit.inside, ranges)))
    sides = _sides(lander, table, ranges)
    try:
        read = decode.rows(lander.read(ranges), declaration, sides, Batch(number, datetime.now(UTC)))
        in_table, in_topic = (_hashes(rows, stored.schema) for rows in (stored, read))
    except (PySparkException, Py4JError) as error:
        raise UserError(f"{topic.topic}: Spark failed ({commit.kind(error)})", f"See {log_file()}") from None
    proofs = []
    for each in ranges:
        rows_stored, hash_stored = in_table.get(each.partition, (0, "-"))
        rows_read, hash_read = in_topic.get(each.partition, (0, "-"))
        proofs.append(Proof(each.partition, each.start, each.until, rows_stored, rows_read, hash_stored, hash_read))
    return proofs


def _ranges(table: Table, number: int) -> list[OffsetRange]:
    """Return a batch's ranges: from its snapshot, else, when that has expired, from its rows."""
    for snapshot in table.snapshots():
        if snapshot.summary and snapshot.summary.additional_properties.get("lakehouse.batch") == str(number):
            ranges = json.loads(snapshot.summary["lakehouse.ranges"])
            if ranges:
                return [OffsetRange(int(partition), *bounds) for partition, bounds in sorted(ranges.items())]
    names = ("kafka_partition", "kafka_offset")
    rows = table.scan(EqualTo("ingest_batch", number), selected_fields=names).to_arrow()
    extremes = rows.group_by("kafka_partition").aggregate([("kafka_offset", "min"), ("kafka_offset", "max")])
    if not len(extremes):
        raise UserError(
            f"{'.'.join(table.name())} has no batch {number}",
            "Choose one from `select distinct ingest_batch` of the table",
        )
    return sorted(
        (
            OffsetRange(row["kafka_partition"], row["kafka_offset_min"], row["kafka_offset_max"] + 1)
            for row in extremes.to_pylist()
        ),
        key=lambda each: each.partition,
    )


def _sides(lander: Lander, table: Table, ranges: list[OffsetRange]) -> Sides:
    """Return how the table's own schemas decode; other ids are as unknown as they were."""
    values, keys = peek.schema_ids(lander.settings, lander.declaration.topic, ranges, lander.wait)
    state = SchemaState.of(table)
    known = lander.schemas.known(state)
    learned = lander.schemas.learn(state, values, keys if lander.declaration.key == "avro" else ()).sides

    def side(name: str, ids: set[int]) -> Side:
        mine: Side = getattr(known, name)
        rejected = getattr(learned, name).rejected
        return replace(mine, rejected=rejected, unknown=frozenset(ids - set(mine.writers) - set(rejected)))

    return Sides(side("value", values), side("key", keys))


def _hashes(rows: DataFrame, schema: StructType) -> dict[int, tuple[int, str]]:
    # By name at every depth: a table has its fields in the order in which they were met.
    wanted = StructType([each for each in schema if each.name not in BATCH_COLUMNS])
    row_hash = F.xxhash64(F.to_json(F.struct("*"), JSON)).cast("decimal(38,0)").alias("row_hash")
    found = rows.to(wanted).select("kafka_partition", row_hash).groupBy("kafka_partition")
    totals = found.agg(F.count("*"), F.hex(F.xxhash64(F.sum("row_hash")))).collect()
    return {partition: (count, text) for partition, count, text in totals}
