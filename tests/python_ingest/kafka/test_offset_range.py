"""Gaps and duplicates of stored offsets, against counted numbers."""

import random
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from python_ingest.kafka import offset_range
from python_ingest.kafka.offset_range import StoredOffsets


def offsets_in(stored: StoredOffsets, table: str) -> Iterator[int]:
    for first, until in stored.query(f"select first, until from {table} where partition = 1"):
        yield from range(first, until)


@pytest.mark.parametrize("seed", range(40))
def test_gaps_and_duplicates_are_those_of_counted_offsets(seed: int) -> None:
    draw = random.Random(seed)
    files = [draw.choices(range(26), k=draw.randint(1, 12)) for _ in range(draw.randrange(5))]
    begin, claimed = draw.randrange(30), draw.randrange(30)
    rows = Counter(offset for offsets in files for offset in offsets)
    with closing(StoredOffsets()) as stored:
        for offsets in files:
            stored.add(1, pa.array(offsets, pa.int64()))
        stored.add(2, pa.array([100, 3, 3], pa.int64()))
        stored.find_gaps(2, 0)
        stored.find_gaps(1, begin, claimed)
        first, until = stored.span(1)
        assert (first, until) == (min([begin, claimed, *rows]), max([begin, claimed, *(row + 1 for row in rows)]))
        assert sorted(offsets_in(stored, "gaps")) == [offset for offset in range(first, until) if offset not in rows]
        assert {*offsets_in(stored, "duplicates")} == {offset for offset, times in rows.items() if times > 1}
        assert stored.count("stored", 1, 5, 20) == sum(times for offset, times in rows.items() if 5 <= offset < 20)
        ranges = [
            {"id": 7, "partition": 1, "first": 0, "until": 10},
            {"id": 7, "partition": 2, "first": 2, "until": 5},
            {"id": 8, "partition": 1, "first": 40, "until": 50},
        ]
        assert stored.counts(ranges) == {7: 2 + sum(times for offset, times in rows.items() if offset < 10)}


def test_many_gaps_are_found_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a topic of many transactions, each of which ends with a marker."""
    monkeypatch.setattr(offset_range, "MEMORY_LIMIT", "20MB")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with closing(StoredOffsets()) as stored:
        for file in range(10):
            first = pa.array(range(file * 60_000, (file + 1) * 60_000, 3), pa.int64())
            stored.add(0, pa.concat_arrays([first, pc.add(first, 1)]))
        stored.find_gaps(0, 0, 600_000)
        assert stored.count("gaps", 0, 0, 600_000) == 200_000
        assert sum(1 for _ in stored.query("select first from gaps order by first")) == 200_000
        assert list(tmp_path.glob("*/*"))
    assert not list(tmp_path.iterdir())
