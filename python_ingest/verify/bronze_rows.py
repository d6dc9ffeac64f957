"""The table's side of verify: which offsets its files hold, and the raw rows of a stretch of them, by PyIceberg."""

import json
import math
import random
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.expressions import AlwaysTrue, BooleanExpression
from pyiceberg.expressions.parser import parse
from pyiceberg.io.pyarrow import ArrowScan, _read_all_delete_files
from pyiceberg.table import FileScanTask, Table
from pyiceberg.table.snapshots import ancestors_of
from pyiceberg.types import IcebergType

from lakehouse import property_keys
from lakehouse.catalog import readable
from python_ingest.kafka.offset_range import STRETCHES, stretches
from python_ingest.verify.topic_log import RECORD

PIECE_ROWS = 10_000
PIECE_BYTES = 16 * 1024 * 1024
ERASED = "erased: "


@dataclass
class Holding:
    """What the table holds of one partition: its files, and the stretches of offsets without a hole in each.

    A file comes with its first offset and the one after its last. An offset that a file holds twice is in two.
    """

    rows: int = 0
    files: list[tuple[FileScanTask, int, int]] = field(default_factory=list)
    parts: list[pa.Table] = field(default_factory=list)

    def add(self, file: FileScanTask, offsets: pa.ChunkedArray) -> None:
        """Add the offsets of a file, in any order."""
        unbroken = stretches(offsets.combine_chunks())
        self.rows += len(offsets)
        self.files.append((file, unbroken["first"][0].as_py(), unbroken["until"][-1].as_py()))
        self.parts.append(unbroken)

    @cached_property
    def unbroken(self) -> pa.Table:
        """The unbroken stretches of all files; ask when all are added."""
        return pa.concat_tables([STRETCHES.empty_table(), *self.parts])

    def stretches(self, first: int, until: int) -> pa.Table:
        """Return the offsets from `first` to `until` as stretches with equally many rows per offset.

        No row lies outside of these. The columns are `first`, `until` and `times`, which is 0 in a hole.
        """
        starts, ends = self.unbroken["first"], self.unbroken["until"]
        edges = pa.table(
            {
                "at": pa.chunked_array([*starts.chunks, *ends.chunks, [first, until]], pa.int64()),
                "step": pa.chunked_array([pa.repeat(1, len(starts)), pa.repeat(-1, len(ends)), [0, 0]], pa.int64()),
            }
        )
        edges = edges.group_by("at").aggregate([("step", "sum")]).sort_by("at").combine_chunks()
        times = pc.cumulative_sum(edges["step_sum"])
        return pa.table({"first": edges["at"][:-1], "until": edges["at"][1:], "times": times[:-1]})


class BronzeTable:
    """The rows of a topic in a bronze table, at the snapshot the table was loaded with.

    Every method raises UserError, with the name of the file, if a file of the table is damaged or missing.
    """

    def __init__(self, table: Table, topic: str) -> None:
        self._table = table
        self._topic = topic
        self.foreign_rows = 0
        self.unnumbered_rows = 0
        self.holdings: dict[int, Holding] = defaultdict(Holding)
        """What is held of each partition."""

    def scan(self) -> None:
        """Fill `holdings`, and count `foreign_rows` and `unnumbered_rows`.

        Foreign ones name no offset, or another topic; unnumbered ones have no batch number, or one beyond the greatest
        that a snapshot tells of.
        """
        last = max((int(entries.get(property_keys.BATCH, 0)) for entries in self._summaries()), default=0)
        for file in self._files():
            rows = self._read(file, AlwaysTrue(), ("kafka_topic", "kafka_partition", "kafka_offset", "ingest_batch"))
            number = pc.field("ingest_batch")
            given = (number >= 1) & (number <= last) if last else number >= 1
            self.unnumbered_rows += len(rows) - len(rows.filter(given))
            placed = pc.field("kafka_partition").is_valid() & pc.field("kafka_offset").is_valid()
            own = rows.filter((pc.field("kafka_topic") == self._topic) & placed)
            for partition in pc.unique(own["kafka_partition"]).to_pylist():
                offsets = own.filter(pc.field("kafka_partition") == partition)["kafka_offset"]
                self.holdings[partition].add(file, offsets)
            self.foreign_rows += len(rows) - len(own)

    def rows(self, partition: int, first: int, until: int) -> pa.Table:
        """Return the rows of a stretch of offsets, in any order: the columns of RECORD and `decode_error`."""
        names = (*RECORD.names, "decode_error")
        wanted = parse(
            f"kafka_topic = '{self._topic}' and kafka_partition = {partition}"
            f" and kafka_offset >= {first} and kafka_offset < {until}"
        )
        schema = RECORD.append(pa.field("decode_error", pa.large_string()))
        found = [schema.empty_table()]
        for file, start, end in self.holdings[partition].files:
            if start < until and end > first:
                found.append(self._read(file, wanted, names).select(names).cast(schema))
        return pa.concat_tables(found)

    def columns(self) -> dict[str, IcebergType]:
        """Return the types of the columns."""
        return {field.name: field.field_type for field in self._table.schema().fields}

    def schemas(self, side: str) -> set[int]:
        """Return the ids of the schemas whose fields have columns, of the values or of the keys."""
        prefix = property_keys.schema(side)
        return {int(name.removeprefix(prefix)) for name in self._table.properties if name.startswith(prefix)}

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
            with readable(path), self._table.io.new_input(path).open() as opened:
                at = 0
                for batch in pq.ParquetFile(opened).iter_batches(rows):
                    start, at = at, at + len(batch)
                    if start // rows * rows in starts[path]:
                        yield _without(pa.Table.from_batches([batch]), start, deleted.get(path, []))
                    if at >= max(starts[path]) + rows:
                        break

    def read_until(self) -> dict[int, int]:
        """Return the offsets up to which the batches say the topic was read.

        Rows missing at the end of a partition would else look as if they were still to come.
        """
        ends: dict[int, int] = {}
        for summary in self._summaries():
            for partition, offset in json.loads(summary.get(property_keys.READ_UNTIL, "{}")).items():
                ends[int(partition)] = max(offset, ends.get(int(partition), 0))
        return ends

    def accepted_gaps(self, partition: int) -> list[tuple[int, int]]:
        """Return the ranges of offsets, from and until, that were lost when the topic was landed, and accepted."""
        prefix = property_keys.accepted_gap(partition)
        gaps = {name: until for name, until in self._table.properties.items() if name.startswith(prefix)}
        return [(int(name.removeprefix(prefix)), int(until)) for name, until in gaps.items()]

    def batches(self) -> Iterator[tuple[str, dict[int, tuple[int, int]], int]]:
        """Yield number, offset ranges and rows of every batch whose snapshot still exists."""
        for summary in self._summaries():
            ranges = json.loads(summary.get(property_keys.RANGES, "{}"))
            # A replay has none: it decodes rows again that are there.
            if ranges:
                spans = {int(partition): (first, until) for partition, (first, until) in ranges.items()}
                yield summary[property_keys.BATCH], spans, int(summary.get("added-records", 0))

    def _summaries(self) -> Iterator[dict[str, str]]:
        for snapshot in ancestors_of(self._table.current_snapshot(), self._table.metadata):
            yield snapshot.summary.additional_properties if snapshot.summary else {}

    def _files(self) -> list[FileScanTask]:
        try:
            return list(self._table.scan().plan_files())
        except Exception:
            # Planned in parallel, the failure does not name the file: one by one it does.
            snapshot = self._table.current_snapshot()
            with readable(snapshot.manifest_list if snapshot else self._table.metadata_location):
                manifests = snapshot.manifests(self._table.io) if snapshot else []
            for manifest in manifests:
                with readable(manifest.manifest_path):
                    manifest.fetch_manifest_entry(self._table.io)
            raise

    def _read(self, file: FileScanTask, wanted: BooleanExpression, names: tuple[str, ...]) -> pa.Table:
        projection = self._table.scan(selected_fields=names).projection()
        with readable(file.file.file_path):
            return ArrowScan(self._table.metadata, self._table.io, projection, wanted).to_table([file])


def _piece_rows(file: FileScanTask) -> int:
    """Return how many rows of a file are read at a time: about PIECE_BYTES, as the file has them."""
    return max(1, min(PIECE_ROWS, PIECE_BYTES * file.file.record_count // file.file.file_size_in_bytes))


def _without(rows: pa.Table, start: int, deleted: list[pa.ChunkedArray]) -> pa.Table:
    """Return the rows of a file, of which these are those from `start` on, without those at deleted positions."""
    positions = pa.array(range(start, start + len(rows)), pa.int64())
    for places in deleted:
        is_left = pc.invert(pc.is_in(positions, places.combine_chunks()))
        rows, positions = rows.filter(is_left), positions.filter(is_left)
    return rows


def is_erased(error: str | None) -> bool:
    """Tell by a row's decode_error whether nothing is left of its record but position and timestamp."""
    return error is not None and error.startswith(ERASED)


def overlap(ranges: pa.Table, first: int, until: int) -> int:
    """Return how many offsets of ranges (columns `first` and `until`) lie from `first` to before `until`."""
    touching = ranges.filter((pc.field("first") < until) & (pc.field("until") > first))
    ends, starts = pc.min_element_wise(touching["until"], until), pc.max_element_wise(touching["first"], first)
    return int(pc.sum(pc.subtract(ends, starts), min_count=0).as_py())
