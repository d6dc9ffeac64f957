"""Landed rows as Parquet files, which DuckDB reads, without a broker and Spark."""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.types import IcebergType

from python_dev.stack.sample_data.codec import decode
from python_dev.stack.sample_data.log import Log, Record
from python_ingest.declare.spark_types import children, struct
from python_ingest.declare.topics import Declaration, read_declarations

Row = dict[str, Any]


def write_rows(directory: Path, table: str, rows: Iterable[Row], types: Mapping[str, IcebergType]) -> None:
    """Write the rows of a bronze table with columns of these types; a column that a row lacks is NULL."""
    landed = pa.Table.from_pylist([*rows], pa.schema(schema_to_pyarrow(struct(types))))
    pq.write_table(landed, directory / f"{table}.parquet")


def land_log(directory: Path, log: Log) -> None:
    """Land the records of the sample data, in one batch."""
    for declaration in read_declarations():
        rows = (_landed(record, declaration) for record in log if record.topic == declaration.topic)
        write_rows(directory, declaration.identifier, rows, children(declaration.columns))


def _landed(record: Record, declaration: Declaration) -> Row:
    key = record.key and (decode(record.key) if record.key.schema else record.key.body.decode(errors="replace"))
    values = decode(record.value) if record.payload is not None else {}
    return {name: value for name, value in values.items() if name in children(declaration.columns)} | {
        "kafka_partition": record.partition,
        "kafka_offset": record.offset,
        "kafka_timestamp": datetime.fromtimestamp(record.timestamp_ms / 1000, UTC),
        "kafka_key": None if isinstance(key, str) and declaration.key == "avro" else key,
        "kafka_raw_value": record.value and record.value.body,
        "decode_error": record.error,
        "ingest_batch": 1,
        "ingested_at": datetime.fromtimestamp(record.arrival_ms / 1000, UTC),
    }
