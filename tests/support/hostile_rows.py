"""The values that break CSV files, as rows of a table and as what a reader of the published file must get."""

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
from pyiceberg.catalog import Catalog

from python_export.datasets.declared import Dataset
from python_export.datasets.snapshot import Source, of_snapshot
from python_export.publishing.manifest import Manifest

Texts = list[tuple[str | None, str | None]]


def _same(*texts: str | None) -> Texts:
    return [(text, text) for text in texts]


def _quoted(*texts: str) -> Texts:
    """Return texts that begin as a formula does, or with quotes before it."""
    return [(text, f"'{text}") for text in texts]


# The value in the table, and the value a reader of the CSV must get. The order is that of lines in a stored file.
HOSTILE_TEXTS: Texts = [
    *_same(None, "", " ", "plain", "  blanks around  ", "comma, semicolon; pipe|", 'a "quoted" word', '"', '""'),
    *_same('ends with "', "'already quoted", "line\nfeed"),
    *_quoted("\n"),
    *_same("carriage\rreturn", "both\r\nof them", "tab\tinside", "back\\slash", '\\"', "\\N", "NULL", "007", "1.50"),
    *_same(
        "#comment", "pizza \U0001f355 for \u738b\u82b3, Z\u00fcrich", "\ufeffbyte order mark", "line\u2028separator"
    ),
    *(("nul\0inside", "nulinside"), ("\0", "")),
    *_same("x" * 40_000),
    *_quoted("=1+1", '=HYPERLINK("http://example.com","x")', "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", "\n=1"),
    *(("\0=1", "'=1"), ("=\0\0", "'=")),
    *_quoted("\uff1d1", "\uff0b1", "\uff0d1", "\uff201"),
    *_same("a=1"),
    *_quoted("'=1+1", "''-1"),
    *(("'\0=1", "''=1"), ("'", "'")),
]

GUARDED = sum((escaped or "") != (text or "").replace("\0", "") for text, escaped in HOSTILE_TEXTS)
WITH_NUL = sum("\0" in (text or "") for text, _ in HOSTILE_TEXTS)

SCHEMA = pa.schema(
    {
        **{"event_id": pa.int64(), "event_at": pa.timestamp("us", "UTC"), "note": pa.string()},
        **{"amount": pa.decimal128(12, 2), "tiny": pa.decimal128(38, 10), "quantity": pa.int32()},
        **{"sold_on": pa.date32(), "is_gift": pa.bool_()},
    }
)
COLUMNS = SCHEMA.names
# As Spark names them.
TYPES = ("bigint", "timestamp", "string", "decimal(12,2)", "decimal(38,10)", "int", "date", "boolean")

# 2020-W53: its last days are in January 2021.
MONDAY = datetime(2020, 12, 28, tzinfo=UTC)
LAST_INSTANT = datetime(2021, 1, 3, 23, 59, 59, 999999, tzinfo=UTC)


def hostile_rows() -> list[tuple]:
    """Return one row per hostile text, and one with every other column NULL."""
    rows = [
        (
            number,
            MONDAY if number % 2 else LAST_INSTANT,
            text,
            Decimal("-0.05") * number,
            Decimal("1E-10") * number,
            -number,
            date(1, 1, 1) if number % 2 else date(9999, 12, 31),
            bool(number % 3),
        )
        for number, (text, _) in enumerate(HOSTILE_TEXTS, start=1)
    ]
    return [*rows, (0, MONDAY, "the rest is null", None, None, None, None, None)]


def published_rows(table: list[tuple] | None = None) -> list[tuple]:
    """Return what a reader must get for rows, by default the hostile ones, in the file's order: time, then id."""
    guarded = {text: escaped for text, escaped in HOSTILE_TEXTS}
    rows = [(*row[:2], guarded.get(row[2], row[2]), *row[3:]) for row in table or hostile_rows()]
    return sorted(rows, key=lambda row: (row[1], row[0]))


def cell(value: object) -> str:
    """Write one cell, in plain Python: NULL is nothing, everything else may be quoted."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if hasattr(value, "hour"):
        return value.strftime("%Y-%m-%dT%H:%M:%S.%f").removesuffix("000") + "Z"
    if isinstance(value, str):
        return '"' + value.replace('"', '""') + '"'
    return format(value, "f") if isinstance(value, Decimal) else str(value)


def tiny(row: tuple) -> tuple:
    """Return a row with decimals at their column's scale, as the table holds them."""
    scales = {3: Decimal("0.01"), 4: Decimal("1E-10")}
    return tuple(
        value.quantize(scales[position]) if position in scales and value is not None else value
        for position, value in enumerate(row)
    )


def right_lines(table: list[tuple] | None = None) -> list[str]:
    """Return the correct file as one string per row (a row may hold line breaks), header first."""
    return [",".join(COLUMNS), *(",".join(cell(value) for value in tiny(row)) for row in published_rows(table))]


def arrow_table(rows: list[tuple], schema: pa.Schema = SCHEMA) -> pa.Table:
    """Return rows as an Arrow table."""
    return pa.Table.from_pylist([dict(zip(schema.names, row, strict=True)) for row in rows], schema)


DATASET = Dataset(
    name="events",
    model="exp_weekly__events",
    table="shop.exp_weekly__events",
    key=("event_id",),
    order_by=("event_at", "event_id"),
    topics=(),
)


def current_source(catalog: Catalog, dataset: Dataset) -> Source:
    """Return a dataset's table as it is now."""
    table = catalog.load_table(dataset.table)
    snapshot = table.current_snapshot()
    assert snapshot
    return of_snapshot(dataset, table, snapshot.snapshot_id)


def draft(week: str) -> Manifest:
    """Return the manifest of a file of one column, for tests that are not about its content."""
    return Manifest(
        dataset="events",
        week=week,
        window_start="",
        window_end="",
        version=0,
        supersedes=None,
        file="",
        bytes=0,
        sha256="",
        rows=1,
        key=["note"],
        columns=[{"name": "note", "type": "string", "nulls": 0}],
        control_totals={"amount": "0.10"},
        totals_by={"note": {"a": {"rows": "1"}}},
        formula_escaped={"note": 0},
        source_table="lake.exports.exp_weekly__events",
        source_snapshot_id="1",
        dbt_invocation_id="a",
        created_at=f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}",
    )


def source_of(catalog: Catalog, rows: list[tuple], schema: pa.Schema = SCHEMA) -> Source:
    """Return rows in an Iceberg table, as an export reads them."""
    catalog.create_table(("shop", "exp_weekly__events"), schema).append(arrow_table(rows, schema))
    return current_source(catalog, DATASET)


def failing(*_: Any, **__: Any) -> Any:
    """Fail with an error that quotes a row."""
    raise ValueError("4111-1111-1111-1111")
