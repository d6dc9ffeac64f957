"""What the broker has and the table lacks before its position: a beginning never read, rows that are gone."""

from collections.abc import Iterator
from contextlib import closing

from pyiceberg.table import Table

from python_common.catalog import property_keys
from python_common.catalog.catalog import read_batches
from python_common.config.settings import Settings
from python_ingest.bronze.positions import Position
from python_ingest.kafka import consumer
from python_ingest.kafka.admin import TopicState
from python_ingest.kafka.message import record_position
from python_ingest.kafka.offset_range import OffsetRange, StoredOffsets

# So many offsets are read sooner than a consumer is positioned behind them.
OFFSETS_PER_SEEK = 100_000


def first_gaps(
    settings: Settings, table: Table, topic: TopicState, position: Position, wait: float, searched: dict[int, int]
) -> list[OffsetRange]:
    """Return each partition's first gap below the position that holds a record for a committed reader.

    `searched` maps a partition to the offset before which no gap is left, and is updated: of gaps without a record
    (transaction markers, log compaction) each is read once. A later process finds rows deleted there meanwhile.

    Raises:
        UserError: the broker gives nothing for `wait` seconds.
    """
    with_records, begin = [], property_keys.generation_start(table.properties)
    with closing(StoredOffsets()) as stored:
        _read_offsets(table, stored, position.generation, searched)
        # The log may be damaged there.
        for (partition, start), until in position.accepted_gaps.items():
            if start < position.next_offsets.get(partition, 0):
                stored.add_range(partition, start, until)
        for partition, until in sorted(position.next_offsets.items()):
            first = max(topic.begin[partition], begin.get(partition, 0), searched.get(partition, 0))
            stored.find_gaps(partition, first, until)
            rows = stored.query("select first, until from gaps where first >= $1 order by first", first)
            gaps = (OffsetRange(partition, *row) for row in rows)
            gap = _first_with_record(settings, topic.topic, gaps, until, wait)
            searched[partition] = gap.start if gap else until
            with_records += [gap] if gap else []
    return with_records


def _first_with_record(
    settings: Settings, topic: str, gaps: Iterator[OffsetRange], until: int, wait: float
) -> OffsetRange | None:
    """Read through neighbouring gaps in one pass, and return the first that holds a record."""
    gap = next(gaps, None)
    while gap is not None:
        for message in consumer.read_records(settings, topic, OffsetRange(gap.partition, gap.start, until), wait):
            _, offset = record_position(message)
            while gap is not None and gap.until <= offset:
                gap = next(gaps, None)
            if gap is None or gap.start <= offset:
                return gap
            if gap.start - offset > OFFSETS_PER_SEEK:
                break
        else:
            return None
    return None


def _read_offsets(table: Table, stored: StoredOffsets, generation: int, searched: dict[int, int]) -> None:
    """Add the offsets that a table holds of a generation, from where a partition is searched.

    Files without a gap are known from statistics. Of a partition with other files the offsets are read.
    """
    with_gaps = set()
    for file in table.inspect.data_files().select(["record_count", "readable_metrics"]).to_pylist():
        if (file["readable_metrics"].get("kafka_generation", {}).get("lower_bound") or 0) != generation:
            continue
        bounds = file["readable_metrics"]["kafka_offset"]
        partition = file["readable_metrics"]["kafka_partition"]["lower_bound"]
        first, last = bounds["lower_bound"], bounds["upper_bound"]
        if file["record_count"] == last + 1 - first:
            stored.add_range(partition, first, last + 1)
        else:
            with_gaps.add(partition)
    for partition in with_gaps:
        wanted = f"kafka_partition = {partition} and kafka_offset >= {searched.get(partition, 0)}"
        wanted += f" and kafka_generation = {generation}" if generation else ""
        for piece in read_batches(table, wanted, ("kafka_offset",)):
            stored.add(partition, piece["kafka_offset"])
