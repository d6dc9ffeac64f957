"""Peer: a plain consumer in one Python process, with confluent-kafka, fastavro, pyarrow and PyIceberg."""

import io
import json
import sys
from typing import Any, cast

import fastavro
import pyarrow as pa
from confluent_kafka import Message
from confluent_kafka.schema_registry import SchemaRegistryClient

from bench.ingest.peers.consuming import chunks
from python_common.catalog.catalog import load_catalog
from python_common.config.settings import from_environment

SCHEMA = pa.schema(
    [
        ("order_id", pa.int32()),
        ("product_id", pa.int32()),
        ("customer_id", pa.int32()),
        ("confirmation_code", pa.string()),
        ("cc_number", pa.string()),
        ("expiration", pa.string()),
        ("amount", pa.float64()),
        ("ts", pa.timestamp("us", "UTC")),
        ("kafka_topic", pa.string()),
        ("kafka_partition", pa.int32()),
        ("kafka_offset", pa.int64()),
        ("kafka_timestamp", pa.timestamp("ms")),
        ("kafka_raw_key", pa.binary()),
        ("kafka_raw_value", pa.binary()),
    ]
)
ROWS_PER_COMMIT = 500_000
HEADER_BYTES = 5


class Writers:
    """The writers' schemas by id, fetched once."""

    def __init__(self, url: str) -> None:
        self._registry = SchemaRegistryClient({"url": url})
        self._parsed: dict[int, Any] = {}

    def decode(self, value: bytes) -> dict[str, Any]:
        """Return what a value in the registry's wire format holds."""
        schema_id = int.from_bytes(value[1:HEADER_BYTES], "big")
        if schema_id not in self._parsed:
            text = cast(str, self._registry.get_schema(schema_id).schema_str)
            self._parsed[schema_id] = fastavro.parse_schema(json.loads(text))
        decoded = fastavro.schemaless_reader(io.BytesIO(value[HEADER_BYTES:]), self._parsed[schema_id], None)
        return cast(dict[str, Any], decoded)


def main(topic: str) -> None:
    """Land the topic once for each line `table batch-records` on stdin; answer each with the rows landed."""
    settings = from_environment()
    writers = Writers(settings.schema_registry_url)
    catalog = load_catalog(settings, create=True)
    catalog.create_namespace_if_not_exists("bench")
    for line in sys.stdin:
        table = catalog.create_table(f"bench.{line.split()[0]}", SCHEMA)
        rows, waiting = 0, []
        for messages in chunks(settings, topic):
            waiting.append(as_batch(messages, writers))
            if sum(map(len, waiting)) >= ROWS_PER_COMMIT:
                table.append(pa.Table.from_batches(waiting))
                rows, waiting = rows + sum(map(len, waiting)), []
        if waiting:
            table.append(pa.Table.from_batches(waiting))
        print(rows + sum(map(len, waiting)), flush=True)


def as_batch(messages: list[Message], writers: Writers) -> pa.RecordBatch:
    """Decode records into columns."""
    rows = [writers.decode(cast(bytes, message.value())) for message in messages]
    columns = [[row[name] for row in rows] for name in SCHEMA.names[:8]]
    columns += [
        [message.topic() for message in messages],
        [message.partition() for message in messages],
        [message.offset() for message in messages],
        [message.timestamp()[1] for message in messages],
        [message.key() for message in messages],
        [message.value() for message in messages],
    ]
    return pa.RecordBatch.from_pydict(dict(zip(SCHEMA.names, columns, strict=True)), SCHEMA)


if __name__ == "__main__":
    main(sys.argv[1])
