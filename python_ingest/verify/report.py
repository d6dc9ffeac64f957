"""The outcome of verifying one topic."""

from collections.abc import Iterable
from dataclasses import dataclass, field

import pyarrow as pa

from python_ingest.kafka.offset_range import offset_ranges

ISSUES_NAMED = 10


@dataclass(frozen=True)
class Sample:
    """Compare the bytes of so many percent of the chunks of offsets, chosen at random from a seed."""

    percent: float
    seed: int


@dataclass
class Report:
    """The outcome for one topic; every count is of offsets or rows in the range that was checked.

    The range spans, in each partition, from the first offset that the table or the broker has to the last that the
    table holds or claims to have read.

    `records` were read from the broker and compared with `rows` of the table, but for `expired` rows, which the broker
    no longer has, `skipped` ones, of which `on_error: skip` stored no bytes, and `erased` ones: of these two only the
    timestamps. Offsets without a row hold no record (`empty`: transaction markers, aborted records, log compaction),
    were `accepted` as a gap, are `unconfirmed` because the broker no longer has them either, or are an issue. Of
    `headers_unread` records a header has a key that is not UTF-8: their headers were not compared. `decoded` rows were
    decoded again and compared column by column. `sample` is what was asked for; `error` is why the check could not be
    done.
    """

    topic: str
    table: str
    offsets: int = 0
    rows: int = 0
    records: int = 0
    empty: int = 0
    skipped: int = 0
    erased: int = 0
    accepted: int = 0
    expired: int = 0
    unconfirmed: int = 0
    headers_unread: int = 0
    decoded: int = 0
    sample: Sample | None = None
    issue_count: int = 0
    issues: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    error: str | None = None

    def add(self, issue: str) -> None:
        """Count an issue, and keep it if it is one of the first."""
        self.issue_count += 1
        if len(self.issues) < ISSUES_NAMED:
            self.issues.append(issue)

    def add_offsets(self, partition: int, offsets: Iterable[int], what: str) -> None:
        """Add an issue for every range of offsets."""
        for span in offset_ranges(pa.array(set(offsets), pa.int64())).to_pylist():
            self.add(f"partition {partition}: {offsets_label(span['first'], span['until'] - 1)}: {what}")

    def line(self) -> str:
        """Return the outcome in a line."""
        if self.error is not None:
            return f"{self.topic}: not verified: {self.error}"
        details = [f"{self.records:,} records compared"]
        if self.sample is not None:
            share = self.records / self.rows if self.rows else 1
            details.append(f"{share:.1%} of {self.rows:,} rows (seed {self.sample.seed})")
        for count, what in (
            (self.skipped, "rows skipped without bytes"),
            (self.erased, "erased rows"),
            (self.empty, "offsets without a record"),
            (self.accepted, "offsets in accepted gaps"),
            (self.expired, "rows that the broker no longer has"),
            (self.unconfirmed, "offsets that neither has"),
            (self.headers_unread, "records whose header keys are not UTF-8"),
            (self.decoded, "rows decoded again"),
        ):
            details += [f"{count:,} {what}"] if count else []
        verdict = f"{self.issue_count} issues, the first are" if self.issues else "all exactly once"
        return f"{self.topic}: {', '.join(details)}: {verdict}"

    @property
    def good(self) -> bool:
        """Return whether the check was complete and found no issue."""
        return not self.issues and self.error is None


def offsets_label(first: int, last: int) -> str:
    """Return the name of a range of offsets."""
    return f"offset {first}" if first == last else f"offsets {first} to {last}"
