"""One batch of one topic: read exact offset ranges, resolve their schemas, decode, commit."""

import json
import math
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cache
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError
from pyiceberg.table import Table
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from python_common.catalog import property_keys
from python_common.catalog.catalog import history, load_catalog
from python_common.catalog.commits import CommitConflict, wait_for_clock
from python_common.config import connections
from python_common.config.settings import Settings
from python_common.errors import UserError
from python_common.spark.session import log_file, raised_message, root_message
from python_ingest.bronze import commit, positions, tables, topic_identity
from python_ingest.bronze.commit import BatchMetadata, Landed
from python_ingest.bronze.positions import Position
from python_ingest.bronze.schema_state import Decoders, SchemaState
from python_ingest.declare.topics import Declaration
from python_ingest.kafka import consumer
from python_ingest.kafka.admin import TopicState
from python_ingest.kafka.offset_range import OffsetRange
from python_ingest.kafka.registry import Registry
from python_ingest.landing import decode, timestamp_overflow
from python_ingest.landing.decode import Batch
from python_ingest.landing.schemas import TopicSchemas

FIRST_LOOK = 1_000
# Records that are worth a task of Spark, and a file: fewer make files that are too small.
RECORDS_PER_TASK = 50_000
# Data files have a record twice, as bytes and as columns. Tasks hold a good part of a batch at the same time.
BATCH_BYTES = 512_000_000
# What a file has besides its rows, which would make few small records look large.
FILE_BYTES = 20_000
# A batch of bytes that only look like registry Avro can name a million ids.
MOST_NEW_IDS = 100


class NewSchemaId(Exception):
    """A record was written with a schema id that the decoders do not know."""


class SparkFailed(UserError):
    """Spark ended a batch, and no other commit was the cause. Nothing was committed."""


class TimestampOverflow(SparkFailed):
    """Spark's Kafka source cannot read a record's timestamp."""


class KafkaFailed(SparkFailed):
    """Kafka's client in Spark could not read a record."""


@dataclass(frozen=True)
class BatchPlan:
    """What to land, and the position it follows from; `filling_gaps` if it lies before the position.

    `accept_gap` goes on behind a damaged part of the log.
    """

    topic: TopicState
    position: Position
    ranges: list[OffsetRange]
    filling_gaps: bool = False
    accept_gap: bool = False


@dataclass
class BatchWriter:
    """Lands batches of one topic. `writer` marks the commits of this process."""

    settings: Settings
    spark: Callable[[], SparkSession]
    declaration: Declaration
    wait: float
    writer: str = field(default_factory=lambda: str(uuid.uuid4()))

    def __post_init__(self) -> None:
        self.catalog = load_catalog(self.settings)
        # A separate client of the registry: what it remembers as missing, another topic's producer may register.
        self.schemas = TopicSchemas(Registry(self.settings, self.wait), self.declaration, cache(self._avro_refusal))

    def _avro_refusal(self, schema: str) -> str | None:
        jvm: Any = self.spark()._jvm
        try:
            jvm.org.apache.avro.Schema.Parser().parse(schema)
        except Py4JJavaError as error:
            return f"Avro's parser refuses it: {root_message(error)}"
        return None

    def land(self, table: Table, plan: BatchPlan) -> Landed:
        """Commit the plan's ranges as one batch.

        Raises:
            CommitConflict: nothing was committed; plan again.
            SparkFailed: nothing was committed.
            UserError: the registry is away, a record stops a topic that is declared to stop, or the log is damaged.
        """
        wait_for_clock(self.declaration.identifier, table.metadata)
        records = BATCH_BYTES // self._record_bytes(table, plan.ranges)
        plan = replace(plan, ranges=positions.capped(plan.ranges, records))
        try:
            return self._land_before_overflow(table, plan)
        except (KafkaFailed, consumer.DamagedLog) as failure:
            topic = self.declaration.topic
            damaged = consumer.damaged_batches(self.settings, topic, plan.ranges, self.wait)
            if not damaged:
                raise failure from None
            ends = {span.partition: span.until for span in plan.ranges}
            ranges = positions.before(plan.ranges, ends | {span.partition: span.start for span in damaged})
            if not ranges:
                topic_identity.accept_gaps(table.refresh(), topic, damaged, plan.accept_gap, is_damage=True)
                raise CommitConflict("a damaged part of the log is accepted as a gap") from None
            return self._land_before_overflow(table.refresh(), replace(plan, ranges=ranges))

    def _land_before_overflow(self, table: Table, plan: BatchPlan) -> Landed:
        try:
            return self._land(table, plan, self.read(plan.ranges))
        except TimestampOverflow:
            # The failed job may have been preceded by a change of columns.
            return self._land(table.refresh(), *self._before_overflow(plan))

    def _land(self, table: Table, plan: BatchPlan, records: DataFrame) -> Landed:
        noted = SchemaState.of(table).notes
        if table.current_snapshot() is not None:
            decoders = self.schemas.resolve_schemas(SchemaState.of(table))
        else:
            # The first records usually have all schemas, and the rest is then read once.
            first = [replace(span, until=min(span.until, span.start + FIRST_LOOK)) for span in plan.ranges]
            looked_at = plan.ranges if self.declaration.on_error == "stop" else first
            table, decoders = self._resolve_schemas(table, records, plan, looked_at)
        try:
            landed = self._write(table, records, decoders, plan)
        except NewSchemaId:
            table, decoders = self._resolve_schemas(table, records, plan, plan.ranges)
            landed = self._write(table, records, decoders, plan)
        notes = SchemaState.of(table).notes
        return replace(landed, notes=tuple(text for name, text in notes.items() if name not in noted))

    def _record_bytes(self, table: Table, ranges: list[OffsetRange]) -> int:
        """Return the mean size of a record in data files: in those added last, else by the first records of ranges."""
        for _, added in history(table):
            if rows := int(added.get("added-records", 0)):
                size = int(added["added-files-size"]) - FILE_BYTES * int(added["added-data-files"])
                return max(1, size // rows)
        return max(1, 2 * consumer.mean_bytes(self.settings, self.declaration.topic, ranges, self.wait))

    def _resolve_schemas(
        self, table: Table, records: DataFrame, plan: BatchPlan, ranges: list[OffsetRange]
    ) -> tuple[Table, Decoders]:
        """Resolve the schemas of these ranges, and evolve the table for them."""
        state = SchemaState.of(table)
        values, keys = consumer.schema_ids(self.settings, self.declaration.topic, ranges, self.wait)
        decoders = self.schemas.resolve_schemas(state, values, keys, MOST_NEW_IDS)
        if self.declaration.on_error == "stop":
            self._check(records, decoders, plan)
        if decoders.state != state:
            table = tables.evolve(table, self.declaration, decoders.state)
        return table, decoders

    def read(self, ranges: list[OffsetRange]) -> DataFrame:
        """Return the committed records of these ranges, as Spark's Kafka source gives them."""
        topic = self.declaration.topic
        cores = self.spark().sparkContext.defaultParallelism
        # More tasks than partitions keep every core busy; few records do not justify more files.
        tasks = min(2 * cores, math.ceil(positions.count(ranges) / RECORDS_PER_TASK))
        # A multiple of the ranges: Spark would else round to fewer, and leave a core idle at the end.
        tasks_per_range = math.ceil(tasks / len(ranges))
        options = {
            **connections.spark_source(self.settings),
            "kafka.isolation.level": "read_committed",
            # One name for this process and all its batches: Spark then keeps the consumers.
            "kafka.group.id": f"lakehouse-ingest-{self.writer}",
            # Spark asks the broker for both ends of a partition with every poll, of 500 records by default.
            "kafka.max.poll.records": "10000",
            "assign": json.dumps({topic: [span.partition for span in ranges]}),
            "startingOffsets": json.dumps({topic: {span.partition: span.start for span in ranges}}),
            "endingOffsets": json.dumps({topic: {span.partition: span.until for span in ranges}}),
            "includeHeaders": "true",
            "failOnDataLoss": "true",
            # Else a reader makes a topic that was deleted, where brokers allow that.
            "kafka.allow.auto.create.topics": "false",
            "minPartitions": str(tasks_per_range * len(ranges)),
            "kafkaConsumer.pollTimeoutMs": str(int(self.wait * 1000)),
            **{f"kafka.{name}": value for name, value in self.declaration.client_options},
        }
        return timestamp_overflow.refuse_julian(self.spark().read.format("kafka").options(**options).load())

    def _before_overflow(self, plan: BatchPlan) -> tuple[BatchPlan, DataFrame]:
        """Return a part of a plan that ends before records Spark cannot read, or begins with one, and its records."""
        topic = self.declaration.topic
        overflows = timestamp_overflow.first(self.settings, topic, plan.ranges, self.wait)
        for span in plan.ranges:
            if overflows.get(span.partition) == span.start:
                rows, offsets_read = timestamp_overflow.read(self.settings, topic, span, self.wait)
                return replace(plan, ranges=[offsets_read]), self.spark().createDataFrame(rows)
        ranges = [replace(span, until=overflows.get(span.partition, span.until)) for span in plan.ranges]
        return replace(plan, ranges=ranges), self.read(ranges)

    def _check(self, records: DataFrame, decoders: Decoders, plan: BatchPlan) -> None:
        """Raise what stops a batch, before the table is created or changed for it."""
        batch = Batch(plan.position.last_batch + 1, datetime.now(UTC))
        try:
            rows = decode.rows(records, self.declaration, decoders, batch)
            rows.filter("decode_error is not null or key_error is not null").isEmpty()
        except (PySparkException, Py4JError) as error:
            raise self._translated(error) from None

    def _write(self, table: Table, records: DataFrame, decoders: Decoders, plan: BatchPlan) -> Landed:
        if fingerprints := self.schemas.check(SchemaState.of(table), table.properties):
            topic_identity.set_properties(table, fingerprints)
        generation = plan.position.generation
        batch = Batch(plan.position.last_batch + 1, datetime.now(UTC), generation)
        ids = tuple(sorted(decoders.value.writers))
        read = {} if plan.filling_gaps else {span.partition: span.until for span in plan.ranges}
        # A partition not read yet has its beginning: what retention takes from then on was lost, and not never there.
        read_until = plan.topic.begin | plan.position.next_offsets | read
        metadata = BatchMetadata(self.writer, batch.number, tuple(plan.ranges), read_until, ids, generation)
        refusal: Exception | None = None
        # A batch without rows adds no file: no claim would refuse the one that has its number.
        snapshot = table.refresh().current_snapshot()
        current = snapshot and snapshot.snapshot_id, property_keys.generation(table.properties)
        if (plan.position.snapshot_id, generation) != current:
            raise CommitConflict("another commit came first")
        try:
            rows = decode.rows(records, self.declaration, decoders, batch)
            commit.overwrite(rows, self.declaration.identifier, plan.position, metadata)
        except CommitConflict as refused:
            refusal = refused
        except (PySparkException, Py4JError) as error:
            refusal = self._translated(error)
        # A failed job may still have been committed and its answer lost: only the table knows.
        snapshot = commit.committed(table.refresh(), metadata)
        if snapshot is None:
            raise refusal or CommitConflict("the batch was rolled back as soon as it was committed")
        return commit.landed(table, snapshot)

    def _translated(self, error: PySparkException | Py4JError) -> Exception:
        raised = raised_message(error)
        if raised == decode.NEW_SCHEMA_ID:
            return NewSchemaId()
        if raised == timestamp_overflow.JULIAN:
            return TimestampOverflow(f"{self.declaration.topic}: {raised}", f"See {log_file()}")
        if raised is not None:
            stopped = "partition {partition}, offset {offset}: {reason}".format(**json.loads(raised))
            return UserError(
                f"{self.declaration.topic}: {stopped}; nothing of this batch was landed",
                "Correct the cause, or declare on_error: dead_letter",
            )
        name = commit.error_name(error)
        of_kafka = KafkaFailed if name.startswith("org.apache.kafka.") else SparkFailed
        failure = TimestampOverflow if name.endswith("ArithmeticException") else of_kafka
        return failure(f"{self.declaration.topic}: Spark failed ({name})", f"See {log_file()}")
