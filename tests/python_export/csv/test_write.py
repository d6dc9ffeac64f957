"""The file that DuckDB writes, byte for byte, and that the comparison refuses every other expression of its SQL."""

import csv
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import duckdb
import pandas
import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyspark.sql import SparkSession

from python_common.catalog.catalog import load_catalog, make_namespace
from python_common.config.environment import PROJECT_ROOT
from python_common.config.settings import Settings
from python_common.errors import UserError
from python_export.csv import write as writer
from python_export.csv.compare import verify
from python_export.csv.facts import measure
from python_export.csv.write import write
from python_export.datasets.snapshot import Source
from tests.support.hostile_rows import (
    COLUMNS,
    DATASET,
    HOSTILE_TEXTS,
    MONDAY,
    arrow_table,
    cell,
    current_source,
    hostile_rows,
    published_rows,
    source_of,
    tiny,
)

SCHEMA = pa.schema(
    [
        ("event_id", pa.int64()),
        ("note", pa.string()),
        ("event_at", pa.timestamp("us", "UTC")),
        ("sold_on", pa.date32()),
        ("share", pa.decimal128(2, 2)),
        ("tiny", pa.decimal128(38, 10)),
        ("wide", pa.decimal128(38, 0)),
        ("quantity", pa.int32()),
        ("is_gift", pa.bool_()),
    ]
)
NOTES = [text for text, _ in HOSTILE_TEXTS if len(text or "") < 100]
TIMES = [
    None,
    datetime(1, 1, 1, tzinfo=UTC),
    datetime(1582, 10, 4, 23, 59, 59, 999999, tzinfo=UTC),
    datetime(1969, 12, 31, 23, 59, 59, 1, tzinfo=UTC),
    datetime(1969, 12, 31, 23, 59, 59, 999000, tzinfo=UTC),
    datetime(2026, 1, 1, tzinfo=UTC),
    datetime(2026, 1, 1, 1, 2, 3, 120, tzinfo=UTC),
    datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
]
WIDEST = "9" * 38
NUMBERS = [
    (None, None, None, None, None),
    ("0", "0", "0", 0, -(2**63)),
    ("0.5", "1E-10", WIDEST, -(2**31), 2**63 - 1),
    ("-0.05", "-1E-10", f"-{WIDEST}", 2**31 - 1, 0),
    ("-0.99", "12345678901234567890.1", "10", 7, 0),
]


def rows() -> list[tuple]:
    """Return rows with the texts, times and numbers that engines write in different ways."""
    numbered = []
    for number, note in enumerate(NOTES):
        share, tiny, wide, quantity, offset = NUMBERS[number % len(NUMBERS)]
        decimals = (None if text is None else Decimal(text) for text in (share, tiny, wide))
        at = TIMES[number % len(TIMES)]
        is_gift = (None, True, False)[number % 3]
        key = offset if offset and number < len(NUMBERS) else number
        numbered.append((key, note, at, at and date(at.year, at.month, at.day), *decimals, quantity, is_gift))
    return numbered


# As Spark wrote it in releases before 0.7: the files of a week stay the same.
LINES = Path(__file__).with_name("dialect.csv").read_bytes().decode()
# What is in the SQL of the writer, cells or options, and what is in its place.
MUTATIONS = {
    "NUL kept": ("replace(\"note\", chr(0), '')", '"note"'),
    "guard missing": ("then '''' ||", "then"),
    "quotes before a formula not counted": (
        "ltrim(replace(\"note\", chr(0), ''), '''')",
        "replace(\"note\", chr(0), '')",
    ),
    **{f"{ord(start):x} not guarded": (str(ord(start)), "0") for start in "=+-@\n\r\uff0b\uff0d\uff1d\uff20"},
    "tab not guarded": (" 9,", " 0,"),
    "microseconds cut": ("%f", "%g000"),
    "milliseconds padded": ("'000$'", "'0000$'"),
    "time without zone": ("|| 'Z'", "|| ''"),
    "time with a blank": ("%dT%H", "%d %H"),
    "another day": ("%Y-%m-%d", "%Y-%d-%m"),
    "no zero before the point": (r"'\10.'", r"'\1.'"),
    "descending": ('"event_at" asc', '"event_at" desc'),
    "nulls last": ("nulls first", "nulls last"),
    "no total order": ('"event_id" asc', '"event_id" desc'),
    "row missing": ("from snapshot_rows", "from snapshot_rows where event_id <> 3"),
    "value of another column": ('"quantity" as varchar)', '"event_id" as varchar)'),
    "no header": ("header", "header false"),
    "semicolons": ("delimiter ','", "delimiter ';'"),
    "apostrophes": ("""quote '"', escape '"'""", "quote '''', escape ''''"),
    "backslashes": ("""escape '"'""", r"escape '\'"),
    "NULL as a word": ("nullstr ''", "nullstr 'NULL'"),
}


@pytest.fixture
def source(catalog: Catalog) -> Source:
    return source_of(catalog, rows(), SCHEMA)


@pytest.mark.parametrize("bom", [False, True])
def test_a_byte_of_the_dialect_changes(source: Source, tmp_path: Path, bom: bool) -> None:
    file = tmp_path / "events.csv"
    write(source, file, tmp_path / "scratch", bom)
    assert file.read_bytes().decode() == "\ufeff" * bom + LINES
    verify(file, source, tmp_path / "scratch")


@pytest.mark.parametrize("mutation", MUTATIONS)
def test_another_expression_of_the_writer_is_accepted(
    source: Source, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mutation: str
) -> None:
    statement, (old, new) = writer.statement(source), MUTATIONS[mutation]
    assert (old in statement) != (old in writer.OPTIONS)
    monkeypatch.setattr(writer, "OPTIONS", writer.OPTIONS.replace(old, new))
    monkeypatch.setattr(writer, "statement", lambda *_: statement.replace(old, new))
    write(source, tmp_path / "events.csv", tmp_path / "scratch")
    with pytest.raises(UserError, match="differs from the table, so nothing is published"):
        verify(tmp_path / "events.csv", source, tmp_path / "scratch")


@pytest.mark.parametrize("is_local", [True, False])
def test_rows_of_many_data_files_are_out_of_order(
    catalog: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_local: bool
) -> None:
    """DuckDB reads files of this machine itself, and those of a store through PyIceberg."""
    if not is_local:
        monkeypatch.setattr(writer, "whole_files", lambda _: None)
    table = catalog.create_table(("shop", "exp_weekly__events"), SCHEMA)
    for first in range(0, len(rows()), 10):
        table.append(arrow_table(rows()[first : first + 10], SCHEMA))
    write(current_source(catalog, DATASET), tmp_path / "events.csv", tmp_path / "scratch")
    assert (tmp_path / "events.csv").read_bytes().decode() == LINES


def test_rows_behind_a_delete_file_are_published(services: Settings, spark: SparkSession, tmp_path: Path) -> None:
    """DuckDB would read the data file, and know of no delete file."""
    catalog = load_catalog(services, create=True)
    make_namespace(catalog, "shop")
    dataset = replace(DATASET, table="shop.merged_on_read")
    table = catalog.create_table(dataset.table, SCHEMA, properties={"write.delete.mode": "merge-on-read"})
    table.append(arrow_table(rows(), SCHEMA))
    spark.sql(f"delete from lake.{dataset.table} where event_id = 3")
    source = current_source(catalog, dataset)
    [task] = source.table.scan().plan_files()
    assert task.delete_files
    write(source, tmp_path / "events.csv", tmp_path / "scratch")
    verify(tmp_path / "events.csv", source, tmp_path / "scratch")
    left = [line for line in LINES.splitlines(keepends=True) if not line.startswith("3,")]
    assert (tmp_path / "events.csv").read_bytes().decode().splitlines(keepends=True) == left


def test_a_table_that_was_emptied_has_no_header(source: Source, tmp_path: Path) -> None:
    source.table.delete()
    emptied = replace(source, snapshot_id=source.table.current_snapshot().snapshot_id)
    write(emptied, tmp_path / "events.csv", tmp_path / "scratch")
    assert (tmp_path / "events.csv").read_text() == LINES[: LINES.index("\n") + 1]
    verify(tmp_path / "events.csv", emptied, tmp_path / "scratch")
    facts = measure(emptied, tmp_path / "scratch")
    assert (facts.rows, facts.control_totals["share"], facts.control_totals["tiny"]) == (0, "0.00", "0.0000000000")


def test_a_null_of_a_single_column_is_lost(catalog: Catalog, tmp_path: Path) -> None:
    schema = pa.schema([("note", pa.string())])
    table = source_of(catalog, [], SCHEMA).table
    with table.update_schema() as update:
        for name in SCHEMA.names:
            if name != "note":
                update.delete_column(name)
    table.append(arrow_table([("b",), (None,), ("",)], schema))
    source = current_source(catalog, replace(DATASET, key=("note",), order_by=("note",)))
    write(source, tmp_path / "events.csv", tmp_path / "scratch")
    assert (tmp_path / "events.csv").read_text() == 'note\n\n""\nb\n'
    verify(tmp_path / "events.csv", source, tmp_path / "scratch")


def documented(start: str, file: Path) -> str:
    """Return the line of docs/export.md that begins so, for a file."""
    [line] = [line for line in (PROJECT_ROOT / "docs" / "export.md").read_text().splitlines() if line.startswith(start)]
    return line.replace("FILE", str(file))


@pytest.mark.parametrize("bom", [False, True])
@pytest.mark.parametrize("reader", ["pandas", "DuckDB", "csv"])
def test_hostile_values_reach_three_parsers_unchanged(catalog: Catalog, tmp_path: Path, reader: str, bom: bool) -> None:
    """By the documented lines: also texts that readers take for no value, and numbers that they would round."""
    words = ["NA", "null", "nan", "N/A", "None", "#N/A", "1e5", "True"]
    more = [(1000 + row, MONDAY, word, None, Decimal(10**17 + row), *[None] * 3) for row, word in enumerate(words)]
    table, file = [*hostile_rows(), *more], tmp_path / "events.csv"
    write(source_of(catalog, table), file, tmp_path / "scratch", bom)
    expected = [
        tuple(value if isinstance(value, str | None) else cell(value) for value in tiny(row))
        for row in published_rows(table)
    ]
    if reader == "DuckDB":
        assert duckdb.execute(documented("select * from read_csv(", file)).fetchall() == expected
        return
    # The others have no NULL.
    if reader == "pandas":
        frame = eval(documented("pandas.read_csv(", file), {"pandas": pandas})
        read = list(frame.itertuples(index=False, name=None))
    else:
        with file.open(newline="", encoding="utf-8-sig") as stream:
            header, *read = map(tuple, csv.reader(stream))
        assert header == (*COLUMNS,)
    assert read == [tuple(text or "" for text in row) for row in expected]
