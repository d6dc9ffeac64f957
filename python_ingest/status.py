"""How each topic is doing: position, lag, freshness and the state of its table, without Spark."""

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from pyiceberg.conversions import from_bytes
from pyiceberg.manifest import DataFile, DataFileContent
from pyiceberg.table import Table

from lakehouse.catalog import load_catalog, load_table
from lakehouse.errors import UserError
from lakehouse.settings import Settings
from python_ingest import identity, offsets, peek
from python_ingest.broker import Broker
from python_ingest.offsets import OffsetRange, Position, PositionReader
from python_ingest.table_files import TableSize, files_of, size_of
from python_ingest.topics import Declaration

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
LATEST = datetime.max.replace(tzinfo=UTC)


@dataclass
class TopicStatus:
    """One topic and its table; what could not be learned because of `error` is None.

    `next_offsets` maps a partition to the offset after its last landed record. `lag_offsets` counts the offsets that
    are left, those of transaction markers included; `lag_seconds` is the age of the oldest record that is left, 0
    without one. `newest_record` is the greatest Kafka timestamp landed, `landed_at` the time of the last batch.
    """

    topic: str
    table: str
    next_offsets: dict[int, int] = field(default_factory=dict)
    lag_offsets: int | None = None
    lag_seconds: float | None = None
    rows: int | None = None
    dead_letters: int | None = None
    newest_record: datetime | None = None
    landed_at: datetime | None = None
    last_batch: int | None = None
    size: TableSize | None = None
    error: str | None = None

    def row(self) -> dict[str, str | int | None]:
        """Return what a person wants to see first."""
        size = self.size
        return {
            "topic": self.topic,
            "rows": self.rows,
            "dead letters": self.dead_letters,
            "lag": self.lag_offsets,
            "lag seconds": None if self.lag_seconds is None else round(self.lag_seconds),
            "files": size and size.data_files,
            "small files": size and size.small_files,
            "MB": size and round(size.data_bytes / 1e6),
            "snapshots": size and size.snapshots,
            "newest record": self.newest_record and f"{self.newest_record:%Y-%m-%d %H:%M:%S}",
        }


def topic_statuses(settings: Settings, declarations: list[Declaration], wait: float) -> Iterator[TopicStatus]:
    """Yield the status of each topic; one that cannot be described says why, and leaves the others alone.

    A broker that does not answer is waited for once, for `wait` seconds.
    """
    broker: Broker | UserError = Broker(settings, wait)
    try:
        broker.check()
    except UserError as error:
        broker = error
    for declaration in declarations:
        status = TopicStatus(declaration.topic, declaration.identifier)
        try:
            table = load_table(load_catalog(settings), declaration.identifier)
            position = Position() if table is None else _describe_table(status, table)
            if isinstance(broker, UserError):
                raise broker
            topic = broker.describe(declaration.topic)
            if table is not None:
                identity.check(table, declaration, topic, position)
                identity.accept_gaps(table, topic.topic, offsets.lost(position, topic), accept=False)
            ranges = offsets.waiting(position, topic)
            status.lag_offsets = offsets.count(ranges)
            status.lag_seconds = _age_of_oldest(settings, declaration.topic, ranges, wait)
        except UserError as error:
            status.error = str(error)
        yield status


def _describe_table(status: TopicStatus, table: Table) -> Position:
    files = files_of(table)
    position = PositionReader().read(table)
    status.next_offsets, status.last_batch = position.next_offsets, position.last_batch
    status.size = size_of(table, files)
    data = [file for file in files if file.content == DataFileContent.DATA]
    status.newest_record = _greatest(data, table, "kafka_timestamp")
    status.landed_at = _greatest(data, table, "ingested_at")
    if not status.size.delete_files:  # else the statistics count rows that are gone
        error = table.schema().find_field("decode_error").field_id
        status.rows = sum(file.record_count for file in data)
        status.dead_letters = sum(file.record_count - (file.null_value_counts or {}).get(error, 0) for file in data)
    return position


def _greatest(files: list[DataFile], table: Table, column: str) -> datetime | None:
    """Return the greatest time in a column, from the files' statistics; the end of the year 9999 for a later one, as
    of a producer that stamps microseconds."""
    found = table.schema().find_field(column)
    bounds = [(file.upper_bounds or {}).get(found.field_id) for file in files]
    times = [from_bytes(found.field_type, bound) for bound in bounds if bound is not None]
    latest = (LATEST - EPOCH) // timedelta(microseconds=1)
    return EPOCH + timedelta(microseconds=min(max(times), latest)) if times else None


def _age_of_oldest(settings: Settings, topic: str, ranges: list[OffsetRange], wait: float) -> float:
    """Return how many seconds ago the oldest record in the ranges was produced; 0 if they hold none."""
    stamps = peek.first_timestamps(settings, topic, ranges, wait) if ranges else []
    return max([0.0, *(time.time() - stamp for stamp in stamps if stamp is not None)])
