"""Reads offset ranges with a plain consumer: records, their schema ids, sizes and first timestamps.

Each function raises a UserError if the broker gives nothing for `wait` seconds.
"""

import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from python_common.config import connections
from python_common.config.settings import Settings
from python_common.errors import UserError
from python_ingest.kafka.admin import passing
from python_ingest.kafka.message import record_position, schema_id
from python_ingest.kafka.offset_range import OffsetRange

Ids = Counter[int | None]
RECORDS_PER_CALL = 10_000
SECONDS_PER_CALL = 0.2
SAMPLE_RECORDS = 10
# A batch of the log that fails its checksum, or cannot be decompressed, which few readers check.
DAMAGED = (KafkaError._BAD_MSG, KafkaError._BAD_COMPRESSION)
LOOK_ENDS = (KafkaError._PARTITION_EOF, *DAMAGED)


class DamagedLog(UserError):
    """A batch of Kafka's log is damaged."""


def schema_ids(settings: Settings, topic: str, ranges: list[OffsetRange], wait: float) -> tuple[Ids, Ids]:
    """Return the ids in the headers of values and of keys, and how often they come; None of what has no header.

    There may be more than the ranges hold: of a few records behind a range's end, and of keys that only look like
    registry Avro.
    """
    values, keys = Ids(), Ids()
    for message in _consume(settings, topic, ranges, wait, ends=LOOK_ENDS):
        values[schema_id(message.value())] += 1
        keys[schema_id(message.key())] += 1
    return values, keys


def mean_bytes(settings: Settings, topic: str, ranges: list[OffsetRange], wait: float) -> int:
    """Return the mean size of the first records of ranges, key and value; 0 if they hold none."""
    first = [replace(span, until=min(span.until, span.start + SAMPLE_RECORDS)) for span in ranges]
    messages = _consume(settings, topic, first, wait, ends=LOOK_ENDS)
    sizes = [len(message.value() or b"") + len(message.key() or b"") for message in messages]
    return sum(sizes) // max(1, len(sizes))


def read_records(
    settings: Settings,
    topic: str,
    span: OffsetRange,
    wait: float,
    check_crcs: bool = False,
    opened: Consumer | None = None,
) -> Iterator[Message]:
    """Yield the committed records of an offset range in their order; an `opened` consumer stays open.

    Raises:
        DamagedLog: a batch of the range cannot be decompressed or, with `check_crcs`, fails its checksum.
    """
    messages = _consume(settings, topic, [span], wait, check_crcs=check_crcs, opened=opened)
    return (message for message in messages if record_position(message)[1] < span.until)


def damaged_batches(settings: Settings, topic: str, ranges: list[OffsetRange], wait: float) -> list[OffsetRange]:
    """Return of each range the first batch of the log that fails its checksum, as far as the range holds it."""
    consumer = reader(settings, check_crcs=True)
    damaged = []
    for span in ranges:
        first = _first_damaged(consumer, topic, span.partition, span.start, span.until, wait)
        if first is not None:
            start = max(first, span.start)
            # From each offset in it, the whole batch is read again.
            more = bisect_left(
                range(start + 1, span.until),
                True,
                key=lambda at: _first_damaged(consumer, topic, span.partition, at, at + 1, wait) != first,
            )
            damaged.append(OffsetRange(span.partition, start, start + 1 + more))
    consumer.close()
    return damaged


def _first_damaged(consumer: Consumer, topic: str, partition: int, start: int, until: int, wait: float) -> int | None:
    """Return where the first damaged batch begins; None if there is none, or Kafka stops answering."""
    consumer.assign([TopicPartition(topic, partition, start)])
    while messages := consumer.consume(RECORDS_PER_CALL, SECONDS_PER_CALL) or consumer.consume(1, wait):
        for message in messages:
            error, offset = message.error(), message.offset()
            if error is not None and error.code() in DAMAGED:
                return offset
            if (error is not None and not passing(error)) or (error is None and (offset or 0) + 1 >= until):
                return None
    return None


def _consume(
    settings: Settings,
    topic: str,
    ranges: list[OffsetRange],
    wait: float,
    isolation: str = "read_committed",
    first_alone: bool = False,
    ends: tuple[int, ...] = (KafkaError._PARTITION_EOF,),
    check_crcs: bool = False,
    opened: Consumer | None = None,
) -> Iterator[Message]:
    """Yield the records of ranges, one per partition, and perhaps a few behind them; or the first of each alone.

    `ends` are the errors that end a range, as damage behind it does. A consumer that is `opened` stays open.
    """
    consumer = opened or reader(settings, isolation=isolation, check_crcs=check_crcs)
    left = {span.partition: span.until for span in ranges}
    consumer.assign([TopicPartition(topic, span.partition, span.start) for span in ranges])
    offsets_left = sum(span.until - span.start for span in ranges)
    silent = 0.0
    try:
        while left:
            # Not more than there may be: the client would wait for the rest.
            consumed = consumer.consume(min(RECORDS_PER_CALL, max(1, offsets_left)), SECONDS_PER_CALL)
            offsets_left -= len(consumed)
            messages = [message for message in consumed if not _is_passing(message.error())]
            silent = 0.0 if messages else silent + SECONDS_PER_CALL
            if silent >= wait:
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
            for message in messages:
                if not left:
                    break
                error = message.error()
                # First: an error of the consumer itself has no position.
                if error is not None and error.code() not in (*ends, *DAMAGED):
                    raise KafkaException(error)
                partition, offset = record_position(message)
                if error is not None and error.code() not in ends and offset < left.get(partition, 0):
                    raise KafkaException(error)
                if error is None and (partition in left or not first_alone):
                    yield message
                is_end = error is not None or offset + 1 >= left.get(partition, 0)
                # The last partition stays: an opened consumer may be assigned it again.
                if (is_end or first_alone) and left.pop(partition, None) is not None and left:
                    consumer.pause([TopicPartition(topic, partition)])
    except KafkaException as error:
        raise _unanswered(settings, topic, error.args[0]) from None
    finally:
        if opened is None:
            consumer.close()


def _is_passing(error: KafkaError | None) -> bool:
    """Return whether an error is transient: no answer, and no reason to stop waiting."""
    return error is not None and passing(error)


def age_of_oldest(
    settings: Settings, topic: str, ranges: list[OffsetRange], wait: float, isolation: str = "read_committed"
) -> float:
    """Return how many seconds ago the oldest record in ranges, one per partition, was produced; 0 if they hold none."""
    until = {span.partition: span.until for span in ranges}
    first = _consume(settings, topic, ranges, wait, isolation, first_alone=True) if ranges else ()
    positions = ((*record_position(message), message.timestamp()[1] / 1000) for message in first)
    ages = [time.time() - timestamp for partition, offset, timestamp in positions if offset < until[partition]]
    return max([0.0, *ages])


def reader(
    settings: Settings,
    group: str = "lakehouse-ingest-peek",
    isolation: str = "read_committed",
    check_crcs: bool = False,
) -> Consumer:
    """Return a consumer that reports the end of each partition and commits no offset."""
    return Consumer(
        {
            **connections.kafka_client(settings),
            "group.id": group,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": isolation,
            "check.crcs": check_crcs,
            "auto.offset.reset": "error",
            # A partition that is read to its end must not cost half a second.
            "fetch.wait.max.ms": 20,
        }
    )


def _unanswered(settings: Settings, topic: str, error: KafkaError) -> UserError:
    """Translate an error of a consumer."""
    if error.code() in DAMAGED:
        return DamagedLog(
            f"A batch of {topic} is damaged in Kafka's log ({error.name()})",
            f"Run `lakehouse ingest run {topic}`, which names the offsets if they have not landed, or restore the log",
        )
    return UserError(
        f"Kafka at {settings.kafka_bootstrap_servers} does not give the records of {topic} ({error.name()})",
        "Check KAFKA_BOOTSTRAP_SERVERS and `lakehouse stack status`, then try again",
    )
