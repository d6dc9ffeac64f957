"""Ranges of offsets of one partition, and the ranges that a table's files hold."""

from collections.abc import Iterator
from dataclasses import dataclass
from tempfile import TemporaryDirectory
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

MEMORY_LIMIT = "256MB"
ROWS_PER_FETCH = 10_000
RANGES = pa.schema([("id", pa.int64()), ("partition", pa.int32()), ("first", pa.int64()), ("until", pa.int64())])
STORED = """
create table stored (partition integer, first bigint, until bigint);
create table edges (partition integer, first bigint, until bigint, reached bigint);
create view gaps as select partition, reached as first, first as until from edges where reached < first;
create view duplicates as
select distinct partition, first, least(until, reached) as until from edges where least(until, reached) > first
"""
EDGES = """
create or replace table edges as
select * from (
    select *, max(until) over (order by first, until rows between unbounded preceding and 1 preceding) as reached
    from stored
    where partition = $1
)
where reached <> first
"""


@dataclass(frozen=True)
class OffsetRange:
    """Offsets `start` (included) to `until` (excluded) of one partition."""

    partition: int
    start: int
    until: int


def offset_ranges(offsets: pa.Array) -> pa.Table:
    """Return the ranges without a gap of offsets in any order: columns `first` and `until` (excluded).

    An offset that comes twice is in two of them.
    """
    ordered = offsets.sort()
    begins = pc.indices_nonzero(pc.fill_null(pc.not_equal(pc.pairwise_diff(ordered), 1), True))
    ends = pa.concat_arrays([begins[1:], pa.array([len(ordered)][: len(begins)], begins.type)])
    return pa.table({"first": ordered.take(begins), "until": pc.add(ordered.take(pc.subtract(ends, 1)), 1)})


class StoredOffsets:
    """The offsets that files hold, in DuckDB: what exceeds MEMORY_LIMIT is on disk until `close`.

    Add all offsets, then call `find_gaps` for one partition after the other. It fills the tables `gaps`, between
    neighbouring ranges, and `duplicates`, of what files hold more than once. Their columns are those of `stored`:
    partition, first and until.
    """

    def __init__(self) -> None:
        self._directory = TemporaryDirectory(prefix="lakehouse-offsets-")
        self._database = duckdb.connect(
            config={"memory_limit": MEMORY_LIMIT, "threads": 2, "temp_directory": self._directory.name}
        )
        # Many conditions besides an equal partition: a hash join would compare every pair of ranges of a partition.
        self._database.execute("set enable_progress_bar = false; set prefer_range_joins = true")
        self._database.execute(STORED)

    def close(self) -> None:
        """Delete what is on disk."""
        self._database.close()
        self._directory.cleanup()

    def add(self, partition: int, offsets: pa.Array) -> None:
        """Add the offsets of a file, or of a part of it, in any order."""
        ranges = offset_ranges(offsets)
        partitions = pa.repeat(pa.scalar(partition, pa.int32()), len(ranges))
        self._database.from_arrow(ranges.add_column(0, "partition", partitions)).insert_into("stored")

    def add_range(self, partition: int, first: int, until: int) -> None:
        """Add the offsets of a file without a gap."""
        self._database.execute("insert into stored values ($1, $2, $3)", [partition, first, until])

    def find_gaps(self, partition: int, *bounds: int) -> None:
        """Fill the tables `gaps` and `duplicates` with a partition's.

        Gaps end at each of the bounds, and reach up to it where no file holds an offset before or after it.
        """
        for bound in bounds:
            self.add_range(partition, bound, bound)
        self._database.execute(EDGES, [partition])

    def span(self, partition: int) -> tuple[int, int]:
        """Return the first offset or bound of a partition, and the one after its last."""
        [(first, until)] = self.query("select min(first), max(until) from stored where partition = $1", partition)
        return first, until

    def count(self, table: str, partition: int, first: int, until: int) -> int:
        """Return how many offsets of a table lie from `first` to before `until`."""
        [(offsets,)] = self.query(
            f"select coalesce(sum(least(until, $3) - greatest(first, $2)), 0)::bigint from {table}"  # noqa: S608
            " where partition = $1 and first < $3 and until > $2",
            partition,
            first,
            until,
        )
        return int(offsets)

    def query(self, sql: str, *parameters: int) -> Iterator[tuple[Any, ...]]:
        """Yield the rows of a query piece by piece."""
        with self._database.cursor() as cursor:
            cursor.execute(sql, parameters)
            while rows := cursor.fetchmany(ROWS_PER_FETCH):
                yield from rows

    def counts(self, ranges: list[dict[str, int]]) -> dict[int, int]:
        """Return how many stored offsets lie in ranges (id, partition, first, until), by id; without zeros."""
        self._database.from_arrow(pa.Table.from_pylist(ranges, RANGES)).create("ranges")
        rows = self.query("""
            select ranges.id, sum(least(stored.until, ranges.until) - greatest(stored.first, ranges.first))::bigint
            from ranges
            inner join stored
                on ranges.partition = stored.partition and stored.first < ranges.until and stored.until > ranges.first
            group by ranges.id""")
        return dict(rows)
