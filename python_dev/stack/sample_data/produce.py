"""Puts a log into Kafka: every record lands at the partition and offset of the log, or the load fails."""

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import cast

from confluent_kafka import (
    TIMESTAMP_CREATE_TIME,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.error import SchemaRegistryError
from httpx2 import TransportError

from python_common.config import connections
from python_common.config.settings import Settings
from python_common.errors import UserError
from python_dev.stack.sample_data.codec import schema_text
from python_dev.stack.sample_data.log import PARTITIONS, TABLES, TOPICS, UNKNOWN_SCHEMA, Log, Record, Wire, shop_topic

_TIMEOUT_SECONDS = 10
_START_STACK = "Start the local stack with `lakehouse stack up`"
# A broker's error for a topic that was created a moment ago.
_NO_LEADER_YET = (
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError._UNKNOWN_PARTITION,
)
WIPE = "Start from nothing with `lakehouse stack down --wipe` and `lakehouse stack up`"


def _subject(schema: str) -> str:
    name, _, _version = schema.rpartition("-")
    name, side = (name.removesuffix("-key"), "key") if name.endswith("-key") else (name, "value")
    return f"{shop_topic(name) if name in TABLES else name}-{side}"


def register(log: Iterable[Record], settings: Settings) -> dict[str, int]:
    """Register the schemas that a log uses, versions in order, and return their ids by schema name.

    Raises:
        UserError: the registry cannot be reached, or refuses a schema.
    """
    wires = (wire for record in log for wire in (record.key, record.value) if wire)
    names = sorted({wire.schema for wire in wires if wire.schema} - {UNKNOWN_SCHEMA})
    url = settings.schema_registry_url
    client = SchemaRegistryClient({**connections.registry_client(settings), "max.retries": 1})
    try:
        return {name: client.register_schema(_subject(name), Schema(schema_text(name), "AVRO")) for name in names}
    except TransportError:
        raise UserError(f"The schema registry does not answer at {url}", _START_STACK) from None
    except SchemaRegistryError as error:
        raise UserError(
            f"The schema registry at {url} refused a schema (HTTP {error.http_status_code})",
            "Look into its log with `lakehouse stack logs`",
        ) from None


@contextmanager
def connection(settings: Settings) -> Iterator[None]:
    """Turn what the Kafka client raises inside the block into a UserError."""
    try:
        yield
    except KafkaException as error:
        reason = error.args[0].name().lstrip("_").lower().replace("_", " ")
        raise UserError(
            f"Kafka does not answer at {settings.kafka_bootstrap_servers} ({reason})", _START_STACK
        ) from None


def create_topics(settings: Settings) -> None:
    """Create the topics that are missing, with three partitions each and without a time limit on their records.

    Raises:
        UserError: a topic is there with another number of partitions.
        KafkaException: the broker does not answer.
    """
    admin = AdminClient({**connections.kafka_client(settings)})
    present = admin.list_topics(timeout=_TIMEOUT_SECONDS).topics
    for topic in TOPICS:
        if topic in present and len(present[topic].partitions) != PARTITIONS:
            raise UserError(f"Topic {topic} does not have {PARTITIONS} partitions", WIPE)
    config = {"retention.ms": "-1", "message.timestamp.type": "CreateTime"}
    missing = [NewTopic(topic, PARTITIONS, 1, config=config) for topic in TOPICS if topic not in present]
    if missing:
        for created in admin.create_topics(missing).values():
            created.result()


def record_counts(log: Log, ids: Mapping[str, int], settings: Settings) -> dict[tuple[str, int], int]:
    """Return how many records of this log each partition has, from the first on.

    Only the last one is compared: a load sends a partition's records in the order of the log.

    Raises:
        UserError: a topic holds other records.
        KafkaException: the broker does not answer.
    """
    by_position = {(record.topic, record.partition, record.offset): record for record in log}
    consumer = Consumer(
        {
            **connections.kafka_client(settings),
            "group.id": "lakehouse-sample-data",
            "enable.auto.commit": False,
        }
    )
    try:
        ends = _ends(consumer)
        last = {where: by_position.get((*where, end - 1)) for where, end in ends.items() if end}
        ours = {where: record for where, record in last.items() if record}
        messages = _read(consumer, ours)
    finally:
        consumer.close()
    others = {topic for topic, partition in last.keys() - ours.keys()}
    others |= {where[0] for where, record in ours.items() if not _same(record, messages[where], ids)}
    for topic in TOPICS:
        if topic in others:
            raise UserError(f"Topic {topic} holds records that are not those of this load", WIPE)
    return ends


def _ends(consumer: Consumer) -> dict[tuple[str, int], int]:
    wheres = [(topic, partition) for topic in TOPICS for partition in range(PARTITIONS)]
    return {where: _end_offset(consumer, TopicPartition(*where)) for where in wheres}


def _end_offset(consumer: Consumer, where: TopicPartition) -> int:
    deadline = time.monotonic() + _TIMEOUT_SECONDS
    while True:
        try:
            return consumer.get_watermark_offsets(where, timeout=_TIMEOUT_SECONDS)[1]
        except KafkaException as error:
            if error.args[0].code() not in _NO_LEADER_YET or time.monotonic() > deadline:
                raise
            time.sleep(0.1)


def _read(consumer: Consumer, records: Mapping[tuple[str, int], Record]) -> dict[tuple[str, int], Message]:
    """Return the messages that Kafka has where these records should be."""
    consumer.assign([TopicPartition(*where, record.offset) for where, record in records.items()])
    messages: dict[tuple[str, int], Message] = {}
    while len(messages) < len(records):
        message = consumer.poll(_TIMEOUT_SECONDS)
        if message is None or message.error():
            raise KafkaException(message.error() if message else KafkaError(KafkaError._TIMED_OUT))
        messages.setdefault(_where(message), message)
    return messages


def _where(message: Message) -> tuple[str, int]:
    # Both are known of what was sent to a topic or read from it.
    return cast(tuple[str, int], (message.topic(), message.partition()))


def _same(record: Record, message: Message, ids: Mapping[str, int]) -> bool:
    return (
        message.key() == _bytes(record.key, ids)
        and message.value() == _bytes(record.value, ids)
        and message.timestamp() == (TIMESTAMP_CREATE_TIME, record.timestamp_ms)
    )


def _bytes(wire: Wire | None, ids: Mapping[str, int]) -> bytes | None:
    return wire.to_bytes(ids) if wire else None


def send(log: Log, ids: Mapping[str, int], settings: Settings) -> None:
    """Produce the log in its order by one idempotent producer, which keeps the order per partition.

    Raises:
        UserError: a record was refused, or landed at another offset because something else writes to the topic.
    """
    due: Counter[tuple[str, int]] = Counter()
    for record in reversed(log):
        due[record.topic, record.partition] = record.offset
    refused: list[str] = []

    def delivered(error: KafkaError | None, message: Message) -> None:
        where = _where(message)
        if error is not None:
            refused.append(f"{where[0]} refused a record: {error.name()}")
        elif message.offset() != due[where]:
            refused.append(f"{where[0]} has another writer")
        due[where] += 1

    producer = Producer(
        {
            **connections.kafka_client(settings),
            "enable.idempotence": True,
            "linger.ms": 50,
            "queue.buffering.max.messages": 100_000,
            "message.timeout.ms": _TIMEOUT_SECONDS * 1000,
        }
    )
    for record in log:
        while True:
            try:
                producer.produce(
                    record.topic,
                    value=_bytes(record.value, ids),
                    key=_bytes(record.key, ids),
                    partition=record.partition,
                    on_delivery=delivered,
                    timestamp=record.timestamp_ms,
                    headers=list(record.headers),
                )
                break
            except BufferError:
                producer.poll(1)
        producer.poll(0)
    producer.flush()
    if refused:
        raise UserError(f"Topic {refused[0]}", WIPE)
