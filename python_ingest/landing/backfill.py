"""What the broker has and the table lacks before its position: a beginning never read, rows that are gone."""

from collections import defaultdict

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.table import Table

from lakehouse.catalog import readable
from lakehouse.settings import Settings
from python_ingest.kafka import peek
from python_ingest.kafka.broker import TopicState
from python_ingest.kafka.offset_range import OffsetRange
from python_ingest.landing.offsets import Position


def holes(
    settings: Settings,
    table: Table,
    topic: TopicState,
    position: Position,
    wait: float,
    empty: set[OffsetRange],
) -> list[OffsetRange]:
    """Return the stretches of offsets below the position that hold records a committed reader sees,
    and no row. Files without a hole of their own are known from statistics; of a partition with
    other files (transactions, log compaction, deleted rows) the offsets are read. Stretches without
    a record stay so; they are noted in `empty`, and not asked for again.

    Raises:
        UserError: the broker gives nothing for `wait` seconds.
    """
    held = _held(table)
    candidates = []
    for partition, until in sorted(position.next_offsets.items()):
        at = topic.begin[partition]
        for each in [*sorted(held[partition], key=lambda each: each.start), OffsetRange(partition, until, until)]:
            candidate = OffsetRange(partition, at, each.start)
            if each.start > at and candidate not in empty:
                candidates.append(candidate)
            at = max(at, each.until)
    if not candidates:
        return []
    stamps = peek.first_timestamps(settings, topic.topic, candidates, wait)
    found = [each for each, stamp in zip(candidates, stamps, strict=True) if stamp is not None]
    empty.update(set(candidates) - set(found))
    return found


def _held(table: Table) -> dict[int, list[OffsetRange]]:
    held: dict[int, list[OffsetRange]] = defaultdict(list)
    with_holes = set()
    for file in table.inspect.data_files().select(["record_count", "readable_metrics"]).to_pylist():
        bounds = file["readable_metrics"]["kafka_offset"]
        partition = file["readable_metrics"]["kafka_partition"]["lower_bound"]
        each = OffsetRange(partition, bounds["lower_bound"], bounds["upper_bound"] + 1)
        if file["record_count"] == each.until - each.start:
            held[partition].append(each)
        else:
            with_holes.add(partition)
    for partition in with_holes:
        held[partition] = _stretches(table, partition)
    return held


def _stretches(table: Table, partition: int) -> list[OffsetRange]:
    """Return stretches of offsets, unbroken within a piece of a file, that a table holds of a partition."""
    scan = table.scan(f"kafka_partition = {partition}", selected_fields=("kafka_offset",))
    found = []
    with readable(f"A file of {'.'.join(table.name())}"):
        for piece in scan.to_arrow_batch_reader():
            offsets = piece["kafka_offset"].sort()
            begins = pc.fill_null(pc.not_equal(pc.pairwise_diff(offsets), 1), True)
            ends = pa.concat_arrays([begins[1:], pa.array([True] * min(1, len(offsets)), pa.bool_())])
            stretches = zip(offsets.filter(begins).to_pylist(), offsets.filter(ends).to_pylist(), strict=True)
            found += [OffsetRange(partition, first, last + 1) for first, last in stretches]
    return found
