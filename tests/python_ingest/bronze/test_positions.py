"""What is read next, given what the table holds and what the broker has."""

import json
from dataclasses import replace
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from python_common.errors import UserError
from python_ingest.bronze import tables, topic_identity
from python_ingest.bronze.positions import Position, before, capped, count, lost, position_of, waiting
from python_ingest.declare.topics import Declaration
from python_ingest.kafka.admin import TopicState
from python_ingest.kafka.offset_range import OffsetRange


def topic(begin: dict[int, int], end: dict[int, int]) -> TopicState:
    return TopicState("orders", "id", "cluster", begin, end)


@pytest.mark.parametrize(
    ("next_offsets", "begin", "end", "expected"),
    [
        # An empty table starts where the broker begins.
        ({}, {0: 5, 1: 0}, {0: 9, 1: 0}, [OffsetRange(0, 5, 9)]),
        # Behind the last offset, and a new partition from its beginning.
        ({0: 10, 1: 6}, {0: 0, 1: 0, 2: 3}, {0: 10, 1: 7, 2: 4}, [OffsetRange(1, 6, 7), OffsetRange(2, 3, 4)]),
        # Retention took what has landed, or behind it what is accepted as a gap.
        ({0: 6}, {0: 6}, {0: 8}, [OffsetRange(0, 6, 8)]),
        ({0: 6}, {0: 8}, {0: 20}, [OffsetRange(0, 8, 20)]),
    ],
)
def test_a_table_goes_on_behind_its_position(
    next_offsets: dict[int, int], begin: dict[int, int], end: dict[int, int], expected: list[OffsetRange]
) -> None:
    assert waiting(Position(1, next_offsets), topic(begin, end)) == expected


def test_what_retention_took_before_it_was_landed_is_lost() -> None:
    state = topic({0: 8, 1: 0, 2: 50}, {0: 20, 1: 5, 2: 100})
    assert lost(Position(1, {0: 6, 1: 5}), state) == [OffsetRange(0, 6, 8)]
    assert lost(Position(1, {0: 8}), state) == []
    # Without recorded positions an unknown partition may have been empty at first.
    assert lost(Position(1, {0: 8}, has_metadata=False), state) == [OffsetRange(2, 0, 50)]


def test_nothing_is_read_from_accepted_gaps(catalog: Catalog) -> None:
    """One behind another, at both ends of a partition, and in a table without rows."""
    declaration = Declaration("orders", "bronze", "orders")
    gaps = {"0.0": "3", "0.3": "5", "1.5": "9", "2.7": "9"}
    table = tables.create(catalog, declaration)
    topic_identity.set_properties(table, {f"lakehouse.accepted-gap.{at}": until for at, until in gaps.items()})
    state = topic(dict.fromkeys(range(4), 0), dict.fromkeys(range(4), 9))
    position = position_of(table)
    assert waiting(position, state)[:2] == [OffsetRange(0, 5, 9), OffsetRange(1, 0, 9)]
    landed = replace(position, next_offsets={0: 3, 1: 5, 2: 6, 3: 9})
    assert waiting(landed, state) == [OffsetRange(0, 5, 9), OffsetRange(2, 6, 9)]


@pytest.mark.parametrize(
    ("begin", "end", "words"),
    [
        ({0: 0, 1: 0}, {0: 4, 1: 5}, "partition 0 ends at offset 4, but the table already holds offsets up to 5"),
        ({0: 0, 1: 0}, {0: 5, 1: 5}, "partition 0 ends at offset 5, but the table already holds offsets up to 5"),
        ({0: 0}, {0: 9}, "the table holds partition 1, the topic does not"),
    ],
)
def test_what_does_not_continue_the_table_is_refused(begin: dict, end: dict, words: str) -> None:
    with pytest.raises(UserError, match=words):
        waiting(Position(1, {0: 6, 1: 5}), topic(begin, end))


def test_nothing_behind_the_ends_is_read() -> None:
    ranges = [OffsetRange(0, 2, 9), OffsetRange(1, 0, 5), OffsetRange(2, 3, 4), OffsetRange(3, 1, 2)]
    assert before(ranges, {0: 5, 2: 3, 3: 2}) == [OffsetRange(0, 2, 5), OffsetRange(3, 1, 2)]


@pytest.mark.parametrize("limit", [1, 2, 3, 7, 10, 1000])
def test_a_capped_plan_has_the_beginning_of_each_range(limit: int) -> None:
    ranges = [OffsetRange(0, 10, 12), OffsetRange(1, 0, 500), OffsetRange(2, 7, 8), OffsetRange(3, 0, 90)]
    chosen = capped(ranges, limit)
    uncapped = {piece.partition: piece for piece in ranges}
    assert count(chosen) == min(limit, count(ranges))
    for piece in chosen:
        assert piece.start == uncapped[piece.partition].start
        assert piece.start < piece.until <= uncapped[piece.partition].until


def test_what_short_ranges_leave_goes_to_the_long_one() -> None:
    ranges = [OffsetRange(0, 0, 1000), OffsetRange(1, 0, 2)]
    assert capped(ranges, 100) == [OffsetRange(0, 0, 98), OffsetRange(1, 0, 2)]


@pytest.fixture
def table(catalog: Catalog) -> Table:
    return tables.create(catalog, Declaration("sales", "bronze", "sales", "string", "dead_letter", partition_spec=()))


def land(table: Table, batch: int, positions: list[tuple[int, int]], read_until: dict[int, int] | None = None) -> None:
    """Append a batch; without `read_until` one without metadata, as another program may have written it."""
    rows = [{"kafka_partition": at[0], "kafka_offset": at[1], "ingest_batch": batch} for at in positions]
    metadata = {"lakehouse.batch": str(batch), "lakehouse.read-until": json.dumps(read_until)} if read_until else {}
    table.append(pa.Table.from_pylist(rows, table.schema().as_arrow()), snapshot_properties=metadata)


@pytest.mark.parametrize("seed", range(3))
def test_a_position_is_behind_the_greatest_offsets(table: Table, seed: int) -> None:
    chance = Random(seed)
    positions = [(partition, offset) for partition in range(3) for offset in range(8)]
    chance.shuffle(positions)
    ends: dict[int, int] = {}
    for number in range(1, 7):
        batch = positions[4 * number - 4 : 4 * number]
        land(table, number, batch)
        for partition, offset in batch:
            ends[partition] = max(offset + 1, ends.get(partition, 0))
        position = position_of(table)
        assert (position.next_offsets, position.held_batch, position.has_metadata) == (ends, number, False)


def test_the_last_batch_has_the_position_of_all_files(table: Table) -> None:
    for number in range(1, 5):
        land(table, number, [(0, number), (1, 10 - number)], {0: number + 1, 1: 10})
        assert position_of(table) == position_of(table, from_files=True)
    manifest = table.current_snapshot().manifests(table.io)[0].manifest_path
    Path(manifest.removeprefix("file://")).unlink()
    position = position_of(table)
    assert (position.next_offsets, position.held_batch, position.last_batch) == ({0: 5, 1: 10}, 4, 4)
    with pytest.raises(UserError, match=f"{manifest} is missing or damaged"):
        position_of(table, from_files=True)


def test_after_rows_of_another_program_the_files_are_read(table: Table) -> None:
    land(table, 1, [(0, 0)], {0: 1})
    land(table, 7, [(0, 5)])
    position = position_of(table)
    assert (position.next_offsets, position.held_batch, position.last_batch) == ({0: 6}, 7, 7)


def test_a_rebound_table_claims_the_numbers_after_its_last_batch(table: Table) -> None:
    land(table, 3, [(0, 40)], {0: 41})
    topic_identity.set_properties(table, {"lakehouse.generation": "1", "lakehouse.generation-start": '{"0": 2}'})
    position = position_of(table)
    # Less, and the next batch would delete the rows of the former topic.
    assert (position.next_offsets, position.held_batch, position.last_batch) == ({0: 2}, 3, 3)
    assert position == position_of(table, from_files=True)


def test_a_recorded_position_counts_until_rows_are_deleted(table: Table) -> None:
    land(table, 1, [(0, 0), (0, 1), (1, 4)], {0: 5, 1: 6, 2: 7})
    assert position_of(table).next_offsets == {0: 5, 1: 6, 2: 7}
    table.delete("kafka_partition = 0 and kafka_offset = 1")
    position = position_of(table)
    assert (position.next_offsets, position.has_metadata) == ({0: 1, 1: 5}, False)


def test_a_batch_number_is_never_less_than_an_earlier_one(table: Table) -> None:
    land(table, 2, [(0, 0)], {0: 1})
    land(table, 3, [(0, 1)], {0: 2})
    table.manage_snapshots().rollback_to_snapshot(table.metadata.snapshots[0].snapshot_id).commit()
    position = position_of(table)
    assert (position.next_offsets, position.held_batch, position.last_batch) == ({0: 1}, 2, 3)
    topic_identity.set_properties(table, {"lakehouse.last-batch": "9"})
    assert position_of(table).last_batch == 9


@pytest.mark.parametrize("mixed", [{"kafka_partition": 1}, {"kafka_generation": 1}])
def test_a_file_that_mixes_partitions_or_generations_is_named(
    catalog: Catalog, table: Table, mixed: dict[str, int]
) -> None:
    without_partitions = catalog.create_table("bronze.mixed", table.schema(), properties=tables.LAYOUT)
    row = {"kafka_partition": 0, "kafka_offset": 0, "ingest_batch": 1}
    without_partitions.append(pa.Table.from_pylist([row, row | mixed], table.schema().as_arrow()))
    words = r"\.parquet lacks statistics of the Kafka columns or mixes Kafka partitions or generations"
    with pytest.raises(UserError, match=words):
        position_of(without_partitions)
