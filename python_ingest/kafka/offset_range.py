"""Stretches of one partition: a range of offsets, and many of them as a table."""

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

STRETCHES = pa.schema([("first", pa.int64()), ("until", pa.int64())])


@dataclass(frozen=True)
class OffsetRange:
    """Offsets `start` (included) to `until` (excluded) of one partition."""

    partition: int
    start: int
    until: int


def stretches(offsets: pa.Array) -> pa.Table:
    """Return the unbroken stretches of offsets that come in any order: the first of each, and the one after its last.

    An offset that comes twice is in two of them.
    """
    ordered = offsets.sort()
    begins = pc.indices_nonzero(pc.fill_null(pc.not_equal(pc.pairwise_diff(ordered), 1), True))
    ends = pa.concat_arrays([begins[1:], pa.array([len(ordered)][: len(begins)], begins.type)])
    return pa.table([ordered.take(begins), pc.add(ordered.take(pc.subtract(ends, 1)), 1)], schema=STRETCHES)
