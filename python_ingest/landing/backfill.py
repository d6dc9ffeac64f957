"""What the broker has and the table lacks before its position: a beginning never read, rows that are gone."""

from collections import defaultdict
from itertools import repeat
from operator import attrgetter

from pyiceberg.table import Table

from lakehouse.catalog import readable
from lakehouse.settings import Settings
from python_ingest.kafka import peek
from python_ingest.kafka.broker import TopicState
from python_ingest.kafka.offset_range import OffsetRange, stretches
from python_ingest.landing.offsets import Position


def holes(
    settings: Settings,
    table: Table,
    topic: TopicState,
    position: Position,
    wait: float,
    empty: set[OffsetRange],
) -> list[OffsetRange]:
    """Return the stretches of offsets below the position that hold records a committed reader sees, and no row.

    Files without a hole of their own are known from statistics; of a partition with other files (transactions, log
    compaction, deleted rows) the offsets are read. Stretches without a record stay so; they are noted in `empty`, and
    not asked for again.

    Raises:
        UserError: the broker gives nothing for `wait` seconds.
    """
    held = _held(table)
    candidates = []
    for partition, until in sorted(position.next_offsets.items()):
        at = topic.begin[partition]
        for landed in [*sorted(held[partition], key=attrgetter("start")), OffsetRange(partition, until, until)]:
            candidate = OffsetRange(partition, at, landed.start)
            if landed.start > at and candidate not in empty:
                candidates.append(candidate)
            at = max(at, landed.until)
    if not candidates:
        return []
    stamps = peek.first_timestamps(settings, topic.topic, candidates, wait)
    found = [candidate for candidate, stamp in zip(candidates, stamps, strict=True) if stamp is not None]
    empty.update(set(candidates) - set(found))
    return found


def _held(table: Table) -> dict[int, list[OffsetRange]]:
    held: dict[int, list[OffsetRange]] = defaultdict(list)
    with_holes = set()
    for file in table.inspect.data_files().select(["record_count", "readable_metrics"]).to_pylist():
        bounds = file["readable_metrics"]["kafka_offset"]
        partition = file["readable_metrics"]["kafka_partition"]["lower_bound"]
        span = OffsetRange(partition, bounds["lower_bound"], bounds["upper_bound"] + 1)
        if file["record_count"] == span.until - span.start:
            held[partition].append(span)
        else:
            with_holes.add(partition)
    for partition in with_holes:
        held[partition] = _stretches(table, partition)
    return held


def _stretches(table: Table, partition: int) -> list[OffsetRange]:
    """Return stretches of offsets, unbroken within a piece of a file, that a table holds of a partition."""
    scan = table.scan(f"kafka_partition = {partition}", selected_fields=("kafka_offset",))
    found: list[OffsetRange] = []
    with readable(f"A file of {'.'.join(table.name())}"):
        for piece in scan.to_arrow_batch_reader():
            unbroken = stretches(piece["kafka_offset"]).to_pydict()
            found += map(OffsetRange, repeat(partition), unbroken["first"], unbroken["until"])
    return found
