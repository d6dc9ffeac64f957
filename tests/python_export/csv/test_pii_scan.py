"""Rows that look like personal data are withheld and counted by reason, the others of their dataset are published."""

import random
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog

from python_common.errors import UserError
from python_export.csv import pii_scan
from python_export.csv.compare import verify
from python_export.csv.csv_file import connect
from python_export.csv.facts import measure
from python_export.csv.write import load_table, write
from python_export.datasets.snapshot import Source
from tests.support.hostile_rows import DATASET, arrow_table, current_source, source_of

SCHEMA = pa.schema(
    [
        ("event_id", pa.int64()),
        ("event_at", pa.timestamp("us", "UTC")),
        ("note", pa.string()),
        ("number", pa.int64()),
        ("amount", pa.decimal128(20, 2)),
    ]
)
CLEAN = (None, None, None)


def events(catalog: Catalog, cells: Iterable[tuple[Any, Any, Any]]) -> Source:
    """Return a table of rows with these notes, numbers and amounts, numbered from 0."""
    return source_of(catalog, [(number, None, *row) for number, row in enumerate(cells)], SCHEMA)


def numbers_in_file(source: Source, scratch: Path) -> list[int]:
    """Return the numbers of the rows that are compared with the file."""
    with connect(scratch) as database:
        load_table(database, source)
        return [row[0] for row in database.execute("select event_id from snapshot_rows order by event_id").fetchall()]


@pytest.mark.parametrize(
    ("cells", "reason"),
    [
        (("ask ann.smith@example.com.", None, None), "e-mail address in note"),
        (("4111 1111-1111 1111", None, None), "card number in note"),
        (("no 4111111111111111!", None, None), "card number in note"),
        (("1234567890123 4111111111111111", None, None), "card number in note"),
        (("+1 (555) 010-4477", None, None), "phone number in note"),
        ((None, 4111111111111111, None), "card number in number"),
        ((None, 378282246310005, None), "card number in number"),
        ((None, None, Decimal("5555555555554444.00")), "card number in amount"),
        (("4111111111111112", None, None), None),
        (("4111-1111-1111", None, None), None),
        (("a4111111111111111b", None, None), None),
        (("user@home", None, None), None),
        (("+12.50", None, None), None),
        (("2026-11-16 12:00:00.000000", None, None), None),
        ((None, 4111111111111112, None), None),
        # Its check sum is 35.
        ((None, 4111111111111116, None), None),
        ((None, 1_795_000_000_000, None), None),
        ((None, -4111111111111111, None), None),
        ((None, 41111111, Decimal("5555555555554444.05")), None),
    ],
)
def test_a_row_that_looks_like_personal_data_is_withheld(
    catalog: Catalog, tmp_path: Path, cells: tuple[Any, Any, Any], reason: str | None
) -> None:
    scanned = pii_scan.withhold(events(catalog, [CLEAN, cells, CLEAN]), tmp_path / "a")
    assert scanned.withheld == ({reason: 1} if reason else {})
    assert numbers_in_file(scanned, tmp_path / "b") == ([0, 2] if reason else [0, 1, 2])


def test_a_row_is_counted_once_by_the_first_reason(catalog: Catalog, tmp_path: Path) -> None:
    both = ("a@example.com", 4111111111111111, None)
    scanned = pii_scan.withhold(events(catalog, [both, CLEAN, (None, 4111111111111111, None)]), tmp_path)
    assert scanned.withheld == {"e-mail address in note": 1, "card number in number": 1}
    assert len(scanned.without) == 2


def test_numbers_of_persons_are_published_in_some_type(catalog: Catalog, tmp_path: Path) -> None:
    """Bigint, decimal and text; the order number next to them, a counter of as many digits, does not."""
    phones = random.Random(1).sample(range(491_500_000_000, 491_799_999_999), 30)
    for position, column in enumerate(("note", "number", "amount")):
        rows = [[None, 491_500_000_000 + row, None] for row in range(30)]
        for row, phone in zip(rows, phones, strict=True):
            row[position] = (str, int, Decimal)[position](phone)
        source = events(catalog, rows)
        with pytest.raises(UserError, match=f"30 of its 30 rows .*: 30 by phone number in {column}. "):
            pii_scan.withhold(source, tmp_path)
        declared = replace(source, dataset=replace(source.dataset, unscanned={column: "order numbers"}))
        assert pii_scan.withhold(declared, tmp_path).withheld == {}
        catalog.drop_table(("shop", "exp_weekly__events"))


@pytest.mark.parametrize("digits", [12, 13])
def test_numbers_of_articles_as_text_withhold_nothing(digits: int, catalog: Catalog, tmp_path: Path) -> None:
    """One in ten is right by Luhn, and would be a card among words."""
    bodies = [str(body) for body in range(4 * 10 ** (digits - 1), 4 * 10 ** (digits - 1) + 300)]
    checks = [-sum(int(digit) * (3, 1)[place % 2] for place, digit in enumerate(body[::-1])) % 10 for body in bodies]
    cells = [(f"{body}{check}", None, None) for body, check in zip(bodies, checks, strict=True)]
    assert pii_scan.withhold(events(catalog, cells), tmp_path).withheld == {}


def test_a_column_of_personal_data_withholds_its_dataset(catalog: Catalog, tmp_path: Path) -> None:
    mails = [f"person{number}@example.com" for number in range(21)]
    rows = [*((mail, None, None) for mail in mails), *[CLEAN] * 300]
    random.Random(1).shuffle(rows)
    with pytest.raises(
        UserError, match="21 of its 321 rows may hold personal data: 21 by e-mail address in note"
    ) as refusal:
        pii_scan.withhold(events(catalog, rows), tmp_path)
    assert not [mail for mail in mails if mail in str(refusal.value)]
    assert "pii_scan" in str(refusal.value)
    # The same rows among many more are no reason.
    catalog.drop_table(DATASET.table)
    scanned = pii_scan.withhold(events(catalog, [*rows, *[CLEAN] * 100]), tmp_path)
    assert scanned.withheld == {"e-mail address in note": 21}


def test_the_file_and_its_comparison_lack_the_same_rows(catalog: Catalog, tmp_path: Path) -> None:
    # A key of every type: both must name a row alike.
    names = ("number", "name", "event_at", "day", "price", "is_gift", "event_id", "note")
    time, number = pa.timestamp("us", "UTC"), pa.int64()
    types = (number, pa.string(), time, pa.date32(), pa.decimal128(2, 2), pa.bool_(), number, pa.string())
    schema = pa.schema(zip(names, types, strict=True))
    midnight, before_1970 = datetime(2026, 11, 16, tzinfo=UTC), datetime(1969, 12, 31, 23, 59, 59, 999, tzinfo=UTC)
    rows = [
        (1, "a", midnight, date(2026, 11, 16), Decimal(".50"), True, 1, "fine"),
        (2, "Zo\u00eb \u738b", midnight, date(1, 1, 1), Decimal("-.10"), False, 2, "a@example.com"),
        (3, "=\0", before_1970, None, Decimal(0), True, 3, "4111 1111 1111 1111"),
        (4, "tab\tquote'", None, date(9999, 12, 31), None, None, 4, "+1 555 010 4477 9"),
    ]
    keys = tuple(schema.names[:6])
    catalog.create_table(("shop", "exp_weekly__events"), schema).append(arrow_table(rows, schema))
    source = current_source(catalog, replace(DATASET, key=keys, order_by=keys))
    published = pii_scan.withhold(source, tmp_path / "scanned")
    file = tmp_path / "events.csv"
    write(published, file, tmp_path / "sorted")
    verify(file, published, tmp_path / "verified")
    facts = measure(published, tmp_path / "counted")
    assert (facts.rows, facts.withheld, sum(facts.withheld.values())) == (1, published.withheld, 3)
    assert facts.warnings()[0].startswith("3 rows are withheld, they may hold personal data: 1 by ")
    with pytest.raises(UserError, match="1 rows instead of 4"):
        verify(file, source, tmp_path / "whole")
