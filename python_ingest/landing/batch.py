"""One batch of one topic: read an exact range, learn its schemas, decode it, commit it."""

import json
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from py4j.protocol import Py4JError
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table
from pyiceberg.table.snapshots import ancestors_of
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from lakehouse import connections, property_keys
from lakehouse.commits import CommitConflict, wait_for_clock
from lakehouse.errors import UserError
from lakehouse.settings import Settings
from python_ingest.kafka import peek
from python_ingest.kafka.broker import TopicState
from python_ingest.kafka.offset_range import OffsetRange
from python_ingest.landing import commit, decode, far_stamps, identity, offsets, tables
from python_ingest.landing.commit import Landed, Ledger
from python_ingest.landing.decode import Batch, StoppedRecord
from python_ingest.landing.offsets import Position
from python_ingest.landing.session import log_file, raised_message
from python_ingest.schema.learn import TopicSchemas
from python_ingest.schema.state import SchemaState, Sides
from python_ingest.topics import Declaration

FIRST_LOOK = 1_000
# Of data files, which have a record twice, as bytes and as columns. Tasks hold a good part of a batch at the same time.
BATCH_BYTES = 512_000_000
# What a file has besides its rows, which would make few small records look large.
FILE_BYTES = 20_000
# Of bytes that only look like registry Avro a batch can name a million ids.
MOST_NEW_IDS = 100


class NewSchemaId(Exception):
    """A record was written with a schema id that the decoder was not told of."""


class SparkFailed(UserError):
    """Spark ended a batch, and no other commit was the cause. Nothing was committed."""


class FarStamp(SparkFailed):
    """Spark's Kafka source met a record that is stamped later than it can hold."""


@dataclass(frozen=True)
class BatchPlan:
    """What to land, and the position it follows from; `filling_holes` if it lies before the position."""

    topic: TopicState
    position: Position
    ranges: list[OffsetRange]
    filling_holes: bool = False


@dataclass
class Lander:
    """Lands batches of one topic. `writer` marks the commits of this process."""

    settings: Settings
    spark: Callable[[], SparkSession]
    catalog: Catalog
    declaration: Declaration
    schemas: TopicSchemas
    writer: str
    wait: float

    def land(self, table: Table, plan: BatchPlan) -> Landed:
        """Commit the plan's ranges as one batch.

        Raises:
            CommitConflict: nothing was committed; plan again.
            SparkFailed: nothing was committed.
            UserError: the registry is away, or a record stops a topic that is declared to stop.
        """
        wait_for_clock(self.declaration.identifier, table.metadata)
        records = BATCH_BYTES // self._record_bytes(table, plan.ranges)
        plan = replace(plan, ranges=offsets.capped(plan.ranges, records))
        try:
            return self._land(table, plan, self.read(plan.ranges))
        except FarStamp:
            # The failed job may have been preceded by a change of columns.
            return self._land(table.refresh(), *self._without_far_stamps(plan))

    def _land(self, table: Table, plan: BatchPlan, records: DataFrame) -> Landed:
        noted = SchemaState.of(table).notes
        if table.current_snapshot() is not None:
            sides = self.schemas.learned_by(SchemaState.of(table))
        else:
            table, sides = self._learn(table, records, plan, self._first_look(plan.ranges))
        try:
            landed = self._write(table, records, sides, plan)
        except NewSchemaId:
            table, sides = self._learn(table, records, plan, plan.ranges)
            landed = self._write(table, records, sides, plan)
        notes = SchemaState.of(table).notes
        return replace(landed, notes=tuple(text for name, text in notes.items() if name not in noted))

    def _record_bytes(self, table: Table, ranges: list[OffsetRange]) -> int:
        """Return the mean size of a record in data files: in those added last, else by the first records of ranges."""
        for snapshot in ancestors_of(table.current_snapshot(), table.metadata):
            added = snapshot.summary.additional_properties if snapshot.summary else {}
            if rows := int(added.get("added-records", 0)):
                size = int(added["added-files-size"]) - FILE_BYTES * int(added["added-data-files"])
                return max(1, size // rows)
        return max(1, 2 * peek.mean_bytes(self.settings, self.declaration.topic, ranges, self.wait))

    def _first_look(self, ranges: list[OffsetRange]) -> list[OffsetRange]:
        """Return the first records of a new table: they usually tell all schemas, and the rest is then read once."""
        if self.declaration.on_error == "stop":
            return ranges
        return [replace(span, until=min(span.until, span.start + FIRST_LOOK)) for span in ranges]

    def _learn(
        self, table: Table, records: DataFrame, plan: BatchPlan, ranges: list[OffsetRange]
    ) -> tuple[Table, Sides]:
        """Look for schemas in these ranges, and change the table for what was found."""
        state = SchemaState.of(table)
        values, keys = peek.schema_ids(self.settings, self.declaration.topic, ranges, self.wait)
        learned = self.schemas.learn(state, values, keys if self.declaration.key == "avro" else (), MOST_NEW_IDS)
        if self.declaration.on_error == "stop":
            self._check(records, learned.sides, plan)
        if learned.state != state:
            table = tables.evolve(table, self.declaration, learned.state)
        return table, learned.sides

    def read(self, ranges: list[OffsetRange]) -> DataFrame:
        """Return the committed records of these ranges, as Spark's Kafka source gives them."""
        topic = self.declaration.topic
        cores = self.spark().sparkContext.defaultParallelism
        # More tasks than partitions keep every core busy; few records are not worth more files.
        tasks = min(2 * cores, math.ceil(offsets.count(ranges) / self.settings.records_per_task))
        # A multiple of the ranges: Spark would else round to fewer, and leave a core idle at the end.
        tasks_per_range = math.ceil(tasks / len(ranges))
        options = {
            **connections.spark_source(self.settings),
            "kafka.isolation.level": "read_committed",
            # Of this process alone, and the same for all its batches: Spark then keeps the consumers.
            "kafka.group.id": f"lakehouse-ingest-{self.writer}",
            # Spark asks the broker for both ends of a partition with every poll: 500 records, unless told.
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
        return self.spark().read.format("kafka").options(**options).load()

    def _without_far_stamps(self, plan: BatchPlan) -> tuple[BatchPlan, DataFrame]:
        """Return a part of a plan that ends before records Spark cannot read, or begins with one, and its records."""
        topic = self.declaration.topic
        found = far_stamps.first(self.settings, topic, plan.ranges, self.wait)
        for span in plan.ranges:
            if found.get(span.partition) == span.start:
                rows, stretch = far_stamps.read(self.settings, topic, span, self.wait)
                return replace(plan, ranges=[stretch]), self.spark().createDataFrame(rows)
        ranges = [replace(span, until=found.get(span.partition, span.until)) for span in plan.ranges]
        return replace(plan, ranges=ranges), self.read(ranges)

    def _check(self, records: DataFrame, sides: Sides, plan: BatchPlan) -> None:
        """Find what stops a batch before the table is made or changed for it."""
        batch = Batch(plan.position.last_batch + 1, datetime.now(UTC))
        try:
            rows = decode.rows(records, self.declaration, sides, batch)
            rows.filter("decode_error is not null or key_error is not null").isEmpty()
        except (PySparkException, Py4JError) as error:
            raise self._translated(error) from None

    def _write(self, table: Table, records: DataFrame, sides: Sides, plan: BatchPlan) -> Landed:
        if fingerprints := self.schemas.check(SchemaState.of(table), table.properties):
            identity.note(table, fingerprints)
        generation = plan.position.generation
        batch = Batch(plan.position.last_batch + 1, datetime.now(UTC), generation)
        ids = tuple(sorted(sides.value.writers))
        read = {} if plan.filling_holes else {span.partition: span.until for span in plan.ranges}
        # Of a partition not read yet its beginning: what retention takes from then on was lost, and not never there.
        read_until = plan.topic.begin | plan.position.next_offsets | read
        ledger = Ledger(self.writer, batch.number, tuple(plan.ranges), read_until, ids, generation)
        refusal: Exception | None = None
        # A batch without rows adds no file: no claim would refuse the one that has its number.
        snapshot = table.refresh().current_snapshot()
        current = snapshot and snapshot.snapshot_id, property_keys.generation(table.properties)
        if (plan.position.snapshot_id, generation) != current:
            raise CommitConflict("another commit came first")
        try:
            rows = decode.rows(records, self.declaration, sides, batch)
            commit.overwrite(rows, self.declaration.identifier, plan.position, ledger)
        except CommitConflict as refused:
            refusal = refused
        except (PySparkException, Py4JError) as error:
            refusal = self._translated(error)
        # A failed job may still have been committed, its answer lost: only the table knows.
        snapshot = commit.committed(table.refresh(), ledger)
        if snapshot is None:
            raise refusal or CommitConflict("the batch was rolled back as soon as it was committed")
        return commit.landed(table, snapshot)

    def _translated(self, error: PySparkException | Py4JError) -> Exception:
        raised = raised_message(error)
        if raised == decode.NEW_SCHEMA_ID:
            return NewSchemaId()
        if raised is not None:
            stopped = StoppedRecord(**json.loads(raised))
            return UserError(
                f"{self.declaration.topic}: partition {stopped.partition}, offset {stopped.offset}: {stopped.reason};"
                " nothing of this batch was landed",
                "Correct the cause, or declare on_error: dead_letter",
            )
        name = commit.error_name(error)
        failure = FarStamp if name.endswith("ArithmeticException") else SparkFailed
        return failure(f"{self.declaration.topic}: Spark failed ({name})", f"See {log_file()}")
