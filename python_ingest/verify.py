"""The independent check: what a Kafka consumer reads against what PyIceberg reads, without Spark.

It shares the declarations with the ingester, and nothing of the way rows are planned or written.
Memory is bounded: partition by partition, in chunks of offsets, one digest per record.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, field

import pyarrow as pa
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.expressions import And, EqualTo, GreaterThanOrEqual, LessThan
from pyiceberg.table import Table
from pyiceberg.table.snapshots import ancestors_of

from lakehouse import connections
from lakehouse.catalog import load_catalog
from lakehouse.errors import UserError
from lakehouse.settings import Settings
from python_ingest.broker import Broker
from python_ingest.topics import Declaration

CHUNK_OFFSETS = 200_000
PROBLEMS_NAMED = 10
# Stands for a row that `on_error: skip` emptied: there are no bytes to compare.
EMPTIED = b"emptied"


@dataclass
class Report:
    """The outcome for one topic: how many records were compared, and the first problems."""

    topic: str
    records: int = 0
    problem_count: int = 0
    problems: list[str] = field(default_factory=list)

    def add(self, problem: str) -> None:
        """Count a problem, and keep it if it is one of the first."""
        self.problem_count += 1
        if len(self.problems) < PROBLEMS_NAMED:
            self.problems.append(problem)

    def line(self) -> str:
        """Return the outcome in a line."""
        verdict = f"{self.problem_count} problems, the first are" if self.problems else "all exactly once"
        return f"{self.topic}: {self.records:,} records compared: {verdict}"


@dataclass(frozen=True)
class _Span:
    """Offsets `first` (included) to `until` (excluded) that a table holds, or should, of one partition."""

    first: int
    until: int


def verify_topic(settings: Settings, declaration: Declaration, wait: float) -> Report:
    """Compare a bronze table with its topic.

    Every offset that a committed reader sees, from the first that the broker still has to the last
    that the table holds or claims to, must be in the table exactly once, with equal raw key and value. Rows that
    the broker no longer has are checked for duplicates.

    Raises:
        UserError: the topic does not exist, or the broker does not answer within `wait` seconds.
    """
    report = Report(declaration.topic)
    try:
        table = load_catalog(settings).load_table(declaration.identifier)
    except NoSuchTableError:
        report.add(f"there is no table {declaration.identifier}")
        return report
    bronze = _BronzeTable(table, declaration)
    spans = bronze.spans()
    log = _Log(settings, declaration.topic, wait)
    try:
        for partition in sorted(spans.keys() | log.begins.keys()):
            if partition not in log.begins:
                report.add(f"partition {partition} is in the table, but not in the topic")
            elif partition in spans:
                _compare(report, bronze, log, partition, spans[partition])
    finally:
        log.close()
    return report


def _compare(report: Report, table: _BronzeTable, log: _Log, partition: int, span: _Span) -> None:
    begin = log.begins[partition]
    produced = log.records(partition, span.until)
    ahead = next(produced, None)
    for start in range(min(span.first, begin), span.until, CHUNK_OFFSETS):
        until = min(start + CHUNK_OFFSETS, span.until)
        expected: dict[int, bytes] = {}
        while ahead is not None and ahead[0] < until:
            expected[ahead[0]] = ahead[1]
            ahead = next(produced, None)
        found: dict[int, list[bytes]] = {}
        for offset, digest in table.rows(partition, start, until):
            found.setdefault(offset, []).append(digest)
        report.records += len(expected)
        missing = [offset for offset in expected if offset not in found]
        for first, last in _runs(missing):
            report.add(f"partition {partition}: {_offsets(first, last)} missing in the table")
        for offset, digests in sorted(found.items()):
            place = f"partition {partition}: offset {offset}"
            if len(digests) > 1:
                report.add(f"{place} is there {len(digests)} times")
            if offset not in expected:
                if offset >= begin:
                    report.add(f"{place} is in the table, but not in the topic")
            elif any(digest not in (expected[offset], EMPTIED) for digest in digests):
                report.add(f"{place} has other bytes in the table than in the topic")


class _Log:
    """The topic as a committed reader sees it."""

    def __init__(self, settings: Settings, topic: str, wait: float) -> None:
        self._servers = settings.kafka_bootstrap_servers
        self._topic = topic
        self._wait = wait
        # A consumer would try until the wait is over where a broker turns it away.
        Broker(settings, wait).check()
        self._consumer = Consumer(
            {
                **connections.kafka_client(settings),
                "group.id": "lakehouse-verify",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "isolation.level": "read_committed",
                "auto.offset.reset": "error",
                # A partition that is read to its end must not cost half a second.
                "fetch.wait.max.ms": 20,
            }
        )
        try:
            metadata = self._consumer.list_topics(topic, timeout=wait).topics[topic]
            if metadata.error is not None:
                raise UserError(
                    f"The topic '{topic}' does not exist on {self._servers}",
                    "Create it, or remove its declaration from the dbt source",
                )
            self.begins = {
                partition: self._consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=wait)[0]
                for partition in metadata.partitions
            }
        except KafkaException as error:
            raise self._no_answer(error.args[0]) from None

    def close(self) -> None:
        self._consumer.close()

    def records(self, partition: int, until: int) -> Iterator[tuple[int, bytes]]:
        """Yield offset and digest of every record below an offset, in order."""
        self._consumer.assign([TopicPartition(self._topic, partition, self.begins[partition])])
        while True:
            message = self._consumer.poll(self._wait)
            if message is None:
                raise self._no_answer(KafkaError(KafkaError._TIMED_OUT))
            error = message.error()
            if error is not None and error.code() != KafkaError._PARTITION_EOF:
                raise self._no_answer(error)
            if error is not None or message.offset() >= until:
                return
            yield message.offset(), _digest(message.key(), message.value())

    def _no_answer(self, error: KafkaError) -> UserError:
        return UserError(
            f"Kafka at {self._servers} does not answer for {self._topic} ({error.name()})",
            "Check KAFKA_BOOTSTRAP_SERVERS and `lakehouse stack status`, then verify again",
        )


@dataclass(frozen=True)
class _BronzeTable:
    """The table at one snapshot: what it is loaded with."""

    table: Table
    declaration: Declaration

    def spans(self) -> dict[int, _Span]:
        """Return what the table holds of each partition."""
        found: dict[int, _Span] = {}
        scan = self.table.scan(selected_fields=("kafka_partition", "kafka_offset"))
        for batch in scan.to_arrow_batch_reader():
            coordinates = pa.table({"partition": batch["kafka_partition"], "offset": batch["kafka_offset"]})
            extremes = coordinates.group_by("partition").aggregate([("offset", "min"), ("offset", "max")])
            for row in extremes.to_pylist():
                first, until = row["offset_min"], row["offset_max"] + 1
                old = found.get(row["partition"], _Span(first, until))
                found[row["partition"]] = _Span(min(old.first, first), max(old.until, until))
        for partition, until in self._claimed().items():
            old = found.get(partition, _Span(until, until))
            found[partition] = _Span(old.first, max(old.until, until))
        return found

    def _claimed(self) -> dict[int, int]:
        """Return the offsets up to which the latest batch says the topic was read: rows missing at
        the end of a partition would else look as if they were still to come."""
        for snapshot in ancestors_of(self.table.current_snapshot(), self.table.metadata):
            read_until = snapshot.summary["lakehouse.read-until"] if snapshot.summary else None
            if read_until is not None:
                return {int(partition): offset for partition, offset in json.loads(read_until).items()}
        return {}

    def rows(self, partition: int, start: int, until: int) -> Iterator[tuple[int, bytes]]:
        """Yield offset and digest of every row in a stretch of offsets, in any order."""
        inside = And(GreaterThanOrEqual("kafka_offset", start), LessThan("kafka_offset", until))
        names = ("kafka_offset", "kafka_raw_key", "kafka_raw_value", "decode_error")
        scan = self.table.scan(And(EqualTo("kafka_partition", partition), inside), selected_fields=names)
        for batch in scan.to_arrow_batch_reader():
            columns = [batch[name].to_pylist() for name in names]
            for offset, key, value, error in zip(*columns, strict=True):
                skipped = self.declaration.on_error == "skip" and error is not None
                emptied = skipped and key is None and value is None
                yield offset, EMPTIED if emptied else _digest(key, value)


def _digest(key: bytes | None, value: bytes | None) -> bytes:
    digest = hashlib.blake2b(digest_size=16)
    for part in (key, value):
        digest.update(b"-" if part is None else len(part).to_bytes(8, "big"))
        digest.update(part or b"")
    return digest.digest()


def _runs(offsets: list[int]) -> Iterator[tuple[int, int]]:
    """Yield first and last of the stretches without a hole in sorted offsets."""
    first = last = None
    for offset in offsets:
        if last is None or offset != last + 1:
            if first is not None:
                yield first, last
            first = offset
        last = offset
    if first is not None:
        yield first, last


def _offsets(first: int, last: int) -> str:
    return f"offset {first} is" if first == last else f"offsets {first} to {last} are"
