"""A topic from its beginning to its present end, by librdkafka, for the peers written in Python."""

from collections.abc import Iterator

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from lakehouse import connections
from lakehouse.settings import Settings

RECORDS_PER_CALL = 10_000
PATIENCE_SECONDS = 30


def chunks(settings: Settings, topic: str) -> Iterator[list[Message]]:
    """Yield all records of a topic, up to 10,000 at a time.

    Raises:
        KafkaException: the broker refuses, or is silent for half a minute.
    """
    consumer = Consumer(
        {
            **connections.kafka_client(settings),
            "group.id": "bench",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
        }
    )
    partitions = list(consumer.list_topics(topic, PATIENCE_SECONDS).topics[topic].partitions)
    consumer.assign([TopicPartition(topic, partition, 0) for partition in partitions])
    reading = set(partitions)
    try:
        while reading:
            messages = consumer.consume(RECORDS_PER_CALL, PATIENCE_SECONDS)
            if not messages:
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
            records = [each for each in messages if each.error() is None]
            for message in messages if len(records) < len(messages) else ():
                if message.error() is not None:
                    if message.error().code() != KafkaError._PARTITION_EOF:
                        raise KafkaException(message.error())
                    reading.discard(message.partition())
            yield records
    finally:
        consumer.close()
