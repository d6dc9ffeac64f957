"""The topic that every peer lands: payments as the sample data makes them, each record different."""

import json
import time
from collections.abc import Callable
from random import Random

from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient

from python_common.config.settings import Settings
from python_dev.stack.sample_data.codec import encode, schema_text
from python_dev.stack.sample_data.sources import payments
from python_ingest.kafka.admin import LATEST

PARTITIONS = 3
SCHEMA = "payments-v1"
POOL = 200_000
PER_CALL = 5_000
START_MS = 1_760_000_000_000


def fill(settings: Settings, topic: str, records: int, original: Callable[[int], int] = lambda number: number) -> None:
    """Create the topic, if it is missing, and produce what it lacks of `records` payments.

    Order ids count up; the other fields come from a pool of random payments, for speed. A record whose `original` has
    another number is an exact copy of that one.
    """
    [header] = register(settings, topic, [schema_text(SCHEMA)])
    tails = _tails(min(POOL, records))

    def value(number: int) -> bytes:
        number = original(number)
        return header + varint(number) + tails[number % len(tails)]

    produce(settings, topic, records, lambda number: b"%d" % original(number), value)


def register(settings: Settings, topic: str, schemas: list[str]) -> list[bytes]:
    """Register Avro schemas as versions of a topic's values; return the headers of their records."""
    registry = SchemaRegistryClient({"url": settings.schema_registry_url})
    ids = [registry.register_schema(f"{topic}-value", Schema(schema, "AVRO")) for schema in schemas]
    return [b"\x00" + schema_id.to_bytes(4, "big") for schema_id in ids]


def produce(
    settings: Settings,
    topic: str,
    records: int,
    key: Callable[[int], bytes],
    value: Callable[[int], bytes],
    per_call: int = PER_CALL,
) -> None:
    """Create the topic, if it is missing, and produce what it lacks of `records` records, numbered from 0 on.

    Each `per_call` records go to the next partition.
    """
    admin = AdminClient({"bootstrap.servers": settings.kafka_bootstrap_servers})
    if topic not in admin.list_topics(timeout=10).topics:
        for created in admin.create_topics([NewTopic(topic, PARTITIONS, 1)]).values():
            created.result()
        time.sleep(1)  # Until the partitions have a leader.
    producer = Producer(
        {
            "bootstrap.servers": settings.kafka_bootstrap_servers,
            "compression.type": "lz4",
            "linger.ms": 20,
            "batch.size": 1_000_000,
            "queue.buffering.max.messages": 1_000_000,
        }
    )
    for start in range(size(settings, topic), records, per_call):
        partition = start // per_call % PARTITIONS
        numbers = range(start, min(start + per_call, records))
        messages = [{"key": key(number), "value": value(number)} for number in numbers]
        producer.produce_batch(topic, messages, partition)
        while refused := [message for message in messages if message.pop("_error", None)]:
            producer.poll(0.5)
            producer.produce_batch(topic, refused, partition)
            messages = refused
    if producer.flush(60) or size(settings, topic) < records:
        raise SystemExit("error: the broker did not take all records")


def add_to_each(settings: Settings, topics: list[str], records: int) -> None:
    """Create those of the topics that are missing, with one partition and a schema each, and add payments to each."""
    admin = AdminClient({"bootstrap.servers": settings.kafka_bootstrap_servers})
    existing = admin.list_topics(timeout=10).topics
    missing = [NewTopic(name, 1, 1) for name in topics if name not in existing]
    for created in admin.create_topics(missing).values() if missing else ():
        created.result()
    producer = Producer({"bootstrap.servers": settings.kafka_bootstrap_servers})
    tails = _tails(records)
    for name in topics:
        # Of another record name: a schema of several topics would be compiled once.
        schema = json.loads(schema_text(SCHEMA)) | {"name": name.replace("-", "_")}
        [header] = register(settings, name, [json.dumps(schema)])
        for number, tail in enumerate(tails):
            producer.produce(name, header + varint(number) + tail, b"%d" % number)
        producer.poll(0)
    if producer.flush(60):
        raise SystemExit("error: the broker did not take all records")


def size(settings: Settings, topic: str) -> int:
    """Return how many records the topic holds."""
    admin = AdminClient({"bootstrap.servers": settings.kafka_bootstrap_servers})
    partitions = [TopicPartition(topic, partition) for partition in range(PARTITIONS)]
    offsets = admin.list_offsets(dict.fromkeys(partitions, LATEST))
    return sum(future.result().offset for future in offsets.values())


def _tails(count: int) -> list[bytes]:
    """Return encoded payments without their first field, the order id."""
    rng = Random(1)
    pool = []
    for number in range(count):
        sale = payments.sale(0, START_MS + number * 1_000, rng, code="0" if number % 5 == 4 else None)
        pool.append(encode(SCHEMA, sale).body.removeprefix(varint(0)))
    return pool


def varint(number: int) -> bytes:
    """Return a number that is not negative as Avro writes it."""
    left, out = number << 1, bytearray()
    while left > 0x7F:
        out.append(left & 0x7F | 0x80)
        left >>= 7
    out.append(left)
    return bytes(out)
