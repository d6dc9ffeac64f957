"""The table's side of verify: the offsets of its files, and the raw rows of offset ranges, by PyIceberg."""

import json
import math
import random
from collections import defaultdict
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.expressions import AlwaysTrue, BooleanExpression
from pyiceberg.expressions.parser import parse
from pyiceberg.io.pyarrow import ArrowScan, _read_all_delete_files
from pyiceberg.table import FileScanTask, Table
from pyiceberg.types import IcebergType

from python_common.catalog import property_keys
from python_common.catalog.catalog import existing_columns, history, load_table, translate_read_errors
from python_ingest.avro.types import omitted_fields
from python_ingest.kafka.offset_range import StoredOffsets
from python_ingest.verify.topic_log import RECORD

PIECE_ROWS = 10_000
PIECE_BYTES = 16 * 1024 * 1024
ERASED = "erased: "
# In `stored` a partition of a former generation has another number, below 0: topics have fewer partitions.
PARTITIONS = 1_000_000


class BronzeTable:
    """The rows of a topic in a bronze table, at the snapshot the table was loaded with.

    Every method raises UserError, with the name of the file, if a file of the table is damaged or missing.
    """

    def __init__(self, table: Table, topic: str, stored: StoredOffsets) -> None:
        self._table = table
        self._topic = topic
        self._files_of: dict[int, list[tuple[FileScanTask, int, int]]] = defaultdict(list)
        self.foreign_rows = 0
        self.unnumbered_rows = 0
        self.stored = stored
        self.generation = property_keys.generation(table.properties)
        self.generation_start = property_keys.generation_start(table.properties)

    def scan(self) -> None:
        """Fill `stored`, and count `foreign_rows` and `unnumbered_rows`.

        Foreign ones name no offset, or another topic; unnumbered ones have no batch number, or one beyond the greatest
        of a snapshot.
        """
        last = max((int(summary.get(property_keys.BATCH, 0)) for _, summary in history(self._table)), default=0)
        columns = ("kafka_topic", "kafka_generation", "kafka_partition", "kafka_offset", "ingest_batch")
        names = existing_columns(self._table, columns)
        for file in self._files():
            rows = self._read(file, AlwaysTrue(), names)
            of_rows = pc.fill_null(rows["kafka_generation"], 0) if "kafka_generation" in names else pa.scalar(0)
            former = pc.multiply(pc.subtract(self.generation, of_rows), PARTITIONS)
            numbers = pc.subtract(rows["kafka_partition"], former)
            rows = rows.set_column(rows.schema.get_field_index("kafka_partition"), "kafka_partition", numbers)
            number = pc.field("ingest_batch")
            is_numbered = (number >= 1) & (number <= last) if last else number >= 1
            self.unnumbered_rows += len(rows) - len(rows.filter(is_numbered))
            placed = pc.field("kafka_partition").is_valid() & pc.field("kafka_offset").is_valid()
            of_topic = rows.filter((pc.field("kafka_topic") == self._topic) & placed)
            for partition in pc.unique(of_topic["kafka_partition"]).to_pylist():
                offsets = of_topic.filter(pc.field("kafka_partition") == partition)["kafka_offset"].combine_chunks()
                bounds = pc.min_max(offsets).as_py()
                self._files_of[partition].append((file, bounds["min"], bounds["max"]))
                self.stored.add(partition, offsets)
            self.foreign_rows += len(rows) - len(of_topic)

    def renew(self) -> None:
        """Renew the credentials of the store, which a catalog may vend for an hour. The snapshot stays."""
        table = load_table(self._table.catalog, ".".join(self._table.name()))
        self._table.io = table.io if table else self._table.io

    def rows(self, partition: int, first: int, until: int) -> pa.Table:
        """Return the rows of offsets of the current generation, in any order: columns of RECORD and `decode_error`."""
        names = (*RECORD.names, "decode_error")
        wanted = parse(
            f"kafka_topic = '{self._topic}' and kafka_partition = {partition}"
            f" and kafka_offset >= {first} and kafka_offset < {until}"
            + (f" and kafka_generation = {self.generation}" if self.generation else "")
        )
        schema = RECORD.append(pa.field("decode_error", pa.large_string()))
        pieces = [schema.empty_table()]
        for file, start, last in self._files_of[partition]:
            if start < until and last >= first:
                pieces.append(self._read(file, wanted, names).select(names).cast(schema))
        return pa.concat_tables(pieces)

    def partitions(self) -> set[int]:
        """Return the partitions with rows, or that a batch has read, by their numbers in `stored`."""
        return self._files_of.keys() | self.read_until().keys()

    def label(self, partition: int) -> str:
        """Return the name of a partition in messages, by its number in `stored`."""
        former, number = divmod(partition, PARTITIONS)
        return f"partition {number}" + (f" of generation {self.generation + former}" if former else "")

    def columns(self) -> dict[str, IcebergType]:
        """Return the types of the columns."""
        return {field.name: field.field_type for field in self._table.schema().fields}

    def schemas(self, side: str) -> dict[int, set[str]]:
        """Return the ids of the schemas whose fields have columns, with the paths of omitted fields."""
        prefix = property_keys.schema(side)
        return {
            int(name.removeprefix(prefix)): {path for path, _ in omitted_fields(property_keys.parsed_schema(text))}
            for name, text in self._table.properties.items()
            if name.startswith(prefix)
        }

    def pieces(self, percent: float, seed: int) -> Iterator[pa.Table]:
        """Yield the rows piece by piece, of so many percent of the pieces, with the columns that their file has.

        Files are read as they are: PyIceberg would give an array or map of records that is NULL as an empty one.
        """
        files = self._files()
        pieces = [(file, start) for file in files for start in range(0, file.file.record_count, _piece_rows(file))]
        drawn = random.Random(f"{seed} pieces").sample(pieces, math.ceil(len(pieces) * percent / 100))
        starts: dict[str, set[int]] = defaultdict(set)
        for file, start in drawn:
            starts[file.file.file_path].add(start)
        deleted = _read_all_delete_files(self._table.io, files)
        for file in files:
            path, rows = file.file.file_path, _piece_rows(file)
            if path not in starts:
                continue
            self.renew()
            with translate_read_errors(path), self._table.io.new_input(path).open() as opened:
                at = 0
                for batch in pq.ParquetFile(opened).iter_batches(rows):
                    start, at = at, at + len(batch)
                    if start // rows * rows in starts[path]:
                        yield _without(pa.Table.from_batches([batch]), start, deleted.get(path, []))
                    if at >= max(starts[path]) + rows:
                        break

    def read_until(self) -> dict[int, int]:
        """Return the end offsets that the batches recorded, without which rows missing at the end would seem unread."""
        ends: dict[int, int] = {}
        for _, summary in history(self._table):
            for text, offset in json.loads(summary.get(property_keys.READ_UNTIL, "{}")).items():
                partition = self._number(text, summary)
                ends[partition] = max(offset, ends.get(partition, 0))
        return ends

    def accepted_gaps(self, partition: int) -> list[tuple[int, int]]:
        """Return the ranges of offsets, from and until, that were lost when the topic was landed, and accepted."""
        gaps = property_keys.accepted_gaps(self._table.properties)
        return [(first, until) for (of, first), until in gaps.items() if of == partition]

    def incomplete_batches(self) -> Iterator[str]:
        """Yield what differs between the rows that batches landed and those in their offset ranges.

        Only batches whose snapshot still exists are compared.
        """
        landed: dict[int, int] = {}
        ranges = []
        for _, summary in history(self._table):
            # A replay has no ranges: it decodes rows again that are there.
            for partition, (first, until) in json.loads(summary.get(property_keys.RANGES, "{}")).items():
                number = int(summary[property_keys.BATCH])
                landed[number] = int(summary.get("added-records", 0))
                stored_as = self._number(partition, summary)
                ranges.append({"id": number, "partition": stored_as, "first": first, "until": until})
        counts = self.stored.counts(ranges)
        for number, rows in landed.items():
            if counts.get(number, 0) != rows:
                yield f"batch {number} landed {rows} rows, and {counts.get(number, 0)} are there"

    def _number(self, partition: str, summary: dict[str, str]) -> int:
        """Return the number in `stored` of a partition that a batch has read."""
        return int(partition) - (self.generation - property_keys.generation(summary)) * PARTITIONS

    def _files(self) -> list[FileScanTask]:
        try:
            return list(self._table.scan().plan_files())
        except Exception:
            # Planned in parallel, the failure does not name the file: one by one it does.
            snapshot = self._table.current_snapshot()
            with translate_read_errors(snapshot.manifest_list if snapshot else self._table.metadata_location):
                manifests = snapshot.manifests(self._table.io) if snapshot else []
            for manifest in manifests:
                with translate_read_errors(manifest.manifest_path):
                    manifest.fetch_manifest_entry(self._table.io)
            raise

    def _read(self, file: FileScanTask, wanted: BooleanExpression, names: tuple[str, ...]) -> pa.Table:
        projection = self._table.scan(selected_fields=names).projection()
        with translate_read_errors(file.file.file_path):
            return ArrowScan(self._table.metadata, self._table.io, projection, wanted).to_table([file])


def _piece_rows(file: FileScanTask) -> int:
    """Return how many rows of a file are read at a time: about PIECE_BYTES, as the file has them."""
    return max(1, min(PIECE_ROWS, PIECE_BYTES * file.file.record_count // file.file.file_size_in_bytes))


def _without(rows: pa.Table, start: int, deleted: list[pa.ChunkedArray]) -> pa.Table:
    """Return the rows of a file, of which these are those from `start` on, without those at deleted positions."""
    positions = pa.array(range(start, start + len(rows)), pa.int64())
    for of_file in deleted:
        is_left = pc.invert(pc.is_in(positions, of_file.combine_chunks()))
        rows, positions = rows.filter(is_left), positions.filter(is_left)
    return rows


def is_erased(error: str | None) -> bool:
    """Return by a row's decode_error whether it was erased to position and timestamps."""
    return error is not None and error.startswith(ERASED)
