"""Records whose timestamp Spark's Kafka source cannot read, as of a producer that stamps nanoseconds.

The source fails on a timestamp beyond what Spark can hold, and reads one before 1582 by the Julian calendar, days off.
So a batch ends before the first such record, and a plain consumer reads the next one, a short offset range that begins
with it. There a timestamp that no column can hold is NULL, which makes the record a dead letter.
"""

from itertools import islice

import pyarrow as pa
from confluent_kafka import Message
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from python_common.config.settings import Settings
from python_ingest.kafka import consumer
from python_ingest.kafka.message import headers_of, record_position
from python_ingest.kafka.offset_range import OffsetRange

# Spark counts microseconds, Kafka milliseconds.
LAST_MILLISECOND = (2**63 - 1) // 1000
# Midnight of 15 October 1582, the first day of the Gregorian calendar.
FIRST_MILLISECOND = -12_219_292_800_000
JULIAN = "ingest: a timestamp before 1582"
MOST_RECORDS = 20_000
MOST_BYTES = 32_000_000
# What Spark's Kafka source gives.
RECORD = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("timestampType", pa.int32()),
        ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
    ]
)


def refuse_julian(records: DataFrame) -> DataFrame:
    """Return the records of Spark's Kafka source; a timestamp that it reads by the Julian calendar fails the job."""
    is_julian = F.col("timestamp") < F.timestamp_millis(F.lit(FIRST_MILLISECOND))
    stamp = F.when(is_julian, F.raise_error(F.lit(JULIAN)).cast("timestamp")).otherwise(F.col("timestamp"))
    return records.withColumn("timestamp", stamp)


def first(settings: Settings, topic: str, ranges: list[OffsetRange], wait: float) -> dict[int, int]:
    """Return the offset of the first such record of each range, by partition, if any; raises as `read_records`."""
    offsets: dict[int, int] = {}
    for span in ranges:
        overflowing = filter(_is_beyond_spark, consumer.read_records(settings, topic, span, wait))
        offsets.update(map(record_position, islice(overflowing, 1)))
    return offsets


def read(settings: Settings, topic: str, span: OffsetRange, wait: float) -> tuple[pa.Table, OffsetRange]:
    """Return the first records of an offset range, and the range that they fill; raises as `read_records`."""
    rows = []
    size = 0
    for message in consumer.read_records(settings, topic, span, wait, check_crcs=True):
        rows.append(_row(message))
        size += len(message.key() or b"") + len(message.value() or b"")
        if len(rows) == MOST_RECORDS or size > MOST_BYTES:
            span = OffsetRange(span.partition, span.start, record_position(message)[1] + 1)
            break
    return pa.Table.from_pylist(rows, RECORD), span


def _is_beyond_spark(message: Message) -> bool:
    return not FIRST_MILLISECOND <= message.timestamp()[1] <= LAST_MILLISECOND


def _row(message: Message) -> dict[str, object]:
    stamp_type, stamp = message.timestamp()
    return {
        "key": message.key(),
        "value": message.value(),
        "topic": message.topic(),
        "partition": message.partition(),
        "offset": message.offset(),
        "timestamp": stamp * 1000 if abs(stamp) <= LAST_MILLISECOND else None,
        # The client's types count from 1, Spark's from 0.
        "timestampType": stamp_type - 1,
        "headers": headers_of(message),
    }
