"""Plans the offsets to read next from what the table's last batch or its files record and the broker's ends."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pyiceberg.conversions import from_bytes
from pyiceberg.manifest import DataFile, DataFileContent
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation, Snapshot
from pyiceberg.types import PrimitiveType

from python_common.catalog import property_keys
from python_common.catalog.catalog import history
from python_common.config.settings import Settings
from python_common.errors import UserError
from python_ingest.bronze.files import each_file
from python_ingest.kafka.admin import Broker, TopicState
from python_ingest.kafka.offset_range import OffsetRange


@dataclass(frozen=True)
class Position:
    """What one snapshot of a bronze table holds.

    `next_offsets` maps a partition to the offset after its last landed record, or to where it began
    when the table was made and it had none. `last_batch` is the greatest batch number ever given: 0
    for a table without rows, and never less after a rollback, because readers downstream remember the
    numbers they have seen. `held_batch` is the greatest of this snapshot's rows. Without `has_metadata` the
    snapshot that records where partitions without rows began has expired. `generation` counts how often the topic was
    recreated: batches are numbered across generations, offsets are of the last one. `accepted_gaps` have the offset
    after each gap, by its partition and first offset.
    """

    snapshot_id: int | None = None
    next_offsets: dict[int, int] = field(default_factory=dict)
    last_batch: int = 0
    held_batch: int = 0
    has_metadata: bool = True
    generation: int = 0
    accepted_gaps: dict[tuple[int, int], int] = field(default_factory=dict)

    def behind_gaps(self, partition: int, offset: int) -> int:
        """Return the first offset at or after another that is in no accepted gap."""
        while (partition, offset) in self.accepted_gaps:
            offset = self.accepted_gaps[partition, offset]
        return offset


def position_of(table: Table, from_files: bool = False) -> Position:
    """Return the position in the table's current snapshot, by default from its last batch alone.

    The last batch recorded the position, and its number is the greatest of all rows, for it claimed all greater ones.
    Both hold while nothing but compaction followed it; else they are read from all files, as with `from_files`.

    Raises:
        UserError: a file that is read is damaged, lacks the statistics or mixes Kafka partitions.
    """
    snapshot, current = table.current_snapshot(), property_keys.generation(table.properties)
    gaps = property_keys.accepted_gaps(table.properties)
    if snapshot is None:
        return Position(accepted_gaps=gaps)
    latest = _recorded_position(table)
    start = Position(None, property_keys.generation_start(table.properties))
    files = each_file(table) if from_files or not latest.has_metadata else ()
    of_files = (_file_position(file, table.schema(), current) for file in files if file.content == DataFileContent.DATA)
    next_offsets: dict[int, int] = {}
    held_batch = 0
    for position in (start, latest, *of_files):
        held_batch = max(held_batch, position.last_batch)
        for partition, offset in position.next_offsets.items():
            next_offsets[partition] = max(offset, next_offsets.get(partition, 0))
    last_batch = max(held_batch, last_number(table))
    return Position(snapshot.snapshot_id, next_offsets, last_batch, held_batch, latest.has_metadata, current, gaps)


def lost(position: Position, topic: TopicState) -> list[OffsetRange]:
    """Return the ranges that the broker deleted before they were landed.

    Without metadata of a batch an unknown partition counts from 0: it may have been empty when the table was made.
    """
    unknown = {} if position.has_metadata else dict.fromkeys(topic.begin, 0)
    return [
        OffsetRange(partition, landed, topic.begin[partition])
        for partition, landed in sorted((unknown | position.next_offsets).items())
        if topic.begin.get(partition, 0) > landed
    ]


def waiting(position: Position, topic: TopicState) -> list[OffsetRange]:
    """Return what the topic has beyond a position, per partition; [] when caught up.

    Raises:
        UserError: the topic's offsets do not continue the table's.
    """
    ranges = []
    for partition, end in sorted(topic.end.items()):
        begin = topic.begin[partition]
        landed = position.next_offsets.get(partition, begin)
        if end < landed:
            raise UserError(
                f"{topic.topic}: partition {partition} ends at offset {end}, but the table already"
                f" holds offsets up to {landed - 1}",
                "The topic lost records; land it in a new table, or restore the topic",
            )
        start = position.behind_gaps(partition, max(landed, begin))
        if end > start:
            ranges.append(OffsetRange(partition, start, end))
    missing = set(position.next_offsets) - set(topic.end)
    if missing:
        raise UserError(
            f"{topic.topic}: the table holds partition {min(missing)}, the topic does not",
            "The topic was replaced; land it in a new table",
        )
    return ranges


def unread_partitions(settings: Settings, table: Table, topic: str, wait: float) -> set[int]:
    """Return the partitions with offsets that the topic's bronze table lacks: all, if the topic was recreated.

    Raises:
        UserError: the broker does not answer within `wait` seconds, or its offsets do not continue the table's.
    """
    position = position_of(table)
    state = Broker(settings, wait).describe(topic)
    if table.properties.get(property_keys.TOPIC_ID) != state.topic_id:
        return {*position.next_offsets, *state.end}
    return {span.partition for span in waiting(position, state)}


def count(ranges: Iterable[OffsetRange]) -> int:
    """Return how many offsets the ranges span."""
    return sum(span.until - span.start for span in ranges)


def before(ranges: Iterable[OffsetRange], ends: Mapping[int, int]) -> list[OffsetRange]:
    """Cut ranges off at an offset per partition; a partition without one has nothing before it."""
    cut = (OffsetRange(span.partition, span.start, min(span.until, ends.get(span.partition, 0))) for span in ranges)
    return [span for span in cut if span.until > span.start]


def capped(ranges: list[OffsetRange], max_records: int) -> list[OffsetRange]:
    """Share `max_records` out evenly; what a short range leaves goes to the longer ones."""
    capped = []
    left = max_records
    by_length = sorted(ranges, key=lambda span: span.until - span.start)
    for index, span in enumerate(by_length):
        share = max(1, left // (len(by_length) - index))
        until = min(span.until, span.start + share)
        left -= until - span.start
        capped.append(OffsetRange(span.partition, span.start, until))
        if left <= 0:
            break
    return sorted(capped, key=lambda span: span.partition)


def _recorded_position(table: Table) -> Position:
    """Return how far the latest batch had read: beyond its last record, if a range ends without one.

    Without it a tail of transaction markers or aborted records would be read again and again.
    It counts only if nothing but compaction followed it: deleted rows are landed again.
    """
    for snapshot, entries in history(table):
        if property_keys.READ_UNTIL in entries:
            read_until = json.loads(entries[property_keys.READ_UNTIL])
            ends = {int(partition): offset for partition, offset in read_until.items()}
            if property_keys.generation(entries) != property_keys.generation(table.properties):
                ends = {}  # the properties have where this generation begins
            return Position(None, ends, int(entries[property_keys.BATCH]))
        if snapshot.summary is None or snapshot.summary.operation != Operation.REPLACE:
            break
    return Position(has_metadata=False)


def last_number(table: Table) -> int:
    """Return the greatest batch number that must not be assigned again, whether or not its rows are still there.

    `lakehouse.last-batch` replaces snapshots that expired after a rollback.
    """
    return max([int(table.properties.get(property_keys.LAST_BATCH, 0)), *map(batch_number, table.snapshots())])


def batch_number(snapshot: Snapshot) -> int:
    """Return the number of the batch that a snapshot holds, 0 if it is of no batch."""
    return int(snapshot.summary.get(property_keys.BATCH) or 0) if snapshot.summary else 0


def _file_position(file: DataFile, schema: Schema, current: int) -> Position:
    columns = ("kafka_partition", "kafka_offset", "ingest_batch")
    partition, offset, batch = (_bounds(file, schema, column) for column in columns)
    of_file = _generation(file, schema)
    if partition is None or offset is None or batch is None or of_file is None or partition[0] != partition[1]:
        raise UserError(
            f"{file.file_path} lacks statistics of the Kafka columns or mixes Kafka partitions or generations",
            "Restore the table's metrics properties and partitioning, and rewrite the file",
        )
    return Position(None, {partition[0]: offset[1] + 1} if of_file == current else {}, batch[1])


def _generation(file: DataFile, schema: Schema) -> int | None:
    """Return the generation of a file's rows, NULL of which is 0; None if it is unknown or there are several."""
    if "kafka_generation" not in schema.column_names:
        return 0
    field_id = schema.find_field("kafka_generation").field_id
    nulls = (file.null_value_counts or {}).get(field_id, file.record_count)
    if nulls == file.record_count:
        return 0
    bounds = _bounds(file, schema, "kafka_generation")
    return bounds[0] if bounds and bounds[0] == bounds[1] and not nulls else None


def _bounds(file: DataFile, schema: Schema, column: str) -> tuple[int, int] | None:
    lower, upper = bound(file.lower_bounds, schema, column), bound(file.upper_bounds, schema, column)
    return None if lower is None or upper is None else (lower, upper)


def bound(bounds: Mapping[int, bytes] | None, schema: Schema, column: str) -> int | None:
    """Return a file's lower or upper bound of a column of numbers or times; None if it has none."""
    field = schema.find_field(column)
    encoded = (bounds or {}).get(field.field_id)
    if encoded is None or not isinstance(field.field_type, PrimitiveType):
        return None
    value: Any = from_bytes(field.field_type, encoded)
    return int(value)
