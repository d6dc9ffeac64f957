"""Looks in a file's rows for what must never be in one: text shaped like an e-mail address, a card or a phone number.

`lakehouse check pii` proves that no such column gets this far; this is the second look, at the values themselves. A
card number is four groups of four digits, or 13 to 19 digits of which the last is right by Luhn. A phone number begins
with a plus sign. Both stand alone: digits within a pseudonym or a key are neither.
"""

import re

import duckdb

from lakehouse.errors import UserError
from python_export.csv_file import name
from python_export.source import Source

ALONE = r"(?:^|[^0-9A-Za-z]){}(?:$|[^0-9A-Za-z])"
DIGITS = "(?:([0-9]{13,19})|[0-9]{4}[ -][0-9]{4}[ -][0-9]{4}[ -][0-9]{4})"
# Every one of a cell, also where one character is between two; DuckDB, which cannot look ahead, tells if there is one.
CARD = re.compile(f"(?<![0-9A-Za-z]){DIGITS}(?![0-9A-Za-z])")
PATTERNS = {
    "email": r"[^\s@,;<>]+@[^\s@,;<>]+\.[A-Za-z]{2,}",
    "phone": ALONE.format(r"\+[0-9](?:[ ()./-]{0,2}[0-9]){8,14}"),
    "run": "[0-9][0-9 -]{11,}[0-9]",
    "card": ALONE.format(DIGITS),
}
# A case, because DuckDB evaluates both sides of an `and`: most cells need no more than the cheap condition.
FIGURES = (
    "count(*) filter (case when contains({0}, '@') then regexp_matches({0}, $email) end)",
    "count(*) filter (case when contains({0}, '+') then regexp_matches({0}, $phone) end)",
    "list({0}) filter (case when regexp_matches({0}, $run) then regexp_matches({0}, $card) end)",
)
KINDS = ("e-mail address", "phone number", "card number")


def require_none(database: duckdb.DuckDBPyConnection, rows: str, source: Source) -> dict[str, int]:
    """Look through the text columns of some rows; return what was looked for, and that none was found.

    Raises:
        UserError: something was found. It names columns, kinds and counts, never a value.
    """
    texts = [column.name for column in source.columns if column.is_text]
    figures = [figure.format(name(column)) for column in texts for figure in FIGURES]
    row = database.execute(f"select {', '.join(figures)} from {rows}", PATTERNS).fetchone() if texts else ()
    found = []
    for number, column in enumerate(texts):
        email, phone, suspects = row[3 * number : 3 * number + 3]
        cards = sum(any(map(_is_card, CARD.findall(text))) for text in suspects or ())
        for kind, count in zip(KINDS, (email, phone, cards), strict=True):
            found += [f"{count} cells of {column} look like a {kind}"] if count else []
    if found:
        raise UserError(
            f"{source.dataset.name} is not published, it may hold personal data: {'; '.join(found)}",
            "Leave the column out of the export, or mask it where it comes from",
        )
    return dict.fromkeys(KINDS, 0)


def _is_card(digits: str) -> bool:
    """Tell whether digits are right by Luhn; without any they were in groups of four, which is enough."""
    doubled = (sum(divmod(2 * int(digit), 10)) for digit in digits[-2::-2])
    return (sum(doubled) + sum(map(int, digits[-1::-2]))) % 10 == 0
