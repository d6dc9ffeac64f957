"""A quick look into ranges of records: which schema ids stand in them, or when their first records were produced."""

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from lakehouse import connections
from lakehouse.errors import UserError
from lakehouse.settings import Settings
from python_ingest.decode import HEADER_BYTES
from python_ingest.offsets import OffsetRange

RECORDS_PER_CALL = 10_000
SECONDS_PER_CALL = 0.2


def schema_ids(settings: Settings, topic: str, ranges: list[OffsetRange], wait: float) -> tuple[set[int], set[int]]:
    """Return the ids in the headers of values and of keys. There may be more than the ranges hold: of a
    few records behind a range's end, and of keys that only look like registry Avro.

    Raises:
        UserError: the broker gives nothing for `wait` seconds.
    """
    consumer = _consumer(settings)
    values: set[int | None] = set()
    keys: set[int | None] = set()
    left = {each.partition: each.until for each in ranges}
    consumer.assign([TopicPartition(topic, each.partition, each.start) for each in ranges])
    silent = 0.0
    try:
        while left:
            messages = consumer.consume(RECORDS_PER_CALL, SECONDS_PER_CALL)
            silent = 0.0 if messages else silent + SECONDS_PER_CALL
            if silent >= wait:
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
            for message in messages:
                if _at_end(message, left) and left.pop(message.partition(), None) is not None:
                    consumer.pause([TopicPartition(topic, message.partition())])
                if message.error() is None:
                    values.add(schema_id(message.value()))
                    keys.add(schema_id(message.key()))
    except KafkaException as error:
        raise _unanswered(settings, topic, error) from None
    finally:
        consumer.close()
    return values - {None}, keys - {None}


def schema_id(part: bytes | None) -> int | None:
    """Return the schema id in the header of a key or value, None if it has none. An id is a Java
    int: one with its highest bit set is negative, and no registry gives it."""
    if part is None or len(part) < HEADER_BYTES or part[0] != 0 or part[1] >= 0x80:
        return None
    return int.from_bytes(part[1:HEADER_BYTES], "big")


def first_timestamps(settings: Settings, topic: str, ranges: list[OffsetRange], wait: float) -> list[float | None]:
    """Return, range by range, the timestamp in seconds since 1970 of the first record that a committed reader
    sees in it; None if the range holds no record.

    Raises:
        UserError: the broker gives nothing for `wait` seconds.
    """
    consumer = _consumer(settings)
    found: list[float | None] = []
    try:
        for each in ranges:
            consumer.assign([TopicPartition(topic, each.partition, each.start)])
            message = consumer.poll(wait)
            if message is None:
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
            nothing = message.error() is not None and _at_end(message, {})
            inside = not nothing and message.offset() < each.until
            found.append(message.timestamp()[1] / 1000 if inside else None)
        return found
    except KafkaException as error:
        raise _unanswered(settings, topic, error) from None
    finally:
        consumer.close()


def _consumer(settings: Settings) -> Consumer:
    return Consumer(
        {
            **connections.kafka_client(settings),
            "group.id": "lakehouse-ingest-peek",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
            "auto.offset.reset": "error",
            # A partition that is read to its end must not cost half a second.
            "fetch.wait.max.ms": 20,
        }
    )


def _unanswered(settings: Settings, topic: str, error: KafkaException) -> UserError:
    return UserError(
        f"Kafka at {settings.kafka_bootstrap_servers} does not give the records of {topic} ({error.args[0].name()})",
        "Check KAFKA_BOOTSTRAP_SERVERS and `lakehouse stack status`",
    )


def _at_end(message: Message, left: dict[int, int]) -> bool:
    error = message.error()
    if error is None:
        return message.offset() + 1 >= left.get(message.partition(), 0)
    if error.code() == KafkaError._PARTITION_EOF:
        return True
    raise KafkaException(error)
