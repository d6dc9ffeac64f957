"""What is read next, given what the table holds and what the broker has."""

import pytest

from lakehouse.errors import UserError
from python_ingest.kafka.broker import TopicState
from python_ingest.kafka.offset_range import OffsetRange
from python_ingest.landing.offsets import Position, capped, count, lost, waiting


def topic(begin: dict[int, int], end: dict[int, int]) -> TopicState:
    return TopicState("orders", "id", "cluster", begin, end)


def test_an_empty_table_starts_where_the_broker_begins() -> None:
    state = topic({0: 5, 1: 0}, {0: 9, 1: 0})
    assert waiting(Position(), state) == [OffsetRange(0, 5, 9)]


def test_a_table_goes_on_behind_its_last_offset_and_takes_new_partitions_from_their_beginning() -> None:
    state = topic({0: 0, 1: 0, 2: 3}, {0: 10, 1: 7, 2: 4})
    assert waiting(Position(1, {0: 10, 1: 6}), state) == [OffsetRange(1, 6, 7), OffsetRange(2, 3, 4)]


def test_what_retention_took_before_it_was_landed_is_lost() -> None:
    state = topic({0: 8, 1: 0}, {0: 20, 1: 5})
    assert lost(Position(1, {0: 6, 1: 5}), state) == [OffsetRange(0, 6, 8)]
    assert lost(Position(1, {0: 8}), state) == []


def test_without_the_ledger_what_retention_took_from_an_unknown_partition_is_lost() -> None:
    state = topic({0: 0, 1: 50, 2: 0}, {0: 9, 1: 100, 2: 3})
    assert lost(Position(1, {0: 9}), state) == []
    assert lost(Position(1, {0: 9}, has_ledger=False), state) == [OffsetRange(1, 0, 50)]


@pytest.mark.parametrize(
    ("begin", "end", "words"),
    [
        ({0: 0, 1: 0}, {0: 4, 1: 5}, "partition 0 ends at offset 4, but the table already holds offsets up to 5"),
        ({0: 0}, {0: 9}, "the table holds partition 1, the topic does not"),
    ],
)
def test_what_does_not_continue_the_table_is_refused(begin: dict, end: dict, words: str) -> None:
    with pytest.raises(UserError, match=words):
        waiting(Position(1, {0: 6, 1: 5}), topic(begin, end))


def test_retention_up_to_the_next_offset_leaves_no_gap() -> None:
    assert waiting(Position(1, {0: 6}), topic({0: 6}, {0: 8})) == [OffsetRange(0, 6, 8)]


@pytest.mark.parametrize("limit", [1, 2, 3, 7, 10, 1000])
def test_a_capped_plan_is_a_prefix_of_each_range_and_uses_the_limit(limit: int) -> None:
    ranges = [OffsetRange(0, 10, 12), OffsetRange(1, 0, 500), OffsetRange(2, 7, 8), OffsetRange(3, 0, 90)]
    chosen = capped(ranges, limit)
    whole = {piece.partition: piece for piece in ranges}
    assert count(chosen) == min(limit, count(ranges))
    for piece in chosen:
        assert piece.start == whole[piece.partition].start
        assert piece.start < piece.until <= whole[piece.partition].until


def test_what_short_ranges_leave_goes_to_the_long_one() -> None:
    ranges = [OffsetRange(0, 0, 1000), OffsetRange(1, 0, 2)]
    assert capped(ranges, 100) == [OffsetRange(0, 0, 98), OffsetRange(1, 0, 2)]
