"""A topic and a table for one test, on the real broker, registry and lake: records made byte by byte."""

import json
import re
import uuid
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
)
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from pyiceberg.table import Table
from pyspark.sql import SparkSession
from pyspark.sql.types import DataType

from python_common.catalog.catalog import load_catalog
from python_common.config import connections
from python_common.config.settings import Settings
from python_ingest.bronze.commit import Landed
from python_ingest.bronze.positions import position_of
from python_ingest.declare import spark_types
from python_ingest.declare.topics import Declaration
from python_ingest.kafka.admin import Broker
from python_ingest.kafka.offset_range import OffsetRange
from python_ingest.landing.batch import BatchPlan, BatchWriter
from python_ingest.landing.run import Ingester, Options, TopicResult
from python_ingest.maintenance.maintain import Maintained, Retention, maintain_table
from python_ingest.verify.compare import verify_topic
from python_ingest.verify.report import Report, Sample
from tests.support.race import until
from tests.support.registry_avro import encode

PARTITIONS = 3


def record(name: str, /, **fields: Any) -> dict[str, Any]:
    """Return an Avro record schema."""
    return {"type": "record", "name": name, "fields": [{"name": key, "type": value} for key, value in fields.items()]}


SALE = record("sale", id="int", note="string")


@dataclass
class Messages:
    """A Reporter that collects its notes."""

    notes: list[str] = field(default_factory=list)

    def waiting(self, topic: str, offsets_left: int) -> None: ...

    def landed(self, topic: str, what: Landed) -> None: ...

    def note(self, topic: str, text: str) -> None:
        self.notes.append(text)


@dataclass
class TopicFixture:
    """Broker, registry and lake, with a topic and a table for one test."""

    settings: Settings
    spark: SparkSession
    declaration: Declaration
    messages: Messages = field(default_factory=Messages)

    def __post_init__(self) -> None:
        kafka = connections.kafka_client(self.settings)
        self.name = self.declaration.topic
        self.admin = AdminClient(kafka)
        self.producer = Producer({**kafka, "linger.ms": 0})
        self.registry = SchemaRegistryClient(connections.registry_client(self.settings))

    def make_topic(self, partitions: int = PARTITIONS, **config: str) -> None:
        config = {name.replace("_", "."): value for name, value in config.items()}
        for created in self.admin.create_topics([NewTopic(self.name, partitions, 1, config=config)]).values():
            created.result()
        self.wait_for_topic(partitions)

    def delete_topic(self) -> None:
        self.admin.delete_topics([self.name])[self.name].result()
        until(lambda: self.name not in self.admin.list_topics(timeout=5).topics)

    def add_partitions(self, partitions: int) -> None:
        """Have so many partitions; a producer that knows them is that of a copy of this fixture."""
        for grown in self.admin.create_partitions([NewPartitions(self.name, partitions)]).values():
            grown.result()
        self.wait_for_topic(partitions)

    def delete_records(self, partition: int, before: int) -> None:
        """Delete the records before an offset, as retention does."""
        for deleted in self.admin.delete_records([TopicPartition(self.name, partition, before)]).values():
            deleted.result()

    def transactional_producer(self) -> Producer:
        producer = Producer({**connections.kafka_client(self.settings), "transactional.id": self.name})
        producer.init_transactions()
        return producer

    def produce_transactions(self, *outcomes: str) -> None:
        """Produce five sales per transaction in partition 0; their note is its outcome, commit or abort."""
        producer, schema_id, broker = self.transactional_producer(), self.register(SALE), Broker(self.settings, 10)
        for outcome in outcomes:
            producer.begin_transaction()
            for index in range(5):
                producer.produce(self.name, self.encode(schema_id, {"id": index, "note": outcome}), partition=0)
            producer.flush()
            producer.commit_transaction() if outcome == "commit" else producer.abort_transaction()
            # The broker writes the markers after its answer.
            until(lambda: not broker.beyond_last_stable_offset(broker.describe(self.name)))

    def wait_for_topic(self, partitions: int) -> None:
        """Wait for the leader of each partition: what it refuses before, it would take again after later records."""
        ends = {TopicPartition(self.name, partition): OffsetSpec.latest() for partition in range(partitions)}

        def have_leaders() -> bool:
            # The client asks the leaders that it heard of last.
            self.admin.list_topics(self.name, timeout=5)
            return not any(end.exception() for end in self.admin.list_offsets(ends).values())

        until(have_leaders)

    def register(self, schema: dict[str, Any] | str, side: str = "value") -> int:
        return self.register_under(f"{self.name}-{side}", schema)

    def register_under(self, subject: str, schema: dict[str, Any] | str) -> int:
        return self.registry.register_schema(subject, Schema(json.dumps(schema), "AVRO"))

    def encode(self, schema_id: int, value: Any) -> bytes:
        return encode(json.loads(self.registry.get_schema(schema_id).schema_str), schema_id, value)

    def produce(self, value: bytes | None, partition: int = 0, key: bytes | None = None, **options: Any) -> None:
        self.producer.produce(self.name, value, key, partition, **options)

    def flush(self) -> None:
        assert self.producer.flush(30) == 0

    def declaring(self, **changes: Any) -> "TopicFixture":
        """Return the fixture of this topic with a declaration that differs in some fields."""
        return replace(self, declaration=replace(self.declaration, **changes))

    def ingester(self, options: Options | None = None, **changes: Any) -> Ingester:
        return Ingester(
            settings=changes.get("settings", self.settings),
            spark=lambda: self.spark,
            options=options or Options(wait=10),
            reporter=changes.get("messages", self.messages),
        )

    def batch_writer(self, writer: str = "test") -> BatchWriter:
        load_catalog(self.settings, create=True)
        return BatchWriter(self.settings, lambda: self.spark, self.declaration, wait=10, writer=writer)

    def plan(self, *ranges: OffsetRange) -> BatchPlan:
        """Return a batch of these ranges, planned from the table as it is now."""
        state = Broker(self.settings, 10).describe(self.name)
        return BatchPlan(state, position_of(self.table()), list(ranges))

    def land(self, options: Options | None = None, **changes: Any) -> TopicResult:
        """Flush what was produced, and land it by an ingester with these changes."""
        self.flush()
        (result,) = self.ingester(options, **changes).catch_up([self.declaration])
        return result

    def land_well(self, options: Options | None = None) -> TopicResult:
        result = self.land(options)
        assert result.error is None, result.error
        assert result.lag == 0
        return result

    def table(self) -> Table:
        return load_catalog(self.settings).load_table(self.declaration.identifier)

    @property
    def directory(self) -> Path:
        """Where the table's files are."""
        return Path(self.table().location().removeprefix("file:"))

    def verify(self, sample: Sample | None = None, decoded: bool = False) -> Report:
        return verify_topic(self.settings, self.declaration, 10, sample, decoded)

    def maintain(self, retention: Retention) -> Maintained:
        outcome = maintain_table(self.settings, lambda: self.spark, self.declaration.identifier, retention)
        assert outcome is not None
        return outcome

    def rows(self) -> list[dict[str, Any]]:
        rows = self.table().scan().to_arrow().to_pylist()
        return sorted(rows, key=lambda row: (row["kafka_partition"], row["kafka_offset"]))

    def spark_types(self) -> dict[str, DataType]:
        """Return Spark's types of the columns."""
        return {field.name: field.dataType for field in self.spark.table(f"lake.{self.declaration.identifier}").schema}

    def sql(self, text: str) -> None:
        self.spark.sql(text.format(table=f"lake.{self.declaration.identifier}"))


def new_declaration(**changes: Any) -> Declaration:
    """Return the declaration of a topic and a table that no other test has."""
    name = f"t{uuid.uuid4().hex[:10]}"
    return replace(Declaration(f"test.{name}", "bronze_tests", name, "string", "dead_letter"), **changes)


def declared_in(directory: Path, *declarations: Declaration) -> Path:
    """Declare topics of one schema in the one source file of a directory, and return the directory."""
    source = {"name": "tests", "schema": declarations[0].schema, "tables": [*map(_as_source, declarations)]}
    (directory / "_tests__sources.yml").write_text(json.dumps({"version": 2, "sources": [source]}))
    return directory


def _as_source(declaration: Declaration) -> dict[str, Any]:
    """Return the table of a dbt source that declares a topic."""
    kafka = {
        "topic": declaration.topic,
        "key": declaration.key,
        "on_error": declaration.on_error,
        "partition_spec": declaration.partition_spec and [*map(str, declaration.partition_spec)],
        "sort_order": declaration.sort_order and [*map(str, declaration.sort_order)],
    }
    columns = [
        {"name": name, "data_type": spark_types.in_spark(column)}
        for name, column in spark_types.children(declaration.columns).items()
    ]
    subjects = {person.kind: [*person.columns] for person in declaration.persons}
    return {
        "name": declaration.table,
        "columns": columns,
        "config": {"meta": {"kafka": kafka, "subjects": subjects}},
    }


def produce(
    topic: TopicFixture, count: int, start: int = 0, partitions: tuple[int, ...] = (0, 1, 2), stamp: int | None = None
) -> None:
    """Produce sales in turn over partitions; those with a stamp, in milliseconds, are a millisecond apart."""
    schema_id = topic.register(SALE)
    for index in range(start, start + count):
        value = topic.encode(schema_id, {"id": index, "note": "n" * 20})
        stamped = {} if stamp is None else {"timestamp": stamp + index}
        topic.produce(value, partitions[index % len(partitions)], key=str(index).encode(), **stamped)
    topic.flush()


def assert_exactly_once(topic: TopicFixture, count: int) -> None:
    report = topic.verify(decoded=True)
    assert report.issues == []
    assert report.records == report.decoded == count
    rows = topic.rows()
    assert len(rows) == len({(row["kafka_partition"], row["kafka_offset"]) for row in rows}) == count
    assert_position_is_that_of_the_files(topic.table())


def assert_position_is_that_of_the_files(table: Table) -> None:
    """See that the last batch, if it counts, has the position of all files, and that no batch replaced a file."""
    assert position_of(table) == position_of(table, from_files=True)
    batches = [snapshot.summary for snapshot in table.snapshots() if snapshot.summary["lakehouse.ranges"]]
    assert [
        summary for summary in batches if summary["lakehouse.ranges"] != "{}" and summary["deleted-data-files"]
    ] == []


def assert_columns_hold_what_bytes_encode(topic: TopicFixture, rows: int) -> None:
    """See that so many rows hold what another decoder makes of their bytes."""
    report = topic.verify(decoded=True)
    assert (report.issues, report.notes, report.decoded) == ([], [], rows)


def assert_no_column_differs(topic: TopicFixture, rows: int) -> None:
    """See that of so many rows each holds what its bytes encode, or is counted as one that only Java can judge."""
    report = topic.verify(decoded=True)
    counts = [re.fullmatch(r"([\d,]+) rows were not compared: (.*)", note) for note in report.notes]
    assert report.issues == []
    assert all(counts), report.notes
    not_compared = sum(int(count[1].replace(",", "")) for count in counts if count)
    assert (report.decoded > 0, report.decoded + not_compared) == (True, rows), report.notes


def configure(topic: TopicFixture, name: str, value: str) -> None:
    """Set a configuration of the test's topic."""
    entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic.name, incremental_configs=[entry])
    for altered in topic.admin.incremental_alter_configs([resource]).values():
        altered.result()
