"""Looks in a file for what must never be in one: text shaped like an e-mail address, a card or a phone number.

`lakehouse check pii` proves that no such column gets this far; this is the second look, at the file itself. A card
number is four groups of four digits, or 13 to 19 digits of which the last is right by Luhn. A phone number begins with
a plus sign. Both stand alone: digits within a pseudonym or a key are neither.
"""

import re

import duckdb

from lakehouse.errors import UserError
from python_export.csv_file import name
from python_export.source import Source

ALONE = r"(?:^|[^0-9A-Za-z]){}(?:$|[^0-9A-Za-z])"
EMAIL = r"[^\s@,;<>]+@[^\s@,;<>]+\.[A-Za-z]{2,}"
PHONE = ALONE.format(r"\+[0-9](?:[ ()./-]{0,2}[0-9]){8,14}")
GROUPED = ALONE.format(r"[0-9]{4}([ -])[0-9]{4}[ -][0-9]{4}[ -][0-9]{4}")
DIGITS = ALONE.format(r"([0-9]{13,19})")
KINDS = ("e-mail address", "card number", "phone number")


def require_none(database: duckdb.DuckDBPyConnection, table: str, source: Source) -> dict[str, int]:
    """Look through the text columns of a table; return what was looked for, and that none was found.

    Raises:
        UserError: something was found. It names columns, kinds and counts, never a value.
    """
    found = []
    for column in source.columns:
        if column.is_text:
            counts = _counts(database, table, name(column.name))
            found += [f"{count} cells of {column.name} look like a {kind}" for kind, count in counts.items() if count]
    if found:
        raise UserError(
            f"{source.dataset.name} is not published, it may hold personal data: {'; '.join(found)}",
            "Leave the column out of the export, or mask it where it comes from",
        )
    return dict.fromkeys(KINDS, 0)


def _counts(database: duckdb.DuckDBPyConnection, table: str, column: str) -> dict[str, int]:
    # The cheap condition first: most cells need no regular expression.
    email, phone, grouped, suspects = database.execute(
        f"""
        select
            count(*) filter (contains({column}, '@') and regexp_matches({column}, $email)),
            count(*) filter (contains({column}, '+') and regexp_matches({column}, $phone)),
            count(*) filter (length({column}) >= 19 and regexp_matches({column}, $grouped)),
            list({column}) filter (length({column}) >= 13 and regexp_matches({column}, $digits))
        from {table}
        """,
        {"email": EMAIL, "phone": PHONE, "grouped": GROUPED, "digits": DIGITS},
    ).fetchone()
    cards = sum(any(_luhn(digits) for digits in re.findall(DIGITS, text)) for text in suspects or ())
    return dict(zip(KINDS, (email, grouped + cards, phone), strict=True))


def _luhn(digits: str) -> bool:
    doubled = (sum(divmod(2 * int(digit), 10)) for digit in digits[-2::-2])
    return (sum(doubled) + sum(map(int, digits[-1::-2]))) % 10 == 0
