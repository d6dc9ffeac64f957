"""Peer: the stages of landing a topic. Each line on stdin names one; those of Spark include the stages before."""

import sys
from datetime import UTC, datetime
from io import BytesIO
from itertools import chain
from typing import cast

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame

from bench.ingest.peers import plain
from bench.ingest.peers.consuming import chunks
from python_common.catalog.catalog import load_catalog
from python_common.config.settings import from_environment
from python_common.spark.session import LazySparkSession
from python_ingest.bronze import positions, tables
from python_ingest.bronze.positions import Position
from python_ingest.bronze.schema_state import SchemaState
from python_ingest.declare.topics import Declaration
from python_ingest.kafka.admin import Broker
from python_ingest.kafka.offset_range import OffsetRange
from python_ingest.landing import decode
from python_ingest.landing.batch import BatchPlan, BatchWriter

WAIT_SECONDS = 30.0


class Stages:
    """The stages of landing a topic: by Spark, as the ingester runs it, and by libraries without it."""

    def __init__(self, topic: str) -> None:
        self._settings = from_environment()
        self._catalog = load_catalog(self._settings, create=True)
        self._spark = LazySparkSession(self._settings)
        self._topic = Broker(self._settings, WAIT_SECONDS).describe(topic)
        self._landings = 0
        self._writer = self._writer_of("few")
        self._table = tables.prepared(self._catalog, self._writer.declaration)
        self._decoder = plain.Writers(self._settings.schema_registry_url)
        # It brings the schemas.
        self.few()

    def read(self) -> None:
        """Read all that Spark's Kafka source gives of the records."""
        _drop_rows(self._records())

    def decoded(self) -> None:
        """Decode values, too."""
        rows = self._rows()
        _drop_rows(rows.select(*rows.columns[: rows.columns.index("kafka_topic")], "decode_error"))

    def rows(self) -> None:
        """Make the other columns, too: raw bytes, headers, positions."""
        _drop_rows(self._rows())

    def landed(self) -> None:
        """Write and commit them, too, in a new table."""
        self._landings += 1
        writer = self._writer_of(f"landed_{self._landings}")
        writer.land(tables.prepared(self._catalog, writer.declaration), BatchPlan(self._topic, Position(), self._all()))

    def few(self) -> None:
        """Land a record of each partition."""
        position = positions.position_of(self._table)
        ranges = positions.capped(positions.waiting(position, self._topic), len(self._topic.end))
        self._writer.land(self._table, BatchPlan(self._topic, position, ranges))
        self._table = self._table.refresh()

    def consumed(self) -> None:
        """Read the records by librdkafka."""
        for _ in chunks(self._settings, self._topic.topic):
            pass

    def decoded_by_fastavro(self) -> None:
        """Read them by librdkafka, and decode the values by fastavro."""
        for message in chain.from_iterable(chunks(self._settings, self._topic.topic)):
            self._decoder.decode(cast(bytes, message.value()))

    def scanned(self) -> None:
        """Read the table that was landed last."""
        self._landed()

    def written_by_pyarrow(self) -> None:
        """Read it, and write it as Parquet to memory, compressed as bronze is."""
        pq.write_table(self._landed(), BytesIO(), compression="zstd", compression_level=1)

    def appended_by_pyiceberg(self) -> None:
        """Commit a row by PyIceberg."""
        table = self._catalog.create_table_if_not_exists("bench.appended", plain.SCHEMA)
        table.append(pa.Table.from_pylist([{}], plain.SCHEMA))

    def _landed(self) -> pa.Table:
        return self._catalog.load_table(f"bench.landed_{self._landings}").scan().to_arrow()

    def _writer_of(self, table: str) -> BatchWriter:
        declaration = Declaration(self._topic.topic, "bench", table)
        return BatchWriter(self._settings, self._spark, declaration, WAIT_SECONDS)

    def _all(self) -> list[OffsetRange]:
        return positions.waiting(Position(), self._topic)

    def _records(self) -> DataFrame:
        return self._writer.read(self._all())

    def _rows(self) -> DataFrame:
        decoders = self._writer.schemas.resolve_schemas(SchemaState.of(self._table))
        batch = decode.Batch(1, datetime.now(UTC))
        return decode.rows(self._records(), self._writer.declaration, decoders, batch)


def _drop_rows(rows: DataFrame) -> None:
    rows.write.format("noop").mode("overwrite").save()


def main(topic: str) -> None:
    """Run the stage that each line `stage records` on stdin names; answer with the records."""
    stages = Stages(topic)
    for line in sys.stdin:
        stage, records = line.split()
        getattr(stages, stage)()
        print(records, flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
