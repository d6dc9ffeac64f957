"""The status of each topic: position, lag, freshness and the state of its table, without Spark."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Annotated

from pyiceberg.manifest import DataFile, DataFileContent
from pyiceberg.table import Table

from python_common.catalog.catalog import load_catalog, load_table
from python_common.config.settings import Settings
from python_common.errors import UserError
from python_common.failure import to_user_error
from python_ingest.bronze import commit, erased, positions, topic_identity
from python_ingest.bronze.files import TableSize, each_file, size_of
from python_ingest.bronze.positions import Position, position_of
from python_ingest.bronze.schema_state import SchemaState
from python_ingest.declare.topics import Declaration
from python_ingest.kafka import consumer
from python_ingest.kafka.admin import Broker

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
RECENT = timedelta(days=7)
EARLIEST, LATEST = (end.replace(tzinfo=UTC) for end in (datetime.min, datetime.max))


@dataclass
class TopicStatus:
    """One topic and its table; None is unknown because of `error`. A field with a text is a metric.

    `next_offsets` maps a partition to the offset after its last landed record. While a transaction hangs, the held back
    figures grow and the lag, which counts transaction markers too, stays 0. Erased rows are no dead letters.
    `newest_record` is the greatest landed Kafka timestamp, `landed_at` the time of the last batch.
    """

    topic: str
    table: str
    next_offsets: dict[int, int] = field(default_factory=dict)
    lag_offsets: Annotated[int | None, "Offsets that are not landed yet."] = None
    lag_seconds: Annotated[float | None, "Age of the oldest record that is not landed yet; 0 without one."] = None
    held_back_offsets: Annotated[int | None, "Offsets of an open transaction, and all that came after it."] = None
    held_back_seconds: Annotated[float | None, "Age of the oldest record held back so; 0 without one."] = None
    rows: Annotated[int | None, "Rows in the bronze table."] = None
    dead_letters: Annotated[int | None, "Rows that could not be decoded."] = None
    recent_dead_letters: Annotated[int | None, "Rows of the last week's batches that could not be decoded."] = None
    over_limit: Annotated[bool | None, "1 if these are more than the topic's declaration allows, 0 if not."] = None
    key_errors: Annotated[int | None, "Rows whose key could not be decoded."] = None
    omitted_fields: Annotated[int | None, "Fields of landed schemas that no column can hold."] = None
    erased: Annotated[int | None, "Rows that were erased."] = None
    newest_record: datetime | None = None
    landed_at: datetime | None = None
    last_batch: Annotated[int | None, "Number of the last batch."] = None
    size: TableSize | None = None
    notes: list[str] = field(default_factory=list)
    error: str | None = None

    def remarks(self) -> list[str]:
        """Return the notes that complete the figures of `row`."""
        return [*([undecoded_keys(self.key_errors)] if self.key_errors else []), *self.notes]

    def row(self) -> dict[str, object]:
        """Return the main figures, by heading."""
        size = self.size
        return {
            "topic": self.topic,
            "rows": self.rows,
            "dead letters": self.dead_letters,
            "too many": None if self.over_limit is None else "yes" if self.over_limit else "no",
            "lag": self.lag_offsets,
            "lag seconds": None if self.lag_seconds is None else round(self.lag_seconds),
            "held back": self.held_back_offsets,
            "files": size and size.data_files,
            "small files": size and size.small_files,
            "MB": size and round(size.data_bytes / 1e6),
            "snapshots": size and size.snapshots,
            "newest record": self.newest_record and f"{self.newest_record:%Y-%m-%d %H:%M:%S}",
        }


def undecoded_keys(count: int) -> str:
    """Return the note about undecoded keys."""
    return f"{count:,} keys could not be decoded: see `lakehouse ingest dead-letters`"


def topic_statuses(settings: Settings, declarations: list[Declaration], wait: float) -> Iterator[TopicStatus]:
    """Yield the status of each topic, with an error if one cannot be described.

    A broker that does not answer is waited for once, for `wait` seconds.
    """
    broker, unreachable = Broker(settings, wait), None
    try:
        broker.check()
    except UserError as error:
        unreachable = error
    for declaration in declarations:
        status = TopicStatus(declaration.topic, declaration.identifier)
        try:
            table = load_table(load_catalog(settings), declaration.identifier)
            position = Position() if table is None else _describe_table(status, table, declaration)
            if unreachable is not None:
                raise unreachable
            topic = broker.describe(declaration.topic)
            if table is not None:
                topic_identity.check(table, declaration, topic, position)
                topic_identity.accept_gaps(table, topic.topic, positions.lost(position, topic), accept=False)
            ranges = positions.waiting(position, topic)
            status.lag_offsets = positions.count(ranges)
            status.lag_seconds = consumer.age_of_oldest(settings, declaration.topic, ranges, wait)
            of_transactions = broker.beyond_last_stable_offset(topic)
            status.held_back_offsets = positions.count(of_transactions)
            status.held_back_seconds = consumer.age_of_oldest(
                settings, declaration.topic, of_transactions, wait, "read_uncommitted"
            )
        except Exception as error:  # the other topics are described all the same
            status.error = str(to_user_error(error, settings))
        yield status


def _describe_table(status: TopicStatus, table: Table, declaration: Declaration) -> Position:
    files = [*each_file(table)]
    position = position_of(table)
    status.next_offsets, status.last_batch = position.next_offsets, position.last_batch
    status.size = size_of(table, files)
    state = SchemaState.of(table)
    status.notes = [text for _, text in sorted(state.notes.items())]
    status.omitted_fields = len(state.omitted_fields())
    data = [file for file in files if file.content == DataFileContent.DATA]
    emptied = erased.rows_by_file(table)
    status.newest_record = _greatest(data, table, "kafka_timestamp")
    status.landed_at = _greatest(data, table, "ingested_at")
    if not status.size.delete_files:  # else the statistics count rows that are gone
        status.erased = sum(emptied.values())
        status.rows, status.dead_letters = _rows_and_dead_letters(data, table, emptied)
        status.key_errors = commit.not_null(data, table, "key_error")
        since = datetime.now(UTC) - RECENT
        recent = [file for file in data if (_greatest([file], table, "ingested_at") or EPOCH) > since]
        rows, status.recent_dead_letters = _rows_and_dead_letters(recent, table, emptied)
        status.over_limit = declaration.max_dead_letters.exceeded(rows, status.recent_dead_letters)
    return position


def _rows_and_dead_letters(files: list[DataFile], table: Table, emptied: dict[str, int]) -> tuple[int, int]:
    erased_rows = sum(emptied.get(file.file_path, 0) for file in files)
    return sum(file.record_count for file in files), commit.not_null(files, table, "decode_error") - erased_rows


def _greatest(files: list[DataFile], table: Table, column: str) -> datetime | None:
    """Return the greatest time in a column, from the files' statistics, within datetime's years."""
    bounds = [positions.bound(file.upper_bounds, table.schema(), column) for file in files]
    times = [bound for bound in bounds if bound is not None]
    earliest, latest = ((end - EPOCH) // timedelta(microseconds=1) for end in (EARLIEST, LATEST))
    return EPOCH + timedelta(microseconds=max(earliest, min(max(times), latest))) if times else None
