"""What verify reads of a bronze table's files, without Kafka and Spark."""

from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg import manifest
from pyiceberg.catalog import Catalog

from python_common.catalog import property_keys
from python_common.errors import UserError
from python_ingest.bronze import tables
from python_ingest.bronze.schema_state import SchemaState
from python_ingest.kafka.offset_range import StoredOffsets
from python_ingest.verify.bronze_rows import BronzeTable


def test_batch_numbers_are_checked_in_every_file(catalog: Catalog) -> None:
    table = catalog.create_table("bronze.sales", tables.table_schema(SchemaState(), "string"))
    schema = table.schema().as_arrow()
    # Batches have greater numbers than offsets, then smaller ones; the last number was never given.
    for number, given, offset in ((5, 5, 0), (6, 6, 1), (7, 7, 900), (8, 7, 901)):
        row = {"kafka_topic": "sales", "kafka_partition": 0, "kafka_offset": offset, "ingest_batch": number}
        rows = pa.Table.from_pylist([dict.fromkeys(schema.names) | row], schema)
        table.append(rows, {property_keys.BATCH: str(given)})
    with closing(StoredOffsets()) as stored:
        bronze = BronzeTable(table, "sales", stored)
        bronze.scan()
        stored.find_gaps(0)
        assert (bronze.unnumbered_rows, bronze.foreign_rows, stored.span(0)) == (1, 0, (0, 902))
        assert bronze.rows(0, 1, 901)["kafka_offset"].to_pylist() in ([1, 900], [900, 1])


def test_a_damaged_file_is_named(catalog: Catalog) -> None:
    table = catalog.create_table("bronze.sales", tables.table_schema(SchemaState(), "string"))
    table.append(pa.Table.from_pylist([dict.fromkeys(table.schema().column_names)], table.schema().as_arrow()))
    snapshot = table.current_snapshot()
    data = next(iter(table.scan().plan_files())).file.file_path
    for path in (data, snapshot.manifests(table.io)[0].manifest_path, snapshot.manifest_list):
        file = Path(path.removeprefix("file://"))
        content = file.read_bytes()
        for damaged in (content[: len(content) // 2], None):
            file.unlink() if damaged is None else file.write_bytes(damaged)
            manifest._manifest_cache.clear()
            with closing(StoredOffsets()) as stored, pytest.raises(UserError) as caught:
                BronzeTable(table, "sales", stored).scan()
            assert str(caught.value).startswith(f"{path} is missing or damaged")
        file.write_bytes(content)
