"""Reads a published file with three independent parsers, and returns what each finds in it."""

import csv
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv as arrow_csv

from python_export.files.csv_file import connect, name, one_row, rows_of
from python_export.publishing.manifest import Manifest

csv.field_size_limit(2**31 - 1)


@dataclass(frozen=True)
class Reading:
    """What a parser found: rows, empty cells by column, and the total of each numeric column.

    Python's parser cannot tell NULL from the empty string; `nulls` has only columns without text then.
    """

    rows: int
    nulls: dict[str, int]
    totals: dict[str, Decimal]


def with_duckdb(file: Path, manifest: Manifest, scratch: Path) -> Reading:
    """Return what DuckDB finds, with `scratch` for what outgrows its memory; a damaged file raises one of REFUSALS."""
    columns, scales = manifest.column_names, _scales(manifest)
    numbers = list(manifest.control_totals)
    figures = ["count(*)", *(f"count(*) - count({name(column)})" for column in columns)]
    figures += [f"sum(cast({name(column)} as decimal(38, {scales[column]})))" for column in numbers]
    with connect(scratch) as database:
        rows, *found = one_row(database, f"select {', '.join(figures)} from {rows_of(file, columns)}")
    totals = (Decimal(total or 0) for total in found[len(columns) :])
    return Reading(rows, dict(zip(columns, found, strict=False)), dict(zip(numbers, totals, strict=True)))


def with_pyarrow(file: Path, manifest: Manifest, scratch: Path) -> Reading:
    """Return what pyarrow finds, batch by batch; a damaged file raises one of REFUSALS."""
    columns, scales = manifest.column_names, _scales(manifest)
    rows, nulls = 0, dict.fromkeys(columns, 0)
    totals = dict.fromkeys(manifest.control_totals, Decimal(0))
    convert = arrow_csv.ConvertOptions(
        column_types=dict.fromkeys(columns, pa.string()),
        null_values=[""],
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
    )
    options = {"parse_options": arrow_csv.ParseOptions(newlines_in_values=True), "convert_options": convert}
    with arrow_csv.open_csv(file, **options) as reader:
        if reader.schema.names != columns:
            raise ValueError("another header")
        for batch in reader:
            rows += batch.num_rows
            for column in columns:
                nulls[column] += batch[column].null_count
            for column in totals:
                numbers = pc.cast(batch[column], pa.decimal128(38, scales[column]))
                totals[column] += pc.sum(numbers).as_py() or 0
    return Reading(rows, nulls, totals)


def with_python(file: Path, manifest: Manifest, scratch: Path) -> Reading:
    """Return what Python's csv module finds, row by row; a damaged file raises one of REFUSALS."""
    columns = manifest.column_names
    rows, empty = 0, dict.fromkeys(columns, 0)
    totals = dict.fromkeys(manifest.control_totals, Decimal(0))
    with file.open(newline="", encoding="utf-8-sig") as stream:
        reader = csv.reader(stream, strict=True)
        if next(reader, None) != columns:
            raise ValueError("another header")
        for values in reader:
            row = dict(zip(columns, values, strict=True))
            rows += 1
            for column, cell in row.items():
                empty[column] += not cell
            for column in totals:
                totals[column] += Decimal(row[column] or 0)
    texts = {column.name for column in manifest.columns if column.type == "string"}
    return Reading(rows, {column: count for column, count in empty.items() if column not in texts}, totals)


PARSERS: dict[str, Callable[[Path, Manifest, Path], Reading]] = {
    "DuckDB": with_duckdb,
    "pyarrow": with_pyarrow,
    "Python's csv": with_python,
}
# What a parser raises on a damaged file, or on totals of columns that are not there. Its message may quote a row.
REFUSALS = (duckdb.Error, pa.ArrowException, csv.Error, ValueError, InvalidOperation, LookupError)


def _scales(manifest: Manifest) -> dict[str, int]:
    return {column.name: column.scale for column in manifest.columns if column.name in manifest.control_totals}
