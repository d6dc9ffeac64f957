"""Which schema ids stand in a range of records: a quick look before the first batch, and when a new id turns up."""

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from lakehouse import connections
from lakehouse.errors import UserError
from lakehouse.settings import Settings
from python_ingest.decode import HEADER_BYTES
from python_ingest.offsets import OffsetRange

RECORDS_PER_CALL = 10_000
SECONDS_PER_CALL = 0.2


def schema_ids(settings: Settings, topic: str, ranges: list[OffsetRange], wait: float) -> tuple[set[int], set[int]]:
    """Return the ids in the headers of values and of keys. There may be more than the ranges hold: of
    records behind a range's end, and of keys that only look like registry Avro.

    Raises:
        UserError: the broker gives nothing for `wait` seconds.
    """
    consumer = Consumer(
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
    values: set[int] = set()
    keys: set[int] = set()
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
                if _at_end(message, left):
                    left.pop(message.partition(), None)
                if message.error() is None:
                    _note(message.value(), values)
                    _note(message.key(), keys)
    except KafkaException as error:
        servers, reason = settings.kafka_bootstrap_servers, error.args[0].name()
        raise UserError(
            f"Kafka at {servers} does not give the records of {topic} ({reason})",
            "Check KAFKA_BOOTSTRAP_SERVERS and `lakehouse stack status`",
        ) from None
    finally:
        consumer.close()
    return values, keys


def _at_end(message: Message, left: dict[int, int]) -> bool:
    error = message.error()
    if error is None:
        return message.offset() + 1 >= left.get(message.partition(), 0)
    if error.code() == KafkaError._PARTITION_EOF:
        return True
    raise KafkaException(error)


def _note(part: bytes | None, ids: set[int]) -> None:
    # An id is a Java int: one with its highest bit set is negative, and no registry gives it.
    if part is not None and len(part) >= HEADER_BYTES and part[0] == 0 and part[1] < 0x80:
        ids.add(int.from_bytes(part[1:HEADER_BYTES], "big"))
