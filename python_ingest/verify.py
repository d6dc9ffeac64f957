"""The independent check: what a Kafka consumer reads against what PyIceberg reads, without Spark.

It shares the declarations with the ingester, and nothing of the way rows are planned or written. Memory is bounded
by the largest data file's offsets and by pieces of records, not by the table.
"""

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice

import pyarrow as pa
import pyarrow.compute as pc

from lakehouse.catalog import load_catalog, load_table
from lakehouse.settings import Settings
from python_ingest.topic_log import TopicLog
from python_ingest.topics import Declaration
from python_ingest.verify_table import BronzeTable, overlap

CHUNK_OFFSETS = 10_000
PROBLEMS_NAMED = 10
STAMPS = ("kafka_timestamp", "kafka_timestamp_type")
BYTES = ("kafka_raw_key", "kafka_raw_value", "kafka_headers")
Range = tuple[int, int]


@dataclass(frozen=True)
class Sample:
    """Compare the bytes of so many percent of the chunks of offsets, chosen at random from a seed."""

    percent: float
    seed: int


@dataclass
class Report:
    """The outcome for one topic. A range of offsets spans, in each partition, from the first that the table or the
    broker has to the last that the table holds or claims to have read; every count is of offsets or rows in it.

    `records` were read from the broker and compared with `rows` of the table, but for `expired` rows, which the
    broker no longer has, and `skipped` ones, of which `on_error: skip` kept no bytes. Offsets without a row hold no
    record (`empty`: transaction markers, aborted records, log compaction), were `accepted` as a gap, are
    `unconfirmed` because the broker no longer has them either, or are a problem. `sample` is what was asked for;
    `error` says why the check could not be done.
    """

    topic: str
    table: str
    offsets: int = 0
    rows: int = 0
    records: int = 0
    empty: int = 0
    skipped: int = 0
    accepted: int = 0
    expired: int = 0
    unconfirmed: int = 0
    sample: Sample | None = None
    problem_count: int = 0
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    error: str | None = None

    def add(self, problem: str) -> None:
        """Count a problem, and keep it if it is one of the first."""
        self.problem_count += 1
        if len(self.problems) < PROBLEMS_NAMED:
            self.problems.append(problem)

    def line(self) -> str:
        """Return the outcome in a line."""
        if self.error is not None:
            return f"{self.topic}: not verified: {self.error}"
        parts = [f"{self.records:,} records compared"]
        if self.sample is not None:
            share = self.records / self.rows if self.rows else 1
            parts.append(f"{share:.1%} of {self.rows:,} rows (seed {self.sample.seed})")
        for count, what in (
            (self.skipped, "rows skipped without bytes"),
            (self.empty, "offsets without a record"),
            (self.accepted, "offsets in accepted gaps"),
            (self.expired, "rows that the broker no longer has"),
            (self.unconfirmed, "offsets that neither has"),
        ):
            parts += [f"{count:,} {what}"] if count else []
        verdict = f"{self.problem_count} problems, the first are" if self.problems else "all exactly once"
        return f"{self.topic}: {', '.join(parts)}: {verdict}"

    @property
    def good(self) -> bool:
        """Tell whether the check was done and found nothing."""
        return not self.problems and self.error is None


def verify_topic(settings: Settings, declaration: Declaration, wait: float, sample: Sample | None = None) -> Report:
    """Compare a bronze table with its topic, and with the batches that its snapshots say were landed.

    Every offset that a committed reader sees, from the first that the broker still has to the last that the table
    holds or claims to, must be in the table exactly once, with equal key, value, headers and timestamp. Every row must
    have the number of a batch, without which readers downstream never take it. Rows that the broker no longer has are
    checked for duplicates, and their holes are noted. With a sample all of this stays, but bytes are compared, and
    offsets searched that should not be there, in the sampled chunks and in every chunk with a hole.

    Raises:
        UserError: the topic does not exist, the broker does not answer within `wait` seconds, or a file of the
            table is damaged.
    """
    report = Report(declaration.topic, declaration.identifier, sample=sample)
    table = load_table(load_catalog(settings), declaration.identifier)
    log = TopicLog(settings, declaration.topic, wait)
    try:
        partitions = log.partitions()
        if table is None:
            # A topic may be declared and have no record yet.
            if any(map(log.holds_records, partitions)):
                report.add(f"there is no table {declaration.identifier}")
            return report
        bronze = BronzeTable(table, declaration.topic)
        bronze.scan()
        if bronze.foreign_rows:
            report.add(f"{bronze.foreign_rows} rows name no offset, or another topic")
        if bronze.unnumbered_rows:
            report.add(f"{bronze.unnumbered_rows} rows have no batch number, or one that was never given")
        for partition in sorted(bronze.holdings.keys() | bronze.read_until().keys()):
            if partition in partitions:
                _Partition(report, bronze, log, partition, declaration.on_error == "skip").verify()
            else:
                report.add(f"partition {partition} is in the table, but not in the topic")
    finally:
        log.close()
    _check_ledger(report, bronze)
    return report


class _Partition:
    """One partition on both sides."""

    def __init__(self, report: Report, bronze: BronzeTable, log: TopicLog, partition: int, skipping: bool) -> None:
        self._report = report
        self._bronze = bronze
        self._log = log
        self._partition = partition
        self._skipping = skipping
        self._accepted = bronze.accepted_gaps(partition)
        self._missing = 0

    def verify(self) -> None:
        report = self._report
        held = self._bronze.holdings[self._partition]
        begin = self._log.begin(self._partition)
        claimed = self._bronze.read_until().get(self._partition, begin)
        first = min([begin, claimed, *(first for _, first, _ in held.files)])
        until = max([claimed, *(until for _, _, until in held.files)])
        stretches = held.stretches(first, until)
        for start, end, times in _tuples(stretches.filter(pc.field("times") > 1)):
            self._problem(start, end - 1, f"there {times} times")
        holes = stretches.filter(pc.field("times") == 0)
        for chosen in self._chosen(begin, until, holes):
            for piece in self._log.records(self._partition, *chosen):
                self._compare(*piece)
        for start, end, _ in islice(_tuples(holes.filter(pc.field("first") < begin)), PROBLEMS_NAMED):
            if (start, end) not in self._accepted:
                place = _place(start, min(end, begin) - 1)
                report.notes.append(f"partition {self._partition}: {place}: no row, and the broker no longer has them")
        accepted = sum(overlap(holes, *each) for each in self._accepted)
        unconfirmed = overlap(holes, first, begin) - sum(
            overlap(holes, start, min(end, begin)) for start, end in self._accepted
        )
        report.offsets += until - first
        report.rows += held.rows
        report.expired += overlap(held.runs, first, begin)
        report.accepted += accepted
        report.unconfirmed += unconfirmed
        report.empty += overlap(holes, first, until) - accepted - unconfirmed - self._missing

    def _chosen(self, begin: int, until: int, holes: pa.Table) -> list[Range]:
        """Return the ranges to compare: all that the broker has, or the drawn chunks and those with holes."""
        sample = self._report.sample
        if sample is None:
            return [(begin, until)] if begin < until else []
        chunks = range(begin, until, CHUNK_OFFSETS)
        draw = random.Random(f"{sample.seed} {self._partition}")
        drawn = set(draw.sample(chunks, math.ceil(len(chunks) * sample.percent / 100)))
        for start, end, _ in _tuples(holes.filter(pc.field("until") > begin)):
            drawn.update(chunks[max(0, start - begin) // CHUNK_OFFSETS : (end - 1 - begin) // CHUNK_OFFSETS + 1])
        return [(chunk, min(chunk + CHUNK_OFFSETS, until)) for chunk in sorted(drawn)]

    def _compare(self, first: int, until: int, records: pa.Table) -> None:
        rows = self._bronze.rows(self._partition, first, until)
        self._report.records += len(records)
        offsets = records["kafka_offset"]
        if not rows["kafka_offset"].equals(offsets):
            missing = offsets.filter(pc.invert(pc.is_in(offsets, rows["kafka_offset"]))).to_pylist()
            lost = [offset for offset in missing if not any(a <= offset < b for a, b in self._accepted)]
            self._missing += len(lost)
            self._problems(lost, "missing in the table")
            places = pc.index_in(rows["kafka_offset"], offsets)
            foreign = rows["kafka_offset"].filter(pc.is_null(places)).to_pylist()
            self._problems(foreign, "in the table, but not in the topic")
            rows, records = rows.filter(pc.is_valid(places)), records.take(places.drop_null())
        if self._skipping:
            emptied = pc.and_(
                pc.is_valid(rows["decode_error"]),
                pc.and_(pc.is_null(rows["kafka_raw_key"]), pc.is_null(rows["kafka_raw_value"])),
            )
            self._report.skipped += pc.sum(emptied, min_count=0).as_py()
            self._compare_columns(rows.filter(emptied), records.filter(emptied), STAMPS)
            rows, records = rows.filter(pc.invert(emptied)), records.filter(pc.invert(emptied))
        self._compare_columns(rows, records, STAMPS + BYTES)

    def _compare_columns(self, rows: pa.Table, records: pa.Table, names: tuple[str, ...]) -> None:
        for name in names:
            if not rows[name].equals(records[name]):
                pairs = zip(rows[name].to_pylist(), records[name].to_pylist(), strict=True)
                differing = pa.array([row != record for row, record in pairs])
                self._problems(rows["kafka_offset"].filter(differing).to_pylist(), f"another {name} than in the topic")

    def _problems(self, offsets: list[int], what: str) -> None:
        for first, last in _runs(sorted(set(offsets))):
            self._problem(first, last, what)

    def _problem(self, first: int, last: int, what: str) -> None:
        self._report.add(f"partition {self._partition}: {_place(first, last)}: {what}")


def _check_ledger(report: Report, bronze: BronzeTable) -> None:
    for batch, ranges, landed in bronze.batches():
        held = sum(overlap(bronze.holdings[partition].runs, *each) for partition, each in ranges.items())
        if held != landed:
            report.add(f"batch {batch} landed {landed} rows, and {held} are there")


def _place(first: int, last: int) -> str:
    return f"offset {first}" if first == last else f"offsets {first} to {last}"


def _tuples(stretches: pa.Table) -> Iterator[tuple[int, int, int]]:
    for batch in stretches.to_batches(max_chunksize=10_000):
        yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)


def _runs(offsets: list[int]) -> Iterator[tuple[int, int]]:
    """Yield first and last of the runs without a hole in sorted offsets."""
    starts = [offset for index, offset in enumerate(offsets) if index == 0 or offsets[index - 1] != offset - 1]
    ends = [offset for index, offset in enumerate(offsets) if offsets[index + 1 : index + 2] != [offset + 1]]
    return zip(starts, ends, strict=True)
