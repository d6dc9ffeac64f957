"""The independent check: compares what a Kafka consumer reads with what PyIceberg reads, without Spark.

It shares the declarations with the ingester, and no planning or writing. Memory is bounded by the largest data file's
offsets, by pieces of records and by DuckDB's limit, not by the table.
"""

import math
import random
from collections.abc import Iterator
from contextlib import closing

import pyarrow as pa
import pyarrow.compute as pc

from python_common.catalog.catalog import load_catalog, load_table
from python_common.config.settings import Settings
from python_ingest.declare.topics import Declaration
from python_ingest.kafka.offset_range import StoredOffsets
from python_ingest.kafka.registry import Registry
from python_ingest.verify.bronze_rows import ERASED, BronzeTable
from python_ingest.verify.decoded import compare_decoded, plain_column
from python_ingest.verify.report import ISSUES_NAMED, Report, Sample, offsets_label
from python_ingest.verify.topic_log import TopicLog

CHUNK_OFFSETS = 10_000
STAMPS = ("kafka_timestamp", "kafka_timestamp_type")
BYTES = ("kafka_raw_key", "kafka_raw_value")
Range = tuple[int, int]


def verify_topic(
    settings: Settings, declaration: Declaration, wait: float, sample: Sample | None = None, decoded: bool = False
) -> Report:
    """Compare a bronze table with its topic, and with the batches that its snapshots record as landed.

    Every offset that a committed reader sees, from the first that the broker still has to the last that the table
    holds or claims to, must be in the table exactly once, with equal key, value, headers and timestamp. Every row must
    have the number of a batch, without which readers downstream never take it. Rows that the broker no longer has are
    checked for duplicates, and their gaps are noted. With a sample all of this stays, but bytes are compared, and
    offsets searched that should not be there, in the sampled chunks and in every chunk with a gap.
    `decoded` also decodes the bytes that the table holds, or as many percent of them, and compares every column.

    Raises:
        UserError: the topic does not exist, the broker does not answer within `wait` seconds, or a file of the
            table is damaged.
    """
    report = Report(declaration.topic, declaration.identifier, sample=sample)
    table = load_table(load_catalog(settings), declaration.identifier)
    with closing(TopicLog(settings, declaration.topic, wait)) as log, closing(StoredOffsets()) as stored:
        partitions = sorted(log.begin())
        if table is None:
            # A topic may be declared and have no record yet.
            if any(map(log.holds_records, partitions)):
                report.add(f"there is no table {declaration.identifier}")
            return report
        bronze = BronzeTable(table, declaration.topic, stored)
        bronze.scan()
        if bronze.foreign_rows:
            report.add(f"{bronze.foreign_rows} rows name no offset, or another topic")
        if bronze.unnumbered_rows:
            report.add(f"{bronze.unnumbered_rows} rows have no batch number, or one that was never assigned")
        known = bronze.partitions()
        for partition in sorted({*partitions} - known):
            if log.holds_records(partition):
                report.notes.append(f"partition {partition}: has records, and no batch has read it")
        for partition in sorted(known):
            if partition in partitions or partition < 0:
                bronze.renew()
                _Partition(report, bronze, log, partition, declaration.on_error == "skip").verify()
            else:
                report.add(f"partition {partition} is in the table, but not in the topic")
        for issue in bronze.incomplete_batches():
            report.add(issue)
        if decoded:
            compare_decoded(report, bronze, declaration.key, Registry(settings, wait))
    return report


class _Partition:
    """One partition on both sides."""

    def __init__(self, report: Report, bronze: BronzeTable, log: TopicLog, partition: int, skipping: bool) -> None:
        self._report = report
        self._bronze = bronze
        self._log = log
        self._partition = partition
        self._label = bronze.label(partition)
        self._skipping = skipping
        self._accepted = bronze.accepted_gaps(partition)
        self._missing = 0

    def verify(self) -> None:
        report, partition, stored = self._report, self._partition, self._bronze.stored
        read_until = self._bronze.read_until().get(partition)
        if partition < 0:  # the broker has nothing of a former generation
            begin = max(read_until or 0, stored.span(partition)[1] or 0)
        else:
            begin = max(self._log.begin()[partition], self._bronze.generation_start.get(partition, 0))
        stored.find_gaps(partition, begin, begin if read_until is None else read_until)
        first, until = stored.span(partition)
        duplicates = stored.query("select first, until from duplicates where partition = $1 order by all", partition)
        for start, end in duplicates:
            report.add(f"{self._label}: {offsets_label(start, end - 1)}: more than once in the table")
        for chosen in self._chosen(begin, until):
            for outside in self._outside_gaps(*chosen):
                for piece in self._log.records(partition, *outside):
                    self._compare(*piece)
        expired_gaps = stored.query(
            "select first, until from gaps where partition = $1 and first < $2 order by all limit $3",
            partition,
            begin,
            ISSUES_NAMED,
        )
        for start, end in expired_gaps:
            if (start, end) not in self._accepted:
                report.notes.append(
                    f"{self._label}: {offsets_label(start, end - 1)}: no row, and the broker no longer has them"
                )
        accepted = sum(stored.count("gaps", partition, *gap) for gap in self._accepted)
        unconfirmed = stored.count("gaps", partition, first, begin) - sum(
            stored.count("gaps", partition, start, min(end, begin)) for start, end in self._accepted
        )
        report.offsets += until - first
        report.rows += stored.count("stored", partition, first, until)
        report.expired += stored.count("stored", partition, first, begin)
        report.accepted += accepted
        report.unconfirmed += unconfirmed
        report.empty += stored.count("gaps", partition, first, until) - accepted - unconfirmed - self._missing

    def _chosen(self, begin: int, until: int) -> list[Range]:
        """Return the ranges to compare: all that the broker has, or the drawn chunks and those with gaps."""
        sample = self._report.sample
        if sample is None:
            return [(begin, until)] if begin < until else []
        chunks = range(begin, until, CHUNK_OFFSETS)
        draw = random.Random(f"{sample.seed} {self._partition}")
        drawn = set(draw.sample(chunks, math.ceil(len(chunks) * sample.percent / 100)))
        with_gaps = self._bronze.stored.query(
            """
            select distinct unnest(range((first - $2) // $3, (until - 1 - $2) // $3 + 1)) from gaps
            where partition = $1 and first >= $2
            """,
            self._partition,
            begin,
            CHUNK_OFFSETS,
        )
        drawn.update(chunks[chunk] for (chunk,) in with_gaps)
        return [(chunk, min(chunk + CHUNK_OFFSETS, until)) for chunk in sorted(drawn)]

    def _outside_gaps(self, first: int, until: int) -> Iterator[Range]:
        """Yield the parts of a range in no accepted gap: the log may be damaged there."""
        for start, end in sorted(self._accepted):
            if first < start < until:
                yield first, start
            first = end if start < until and first < end else first
        if first < until:
            yield first, until

    def _compare(self, first: int, until: int, records: pa.Table) -> None:
        rows = self._bronze.rows(self._partition, first, until)
        self._report.records += len(records)
        offsets = records["kafka_offset"]
        if not rows["kafka_offset"].equals(offsets):
            missing = offsets.filter(pc.invert(pc.is_in(offsets, rows["kafka_offset"]))).to_pylist()
            self._missing += len(missing)
            self._issues(missing, "missing in the table")
            indexes = pc.index_in(rows["kafka_offset"], offsets)
            foreign = rows["kafka_offset"].filter(pc.is_null(indexes)).to_pylist()
            if foreign and self._log.is_compacted():
                self._report.expired += len(foreign)
            else:
                self._issues(foreign, "in the table, but not in the topic")
            rows, records = rows.filter(pc.is_valid(indexes)), records.take(indexes.drop_null())
        is_erased = pc.fill_null(pc.starts_with(rows["decode_error"], ERASED), False)
        empty = pc.and_(pc.is_null(rows["kafka_raw_key"]), pc.is_null(rows["kafka_raw_value"]))
        # PyIceberg gives a list of records that is NULL as an empty one.
        bare = pc.and_(empty, pc.equal(pc.fill_null(pc.list_value_length(rows["kafka_headers"]), 0), 0))
        left = pc.and_(is_erased, pc.invert(bare))
        self._issues(rows["kafka_offset"].filter(left).to_pylist(), "is erased, and still holds bytes")
        emptied = is_erased
        if self._skipping:
            skipped = pc.and_(pc.and_(pc.is_valid(rows["decode_error"]), empty), pc.invert(is_erased))
            self._report.skipped += pc.sum(skipped, min_count=0).as_py()
            emptied = pc.or_(emptied, skipped)
        self._report.erased += pc.sum(is_erased, min_count=0).as_py()
        self._compare_columns(rows.filter(emptied), records.filter(emptied), STAMPS)
        rows, records = rows.filter(pc.invert(emptied)), records.filter(pc.invert(emptied))
        self._compare_columns(rows, records, STAMPS + BYTES)
        readable = pc.is_valid(records["kafka_headers"])
        self._report.headers_unread += pc.sum(pc.invert(readable), min_count=0).as_py()
        self._compare_columns(rows.filter(readable), records.filter(readable), ("kafka_headers",))

    def _compare_columns(self, rows: pa.Table, records: pa.Table, names: tuple[str, ...]) -> None:
        for name in names:
            stored, sent = plain_column(rows, name), plain_column(records, name)
            if not stored.equals(sent):
                pairs = zip(stored.to_pylist(), sent.to_pylist(), strict=True)
                differing = pa.array([row != record for row, record in pairs])
                self._issues(rows["kafka_offset"].filter(differing).to_pylist(), f"another {name} than in the topic")

    def _issues(self, offsets: list[int], what: str) -> None:
        self._report.add_offsets(self._partition, offsets, what)
