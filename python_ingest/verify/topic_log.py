"""The records of a topic as a committed reader sees them, for verify."""

from collections.abc import Iterator

import pyarrow as pa
from confluent_kafka import Message

from python_common.config.settings import Settings
from python_ingest.kafka import consumer
from python_ingest.kafka.admin import Broker
from python_ingest.kafka.message import headers_of, record_position
from python_ingest.kafka.offset_range import OffsetRange

# What a record is compared by; headers that the client cannot read are NULL.
RECORD = pa.schema(
    [
        ("kafka_offset", pa.int64()),
        ("kafka_timestamp", pa.timestamp("us", "UTC")),
        ("kafka_timestamp_type", pa.int32()),
        ("kafka_raw_key", pa.large_binary()),
        ("kafka_raw_value", pa.large_binary()),
        ("kafka_headers", pa.large_list(pa.struct([("key", pa.large_string()), ("value", pa.large_binary())]))),
    ]
)
# In milliseconds; of a later one the table, which counts microseconds, has NULL.
LAST_STAMP = (2**63 - 1) // 1000
# What the client keeps of a record besides key and value.
MESSAGE_BYTES = 500
PIECE_BYTES = 64 * 1024 * 1024


class TopicLog:
    """A topic at the broker.

    Every method raises UserError if the broker does not answer within `wait` seconds, or refuses to.
    """

    def __init__(self, settings: Settings, topic: str, wait: float) -> None:
        self._settings = settings
        self._topic = topic
        self._wait = wait
        # A consumer would retry until the wait is over where a broker refuses the login.
        self._broker = Broker(settings, wait)
        self._broker.check()
        self._consumer = consumer.reader(settings, "lakehouse-verify")

    def close(self) -> None:
        """Leave the broker."""
        self._consumer.close()

    def begin(self) -> dict[int, int]:
        """Return the first offset that the broker still has, by partition; a UserError if there is no such topic."""
        return self._broker.describe(self._topic).begin

    def is_compacted(self) -> bool:
        """Return whether the log cleaner may have removed records."""
        return self._broker.is_compacted(self._topic)

    def holds_records(self, partition: int) -> bool:
        """Return whether a committed reader sees a record in a partition."""
        topic = self._broker.describe(self._topic)
        pieces = self.records(partition, topic.begin[partition], topic.end[partition])
        return any(len(records) for _, _, records in pieces)

    def records(self, partition: int, first: int, until: int) -> Iterator[tuple[int, int, pa.Table]]:
        """Yield a range of offsets piece by piece.

        A piece is its first offset, the one after its last, and the records in between, ordered, as a table of RECORD
        of about PIECE_BYTES.
        """
        span = OffsetRange(partition, first, until)
        piece: list[Message] = []
        size = 0
        for message in consumer.read_records(self._settings, self._topic, span, self._wait, opened=self._consumer):
            piece.append(message)
            size += MESSAGE_BYTES + len(message.key() or b"") + len(message.value() or b"")
            if size >= PIECE_BYTES:
                after = record_position(message)[1] + 1
                yield first, after, _columns(piece)
                piece, size, first = [], 0, after
        if first < until:
            yield first, until, _columns(piece)


def _columns(records: list[Message]) -> pa.Table:
    stamps = [record.timestamp() for record in records]
    columns = {
        "kafka_offset": [record.offset() for record in records],
        # Milliseconds, and a type that counts from 1 where the table's counts from 0.
        "kafka_timestamp": pa.array(
            [at if abs(at) <= LAST_STAMP else None for _, at in stamps], pa.timestamp("ms", "UTC")
        ).cast(pa.timestamp("us", "UTC")),
        "kafka_timestamp_type": [stamp_type - 1 for stamp_type, _ in stamps],
        "kafka_raw_key": [record.key() for record in records],
        "kafka_raw_value": [record.value() for record in records],
        "kafka_headers": list(map(headers_of, records)),
    }
    return pa.Table.from_pydict(columns, RECORD)
