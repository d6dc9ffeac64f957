"""Looks in a table's rows for values shaped like an e-mail address, a card or a phone number: they are never published.

Such rows are withheld, and if they are many, their dataset. `lakehouse check pii` proves that no such column gets this
far; this is the second look, at the values themselves.

In a text, a card number is four groups of four digits, or 13 to 19 digits of which the last is right by Luhn, and a
phone number begins with a plus sign. None is part of a word: digits within a pseudonym or a key are neither. Cells that
are a number alone, of every type, are compared with the others of their column, by numbers.py.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import duckdb

from python_common.errors import UserError
from python_export.csv.csv_file import name, one_row, reading, rows_of
from python_export.csv.numbers import IS_ARTICLE, Check, is_luhn, kinds
from python_export.csv.write import cell_text, load_table, row_hash
from python_export.datasets.snapshot import Source

WHOLE_WORD = r"(?:^|[^0-9A-Za-z]){}(?:$|[^0-9A-Za-z])"
DIGITS = "(?:([0-9]{13,19})|[0-9]{4}[ -][0-9]{4}[ -][0-9]{4}[ -][0-9]{4})"
# All of a cell, also with one character between two; DuckDB, which cannot look ahead, finds whether there is one.
CARD = re.compile(f"(?<![0-9A-Za-z]){DIGITS}(?![0-9A-Za-z])")
PATTERNS = {
    "email": r"[^\s@,;<>]+@[^\s@,;<>]+\.[A-Za-z]{2,}",
    "phone": WHOLE_WORD.format(r"\+[0-9](?:[ ()./-]{0,2}[0-9]){8,14}"),
    "run": "[0-9][0-9 -]{11,}[0-9]",
    "card": WHOLE_WORD.format(DIGITS),
    "number": "^ *([0-9]{9,19})(?:[.]0+)? *$",
}
# A case, because DuckDB evaluates both sides of an `and`: most cells need no more than the cheap condition.
TEXT_CONDITIONS = {
    "e-mail address": "case when contains({0}, '@') then regexp_matches({0}, $email) end",
    "phone number": "case when contains({0}, '+') then regexp_matches({0}, $phone) end",
    "card number": "case when regexp_matches({0}, $run) then regexp_matches({0}, $card) end",
}
# The digits of a cell that is a number alone, and NULL for others; the first condition is a cheap one.
NUMBER = "case when {1} then nullif(regexp_extract(cast({0} as varchar), $number, 1), '') end"
KINDS = (*TEXT_CONDITIONS, "national number")
# By length, a sample of the distinct numbers of a column, and how many there are.
SAMPLE = """
select length(number), list(number), any_value(count)
from (
    select number, count(*) over of_length as count, row_number() over (of_length order by hash(number)) as rank
    from (select distinct {} as number from snapshot_rows) where number is not null
    window of_length as (partition by length(number))
)
where rank <= 1000 group by all
"""
# More is no accident of a few rows: then the column itself holds personal data.
ROWS_LIMIT, SHARE_LIMIT, SQL_LIMIT = 20, 0.05, 10_000


def withhold(source: Source, scratch: Path) -> Source:
    """Return a source without the rows that look like personal data, and with their number by reason.

    `scratch` is a directory for what outgrows memory.

    Raises:
        UserError: they are too many, or the table cannot be read. It names columns, kinds and counts, never a value.
    """
    with reading(
        scratch,
        f"{source.dataset.name}: DuckDB could not look through the table",
        "Make room in the export's staging area, or restore the table's files from a backup, and run it again",
    ) as database:
        load_table(database, source)
        (rows,) = one_row(database, "select count(*) from snapshot_rows")
        reasons = _suspects(database, source)
    counts = dict(Counter(reasons.values()))
    if len(reasons) > SQL_LIMIT or (len(reasons) > ROWS_LIMIT and len(reasons) > SHARE_LIMIT * rows):
        raise UserError(
            f"{source.dataset.name} is not published, {len(reasons)} of its {rows} rows may hold personal data: "
            + ", ".join(f"{count} by {reason}" for reason, count in counts.items()),
            "Leave the column out of the export, or mask it where it comes from; if these are no such values, declare"
            ' config.meta.pii_scan of the column: "off: <reason>"',
        )
    return replace(source, without=frozenset(reasons), withheld=counts)


def as_published(source: Source, withheld: Mapping[str, int], scratch: Path) -> Source | None:
    """Return the rows of a version that withheld so many by reason; None if today's search finds others than then.

    One that withheld nothing needs no search, whatever is looked for today.
    """
    if not withheld:
        return source
    try:
        today = withhold(source, scratch)
    except UserError:
        return None
    return today if today.withheld == withheld else None


def exclude_rows_missing_from(file: Path, source: Source, withheld: Mapping[str, int], scratch: Path) -> Source:
    """Treat the rows that a published file lacks as the withheld ones, and return the source without them.

    Raises:
        UserError: their number is not that of the withheld rows, or the file cannot be read.
    """
    key = [column for column in source.columns if column.name in source.dataset.key]
    names = [column.name for column in source.columns]
    texts = ", ".join(cell_text(column, source.guards_quotes) for column in key)
    in_file = f"select hash({', '.join(name(column.name) for column in key)}) from {rows_of(file, names)}"
    with reading(
        scratch,
        f"{source.dataset.name}: DuckDB could not compare the file with the table",
        "Restore the file, or the table's files, from a backup",
    ) as database:
        load_table(database, source)
        rows = database.execute(
            f"select {row_hash(source)} from snapshot_rows where hash({texts}) not in ({in_file})"
        ).fetchall()
    if len(rows) != sum(withheld.values()):
        raise UserError(
            f"{source.dataset.name}: the file lacks {len(rows)} rows of the table, and {sum(withheld.values())} were"
            " withheld",
            "Restore it from a backup",
        )
    return replace(source, without=frozenset(row for (row,) in rows), withheld=dict(withheld))


def _suspects(database: duckdb.DuckDBPyConnection, source: Source) -> dict[str, str]:
    """Return why rows of `snapshot_rows` may hold personal data, by the hash that names each."""
    reasons: dict[str, str] = {}
    for reason, cell, condition, check in _suspicions(database, source):
        sql = f"select {row_hash(source)}, {cell} from snapshot_rows where {condition}"
        for row_key, text in database.execute(sql, _used(sql)).fetchall():
            if check(text):
                reasons.setdefault(row_key, reason)
    return reasons


def _suspicions(database: duckdb.DuckDBPyConnection, source: Source) -> Iterator[tuple[str, str, str, Check]]:
    """Yield reason, SQL of a cell and of a condition, and the cell's check, for what a look at all columns finds."""
    possible = []
    for column in source.columns:
        cell = f"snapshot_rows.{name(column.name)}"
        if column.name not in source.dataset.unscanned and (column.is_text or column.is_numeric):
            conditions = TEXT_CONDITIONS if column.is_text else {}
            possible += [(kind, column, cell, condition.format(cell)) for kind, condition in conditions.items()]
            number = NUMBER.format(cell, f"strlen({cell}) >= 9" if column.is_text else f"{cell} >= 1e8")
            possible.append(("", column, number, f"{number} is not null"))
    any_of_each = ", ".join(f"bool_or({condition})" for *_, condition in possible) or "null"
    matched = one_row(database, f"select {any_of_each} from snapshot_rows", _used(any_of_each))
    for (kind, column, cell, condition), is_there in zip(possible, matched, strict=False):
        if is_there and kind:
            yield f"{kind} in {column.name}", cell, condition, _has_card if kind == "card number" else bool
        elif is_there:
            sample = SAMPLE.format(cell)
            for length, numbers, count in database.execute(sample, _used(sample)).fetchall():
                for its_kind, check in kinds(numbers, count):
                    yield f"{its_kind} in {column.name}", cell, f"length({cell}) = {length}", check


def _has_card(text: str) -> bool:
    # One in ten articles is right by Luhn. A card that is a number alone is found among the others of its column.
    digits = text.strip()
    is_article = digits.isdecimal() and len(digits) <= 14 and IS_ARTICLE(digits.zfill(14))
    return not is_article and any(map(is_luhn, CARD.findall(text)))


def _used(sql: str) -> dict[str, str]:
    """Return the patterns that some SQL names: DuckDB takes no others."""
    return {name: pattern for name, pattern in PATTERNS.items() if f"${name}" in sql}
