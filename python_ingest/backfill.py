"""What the broker has and the table lacks before its position: a beginning never read, rows that are gone."""

from collections import defaultdict

from pyiceberg.expressions import EqualTo
from pyiceberg.table import Table

from lakehouse.settings import Settings
from python_ingest import peek
from python_ingest.broker import TopicState
from python_ingest.offsets import OffsetRange, Position


def holes(settings: Settings, table: Table, topic: TopicState, position: Position, wait: float) -> list[OffsetRange]:
    """Return the stretches of offsets below the position that hold records a committed reader sees,
    and no row. Files without a hole of their own are known from statistics; of a partition with
    other files (transactions, log compaction, deleted rows) the offsets are read.

    Raises:
        UserError: the broker gives nothing for `wait` seconds.
    """
    held = _held(table)
    candidates = []
    for partition, until in sorted(position.next_offsets.items()):
        at = topic.begin[partition]
        for each in [*sorted(held[partition], key=lambda each: each.start), OffsetRange(partition, until, until)]:
            if each.start > at:
                candidates.append(OffsetRange(partition, at, each.start))
            at = max(at, each.until)
    return [each for each in candidates if peek.first_timestamp(settings, topic.topic, each, wait) is not None]


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
    """Return the unbroken stretches of offsets that a table holds of a partition."""
    scan = table.scan(EqualTo("kafka_partition", partition), selected_fields=("kafka_offset",))
    offsets = sorted(set(scan.to_arrow()["kafka_offset"].to_pylist()))
    firsts = [offset for before, offset in zip([None, *offsets], offsets, strict=False) if before != offset - 1]
    lasts = [offset for offset, after in zip(offsets, [*offsets[1:], None], strict=True) if after != offset + 1]
    return [OffsetRange(partition, first, last + 1) for first, last in zip(firsts, lasts, strict=True)]
