"""The verifier accepts the right file, and refuses every damaged one with what is wrong."""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from datetime import date
from decimal import Decimal
from itertools import product
from pathlib import Path
from random import Random

import duckdb
import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import SqlCatalog

from python_common.errors import UserError
from python_export.csv import facts
from python_export.csv.compare import verify
from python_export.csv.facts import Facts, measure
from python_export.csv.write import cell_text, load_table
from python_export.datasets.dictionary import Field
from python_export.datasets.snapshot import Source, TableColumn
from tests.support.hostile_rows import (
    COLUMNS,
    GUARDED,
    HOSTILE_TEXTS,
    MONDAY,
    SCHEMA,
    WITH_NUL,
    cell,
    hostile_rows,
    right_lines,
    source_of,
    tiny,
)


@pytest.fixture(scope="module")
def hostile_source(tmp_path_factory: pytest.TempPathFactory) -> Source:
    """The hostile rows in an Iceberg table that no test changes."""
    directory = tmp_path_factory.mktemp("lake")
    catalog = SqlCatalog("lake", uri=f"sqlite:///{directory}/catalog.db", warehouse=str(directory))
    catalog.create_namespace("shop")
    return source_of(catalog, hostile_rows())


def check(lines: list[str], hostile: Source, directory: Path, end: str = "\n") -> Facts:
    file = directory / "staged.csv"
    file.write_bytes(("\n".join(lines) + end).encode())
    verify(file, hostile, directory / "scratch")
    return measure(hostile, directory / "scratch")


def test_accepts_the_right_file_and_counts_it(hostile_source: Source, tmp_path: Path) -> None:
    declared = replace(hostile_source, dataset=replace(hostile_source.dataset, suppressed="is_gift"))
    facts = check(right_lines(), declared, tmp_path)
    assert facts.suppressed == sum(row[7] is True for row in hostile_rows()) > 0
    count = len(HOSTILE_TEXTS)
    assert facts.rows == count + 1
    assert facts.nulls == {name: 1 if name not in {"event_id", "event_at"} else 0 for name in COLUMNS}
    assert facts.control_totals == {
        "event_id": str(count * (count + 1) // 2),
        "amount": str(Decimal("-0.05") * (count * (count + 1) // 2)),
        "tiny": format(Decimal("1E-10") * (count * (count + 1) // 2), "f"),
        "quantity": str(-count * (count + 1) // 2),
    }
    assert facts.formula_escaped == {"note": GUARDED}
    assert facts.nul_removed == {"note": WITH_NUL}
    warning = "the file has more than the 1,048,576 rows of a spreadsheet"
    is_warned = [warning in replace(facts, rows=rows).warnings() for rows in (1_048_575, 1_048_576)]
    assert is_warned == [False, True]


def damage(old: str, new: str) -> Callable[[list[str]], list[str]]:
    """Return a damage that replaces text in the first row that holds it."""

    def apply(lines: list[str]) -> list[str]:
        row = next(number for number, line in enumerate(lines[1:], start=1) if old in line)
        return [*lines[:row], lines[row].replace(old, new, 1), *lines[row + 1 :]]

    return apply


PLANTS: dict[str, tuple[Callable[[list[str]], list[str]], str]] = {
    "row removed": (lambda lines: lines[:5] + lines[6:], "1 keys missing"),
    "row doubled": (lambda lines: [*lines[:5], lines[5], *lines[5:]], "1 keys more than once"),
    "row of another key added": (
        lambda lines: [*lines, lines[-1].replace(lines[-1].split(",")[0], "999", 1)],
        "1 keys too many",
    ),
    "rows swapped": (lambda lines: [*lines[:5], lines[6], lines[5], *lines[7:]], "2 cells of event_id"),
    "text changed": (damage('"007"', '"7"'), "1 cells of note"),
    "line break changed": (damage("both\r\nof", "both\nof"), "1 cells of note"),
    "empty text became null": (damage(',"",', ",,"), "1 cells of note"),
    "text guarded without need": (damage("a=1", "'a=1"), "1 cells of note"),
    "amount is no number": (damage(",-0.05,", ",abc,"), "1 cells of amount"),
    "amount rounded": (damage(",-0.10,", ",-0.1,"), "1 cells of amount"),
    "scientific notation": (damage(",0.0000000001,", ",1E-10,"), "1 cells of tiny"),
    "date moved": (damage("0001-01-01", "0001-01-02"), "1 cells of sold_on"),
    "boolean changed": (damage(",true", ",false"), "1 cells of is_gift"),
    "header renamed": (lambda lines: [lines[0].replace("note", "notes"), *lines[1:]], "the header"),
    "cut inside a row": (lambda lines: [*lines[:-1], ",".join(lines[-1].split(",")[:4])], "pyarrow cannot read it"),
    "cut inside a quoted cell": (
        lambda lines: [*lines[:-1], lines[-1].split('"')[0] + '"cut'],
        "pyarrow cannot read it",
    ),
}


@pytest.mark.parametrize("plant", PLANTS)
def test_refuses_a_damaged_file(hostile_source: Source, tmp_path: Path, plant: str) -> None:
    apply, expected = PLANTS[plant]
    with pytest.raises(UserError) as refusal:
        check(apply(right_lines()), hostile_source, tmp_path)
    assert expected in refusal.value.message
    assert not [hostile for _, hostile in HOSTILE_TEXTS if len(hostile or "") > 5 and hostile in str(refusal.value)]


def test_the_formula_guard_can_be_reversed() -> None:
    texts = ["".join(letters) for length in range(5) for letters in product("'=\t\uff0da", repeat=length)]
    sql = cell_text(TableColumn("note", "string"), True)
    query = f"select {sql} from (select unnest(?) as note)"
    cells = [cell for (cell,) in duckdb.execute(query, [texts]).fetchall()]
    assert len({*cells}) == len(texts)
    for text, escaped in zip(texts, cells, strict=True):
        assert escaped.lstrip("'")[:1] not in {*"=\t\uff0d"} or escaped == f"'{text}"


def test_a_version_of_an_older_release_has_the_new_guard(hostile_source: Source, tmp_path: Path) -> None:
    old = [line.replace("''=1", "'=1").replace("'''-1", "''-1") for line in right_lines()]
    facts = check(old, replace(hostile_source, guards_quotes=False), tmp_path)
    assert facts.formula_escaped == {"note": GUARDED - 3}
    assert facts.suppressed is None


def fewest_persons(rows: list[tuple], quasi: list[str], persons: list[str]) -> int | None:
    """Return in plain Python the fewest distinct persons of one combination, of the persons that have the fewest."""
    named: dict[tuple, set] = defaultdict(set)
    for row in (dict(zip(COLUMNS, values, strict=True)) for values in rows):
        for person in persons:
            if row[person] is not None:
                named[person, *(row[name] for name in quasi)].add(row[person])
    return min(map(len, named.values()), default=None)


def test_k_anonymity_is_the_fewest_persons_of_a_combination(catalog: Catalog, tmp_path: Path, random_seed: int) -> None:
    """Over values with NULL among them; a row without a person singles out none."""
    random = Random(random_seed)
    rows = [
        (
            number,
            MONDAY,
            "plain",
            random.choice([None, Decimal(random.randint(1, 6))]),
            None,
            random.choice([None, *range(1, 5)]) if random_seed != 1 else None,
            random.choice([None, date(2020, 1, 1), date(2020, 2, 1)]),
            random.choice([None, True, False]),
        )
        for number in range(random.choice([8, 60, 200]))
    ]
    quasi = random.choice([["sold_on"], ["sold_on", "is_gift"], ["note", "sold_on", "is_gift"]])
    persons = random.choice([["quantity"], ["quantity", "amount"]]) if random_seed != 1 else ["quantity"]
    fields = tuple(Field(name, "", is_quasi_identifier=name in quasi) for name in COLUMNS)
    source = source_of(catalog, rows)

    def k_anonymity(**declared: object) -> int | None:
        table = replace(source, dataset=replace(source.dataset, **declared))
        return check(right_lines(rows), table, tmp_path).k_anonymity

    declared_persons = dict.fromkeys(persons, ("shop.customer",))
    assert k_anonymity(fields=fields, persons=declared_persons) == fewest_persons(rows, quasi, persons)
    assert k_anonymity(fields=fields) is None
    assert k_anonymity(persons=declared_persons) is None


def test_pseudonyms_of_two_keys_are_not_published_together(catalog: Catalog, tmp_path: Path) -> None:
    schema = SCHEMA.append(pa.field("key_version", pa.string()))
    rows = [(*tiny(row), version) for row, version in zip(hostile_rows()[3:6:2], ("v1", "v2"), strict=True)]
    lines = [",".join(schema.names), *(",".join(map(cell, row)) for row in rows)]
    with pytest.raises(UserError, match="pseudonyms of more than one version of the masking key"):
        check(lines, source_of(catalog, rows, schema), tmp_path)


@pytest.mark.parametrize("day", ["0001-12-31 (BC)", "10000-01-01", "infinity"])
def test_a_year_without_four_digits_is_published(
    hostile_source: Source, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, day: str
) -> None:
    """PyIceberg writes no such day, and Spark does."""

    def load_with_day(database: duckdb.DuckDBPyConnection, source: Source) -> None:
        load_table(database, source)
        database.execute("alter view snapshot_rows rename to hostile_rows")
        database.execute(f"create view snapshot_rows as select * replace (date '{day}' as sold_on) from hostile_rows")

    monkeypatch.setattr(facts, "load_table", load_with_day)
    with pytest.raises(UserError, match="49 cells of sold_on are outside the years 1 to 9999"):
        measure(hostile_source, tmp_path / "scratch")


@pytest.mark.parametrize(
    ("lines", "expected"),
    [(right_lines(), "the last row is cut off"), ([], "pyarrow cannot read it")],
    ids=["cut", "empty"],
)
def test_refuses_a_file_cut_before_its_last_line_break(
    hostile_source: Source, tmp_path: Path, lines: list[str], expected: str
) -> None:
    with pytest.raises(UserError, match=expected):
        check(lines, hostile_source, tmp_path, end="")


def test_a_row_of_many_megabytes_is_compared(catalog: Catalog, tmp_path: Path) -> None:
    rows = [(*hostile_rows()[0][:2], '"' * 8_000_000, *hostile_rows()[0][3:])]
    assert check(right_lines(rows), source_of(catalog, rows), tmp_path).rows == 1


def test_a_key_that_the_table_has_twice_is_refused(catalog: Catalog, tmp_path: Path) -> None:
    rows = [hostile_rows()[0]] * 2
    with pytest.raises(UserError, match=r"1 keys more than once \(event_id\)"):
        check(right_lines(rows), source_of(catalog, rows), tmp_path)
