import math
import random
from collections import Counter
from decimal import Decimal

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.types import DecimalType, DoubleType

from python_dev.review.data import compare
from python_dev.review.table_diff import ColumnDifference, TableChange
from tests.support.seeds import SEED

KEY = ("key", "part")
SCHEMA = pa.schema(
    [
        pa.field("key", pa.string()),
        pa.field("part", pa.int64()),
        pa.field("amount", pa.decimal128(12, 2)),
        pa.field("share", pa.float64()),
        pa.field("tags", pa.list_(pa.string())),
        pa.field("address", pa.struct([pa.field("city", pa.string()), pa.field("number", pa.int32())])),
        pa.field("at", pa.timestamp("us", tz="UTC")),
    ]
)
FLAT = pa.schema([column for column in SCHEMA if not pa.types.is_nested(column.type)])
VALUES = {
    "key": (None, "", "a", "b", "c"),
    "part": (None, 0, 1),
    "amount": (None, Decimal("0.00"), Decimal("1.10"), Decimal("-1.10")),
    "share": (None, 0.0, -0.0, math.nan, 0.1),
    "tags": (None, [], [None], [""], ["a", "b"], ["a, b"]),
    "address": (None, {"city": None, "number": None}, {"city": None, "number": 1}, {"city": "1", "number": None}),
    "at": (None, 0, 1),
}


@pytest.fixture(scope="module")
def catalog(tmp_path_factory):
    directory = tmp_path_factory.mktemp("lake")
    catalog = SqlCatalog("lake", uri=f"sqlite:///{directory}/catalog.db", warehouse=f"file://{directory}")
    catalog.create_namespace("marts")
    return catalog


def table(catalog, rows, schema=SCHEMA):
    made = catalog.create_table(f"marts.t{len(catalog.list_tables('marts'))}", schema)
    # In several files, of which a changed table keeps some.
    for part in (rows[::2], rows[1::2]):
        if part:
            made.append(pa.Table.from_pylist(part, schema))
    return made


def random_row(chance, values):
    return {column: chance.choice(of_column) for column, of_column in values.items()}


def plain(value):
    if isinstance(value, float):
        return "nan" if math.isnan(value) else value + 0.0
    if isinstance(value, list):
        return tuple(map(plain, value))
    return tuple(sorted(value.items())) if isinstance(value, dict) else value


def rows_that_differ(before, after):
    """What is there more often on each side, and all rows of such a content, with their numbers."""
    sides = [Counter(tuple(map(plain, row.values())) for row in rows) for rows in (before, after)]
    left = [sides[0] - sides[1], sides[1] - sides[0]]
    return left, [{row: side[row] for row in {*left[0], *left[1]} if side[row]} for side in sides]


def expected(before, after, key):
    """What differs, by counting rows in plain Python."""
    left, unpaired = rows_that_differ(before, after)
    keys = [Counter(), Counter()]
    for counted, rows in zip(keys, unpaired, strict=True):
        for row, times in rows.items():
            counted[row[: len(KEY)]] += times
    if not key or any(times > 1 for counted in keys for times in counted.values()):
        return left[1].total(), left[0].total(), 0, False
    both = keys[0].keys() & keys[1].keys()
    return len(keys[1]) - len(both), len(keys[0]) - len(both), len(both), True


def random_pair(chance, columns):
    """Rows before and after, of few values, so that rows and keys are there several times; or of a key per row."""
    values = {column: VALUES[column] for column in columns}
    contents = [random_row(chance, values) for _ in range(chance.choice([3, 12]))]
    before = [dict(chance.choice(contents)) for _ in range(chance.randrange(12))]
    if chance.random() < 0.6:
        before = [row | {"key": f"k{number}"} for number, row in enumerate(before)]
    after = [row | random_row(chance, values) if chance.random() < 0.2 else dict(row) for row in before]
    for row, old in zip(after, before, strict=True):
        if chance.random() < 0.8:
            row["key"] = old["key"]
    after = [row for row in after if chance.random() < 0.9]
    after += [random_row(chance, values) for _ in range(chance.randrange(3))]
    chance.shuffle(after)
    return before, after


# Files of flat columns are read in another way.
@pytest.mark.parametrize("schema", [SCHEMA, FLAT], ids=["nested", "flat"])
def test_random_rows_differ_as_counted(catalog, tmp_path, schema):
    """Many pairs in the parts of two tables, since a table takes longer than a comparison."""
    chance = random.Random(SEED)
    pairs = {f"pair {number}": random_pair(chance, schema.names) for number in range(15)}
    in_parts = schema.append(pa.field("pair", pa.string()))
    before_rows, after_rows = (
        [row | {"pair": pair} for pair, rows in pairs.items() for row in rows[side]] for side in (0, 1)
    )
    states = table(catalog, before_rows, in_parts), table(catalog, after_rows, in_parts)
    for pair, (before, after) in pairs.items():
        key = chance.choice([KEY, ()])
        diff = compare(*states, key, tmp_path, ("pair", pair))
        wanted = expected(before, after, key)
        # Without anything left, no key can be there twice.
        is_keyed = diff.is_keyed if not any(wanted[:3]) else wanted[3]
        assert (diff.added, diff.removed, diff.changed, diff.is_keyed) == (*wanted[:3], is_keyed), (before, after)
        assert diff.is_equal == (not any(wanted[:3]))
        if not diff.is_equal:
            for column in ("amount", "part"):
                sums = [sum(row[column] or 0 for row in rows) for rows in (before, after)]
                nulls = [sum(row[column] is None for row in rows) for rows in (before, after)]
                assert Decimal(diff.columns[column].total) == sums[1] - sums[0]
                assert diff.columns[column].nulls == nulls[1] - nulls[0]
        if not diff.columns:
            # No file has rows of the pair.
            assert (before, after) == ([], [])
            continue
        _, unpaired = rows_that_differ(before, after)
        for index, column in enumerate(schema.names):
            distinct = [len({row[index] for row in rows if row[index] is not None}) for rows in unpaired]
            assert diff.columns[column].distinct == distinct[1] - distinct[0], (column, unpaired)


ROWS = [{**dict.fromkeys(VALUES), "key": f"k{number}", "part": 0, "amount": Decimal(number)} for number in range(10)]


def test_the_same_snapshot_is_equal_without_reading_a_file(catalog, tmp_path):
    made = table(catalog, ROWS)
    for task in made.scan().plan_files():
        made.io.delete(task.file.file_path)
    assert compare(made, catalog.load_table(made.name()), KEY, tmp_path) == TableChange()


def test_files_of_both_states_are_not_read(catalog, tmp_path):
    made = table(catalog, ROWS)
    before = catalog.load_table(made.name())
    made.append(pa.Table.from_pylist([ROWS[0] | {"key": "new"}], SCHEMA))
    for task in before.scan().plan_files():
        made.io.delete(task.file.file_path)
    diff = compare(before, made, KEY, tmp_path)
    assert (diff.rows_before, diff.rows_after, diff.added, diff.removed, diff.changed) == (10, 11, 1, 0, 0)


def test_changed_cells_are_counted_and_given_columns_sampled(catalog, tmp_path):
    after = [ROWS[0] | {"amount": Decimal("0.05"), "share": 0.5}, *ROWS[3:], ROWS[1] | {"key": "new"}]
    # DuckDB has one hash of both.
    after.append(ROWS[2] | {"tags": []})
    states = table(catalog, ROWS), table(catalog, after)
    diff = compare(*states, KEY, tmp_path, sampled={"key", "amount"})
    changed = {column: change.changed for column, change in diff.columns.items() if change.changed}
    assert (diff.changed, changed) == (2, {"amount": 1, "share": 1, "tags": 1})
    assert diff.samples == [
        {"key": ("k0", "k0"), "amount": ("0.00", "0.05")},
        {"key": ("k1", None), "amount": ("1.00", None)},
        {"key": (None, "new"), "amount": (None, "1.00")},
    ]
    assert compare(*states, (), tmp_path, sampled={"key"}).samples == []
    assert compare(*states, KEY, tmp_path).samples == []


def test_files_are_read_by_the_ids_of_columns(catalog, tmp_path):
    rows = [{column: row[column] for column in FLAT.names} | {"share": 0.5} for row in ROWS]
    made = table(catalog, rows, FLAT)
    before = catalog.load_table(made.name())
    with made.update_schema() as change:
        change.rename_column("share", "portion").rename_column("amount", "price")
    with made.update_schema() as change:
        change.add_column("share", DoubleType()).rename_column("price", "amount")
    diff = compare(before, made, KEY, tmp_path)
    assert (diff.missing, diff.changed) == ({"after": ["portion (DOUBLE)"]}, 10)
    assert (diff.columns["share"], diff.columns["amount"]) == (
        ColumnDifference(10, 10, -1),
        ColumnDifference(0, 0, 0, "0.00"),
    )


def test_values_of_a_widened_column_are_equal(catalog, tmp_path):
    wider = SCHEMA.set(2, pa.field("amount", pa.decimal128(28, 4)))
    diff = compare(table(catalog, ROWS), table(catalog, ROWS, wider), KEY, tmp_path)
    assert (diff.added, diff.removed, diff.changed) == (0, 0, 0)
    types = {"before": ["amount (DECIMAL(12,2))"], "after": ["amount (DECIMAL(28,4))"]}
    assert (diff.missing, diff.is_equal) == (types, False)


def test_a_column_dropped_and_added_again_is_another_one(catalog, tmp_path):
    made = table(catalog, ROWS)
    before = catalog.load_table(made.name())
    with made.update_schema() as change:
        change.delete_column("amount")
    with made.update_schema() as change:
        change.add_column("amount", DecimalType(12, 2))
    diff = compare(before, made, KEY, tmp_path)
    assert (diff.changed, diff.columns["amount"].nulls) == (10, 10)


def test_a_column_that_became_a_text_is_compared_as_text(catalog, tmp_path):
    text = SCHEMA.set(1, pa.field("part", pa.string()))
    after = [row | {"part": "0"} for row in ROWS[1:]] + [ROWS[0] | {"part": "one"}]
    diff = compare(table(catalog, ROWS), table(catalog, after, text), ("key",), tmp_path)
    assert (diff.changed, diff.columns["part"]) == (1, ColumnDifference(1, 0, 1, None))
