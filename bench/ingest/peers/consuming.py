"""A topic from its beginning to its present end, by librdkafka, for the peers written in Python."""

from collections.abc import Iterator

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from python_common.config import connections
from python_common.config.settings import Settings

RECORDS_PER_CALL = 10_000
SECONDS_PER_CALL = 0.2
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
    silent = 0.0
    try:
        while reading:
            messages = consumer.consume(RECORDS_PER_CALL, SECONDS_PER_CALL)
            silent = 0.0 if messages else silent + SECONDS_PER_CALL
            if silent > PATIENCE_SECONDS:
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
            records = []
            for message in messages:
                error = message.error()
                if error is None:
                    records.append(message)
                elif error.code() == KafkaError._PARTITION_EOF:
                    reading.discard(message.partition())
                else:
                    raise KafkaException(error)
            if records:
                yield records
    finally:
        consumer.close()
