"""The other formats of a version: typed, the rows of its CSV, the same bytes again, and gone with the version."""

import gzip
import json
import zipfile
from dataclasses import replace
from datetime import date, datetime
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from python_calamine import load_workbook

from python_common.errors import UserError
from python_export.csv.compare import is_same
from python_export.notify import index
from python_export.publishing import formats
from python_export.publishing.manifest import File, FileColumn, Manifest, read
from python_export.publishing.target import Target, digest
from tests.support.hostile_rows import COLUMNS, SCHEMA, TYPES, cell, draft, hostile_rows, right_lines
from tests.support.versions import publish_content, publish_file, tree, without_folders

ALL = ("csv.gz", "parquet", "xlsx")
STEM = "events_2020-W53_v1"
CELL = 32_767
AT = "2020-12-28T12:34:56.789Z"


def described(rows: int = len(hostile_rows())) -> Manifest:
    columns = [FileColumn(name, column_type, 0) for name, column_type in zip(COLUMNS, TYPES, strict=True)]
    manifest = replace(draft("2020-W53"), columns=columns, key=["event_id"], rows=rows)
    return replace(manifest, window_end="2021-01-04T00:00:00Z", version=1, file=f"{STEM}.csv")


def written(
    directory: Path, table: list[tuple] | None = None, wanted: tuple[str, ...] = ALL, **limit: int
) -> list[File]:
    directory.mkdir()
    csv = directory / f"{STEM}.csv"
    csv.write_bytes(("\n".join(right_lines(table)) + "\n").encode())
    manifest = described(len(table or hostile_rows()))
    return formats.write(csv, manifest, wanted, directory / "scratch", **limit)


def table_rows() -> list[tuple]:
    """Return the rows as the table has them, in the file's order, without NUL, which the CSV lacks too."""
    rows = [(*row[:2], row[2] and row[2].replace("\0", ""), *row[3:]) for row in hostile_rows()]
    return sorted(rows, key=lambda row: (row[1], row[0]))


def sheet(file: Path) -> list[list]:
    return load_workbook(str(file)).get_sheet_by_index(0).to_python(skip_empty_area=False)


def cells(directory: Path, types: dict[str, str], *lines: str) -> list[list]:
    """Return the cells of the spreadsheet of a CSV that has columns of these types and these lines."""
    csv = directory / f"{STEM}.csv"
    csv.write_text("\n".join([",".join(types), *lines, ""]))
    columns = [FileColumn(name, column_type, 0) for name, column_type in types.items()]
    formats.write(csv, replace(described(len(lines)), columns=columns), ["xlsx"], directory / "scratch")
    return sheet(directory / f"{STEM}.xlsx")[1:]


def test_two_writes_have_the_same_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = written(tmp_path / "first")
    packed = (tmp_path / "first" / f"{STEM}.csv.gz").read_bytes()
    assert gzip.decompress(packed) == (tmp_path / "first" / f"{STEM}.csv").read_bytes()
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    monkeypatch.setattr("time.time", lambda: 4e9)
    assert written(tmp_path / "second") == first
    assert [(file.format, file.file, file.rows) for file in first] == [(form, f"{STEM}.{form}", 49) for form in ALL]
    for file in first:
        path = tmp_path / "first" / file.file
        assert (path.stat().st_size, digest(path)) == (file.bytes, file.sha256)
    with zipfile.ZipFile(tmp_path / "first" / f"{STEM}.xlsx") as book:
        assert {entry.date_time[0] for entry in book.infolist()} == {1980}
        assert b"2021-01-04T00:00:00Z" in book.read("docProps/core.xml")


def test_a_large_parquet_is_written_in_order_and_alike(tmp_path: Path) -> None:
    """More rows than a group of rows, so that several threads would write."""
    manifest = replace(
        described(400_000), columns=[FileColumn("event_id", "bigint", 0), FileColumn("note", "string", 0)]
    )
    files = []
    for name in "ab":
        (tmp_path / name).mkdir()
        csv = tmp_path / name / f"{STEM}.csv"
        csv.write_text("event_id,note\n" + "".join(f"{n},{n % 7919}\n" for n in range(400_000, 0, -1)))
        files += formats.write(csv, manifest, ["parquet"], tmp_path / "scratch")
    assert files[0] == files[1]
    assert pq.read_table(tmp_path / "a" / f"{STEM}.parquet")["event_id"].to_pylist() == list(range(400_000, 0, -1))


def test_parquet_has_the_types_and_values_of_the_table(tmp_path: Path) -> None:
    written(tmp_path / "files")
    table = pq.read_table(tmp_path / "files" / f"{STEM}.parquet")
    assert table.schema.equals(SCHEMA)
    assert [tuple(row.values()) for row in table.to_pylist()] == table_rows()


def test_a_missing_library_of_a_format_has_no_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(formats, "find_spec", lambda _: None)
    formats.require(["csv.gz", "parquet"])
    with pytest.raises(UserError, match="XlsxWriter is not installed") as raised:
        formats.require(["parquet", "xlsx"])
    assert raised.value.remedy == "Run `uv sync --inexact --extra xlsx`"


@pytest.mark.parametrize(
    "note",
    [
        "<r>a & b</r>",
        '<r><t>x</t></r></is></c><c r="D1"><f>1+1</f></c><c r="E1" t="inlineStr"><is><r><t>y</t></r>',
        "_x0041_",
    ],
)
def test_text_is_no_markup_of_a_spreadsheet(tmp_path: Path, note: str) -> None:
    assert cells(tmp_path, {"note": "string"}, cell(note)) == [[note]]
    with zipfile.ZipFile(tmp_path / f"{STEM}.xlsx") as book:
        assert b"<f>" not in book.read("xl/worksheets/sheet1.xml")


def test_a_spreadsheet_without_room_names_the_remedy(tmp_path: Path) -> None:
    (tmp_path / "files" / f"{STEM}.xlsx").mkdir(parents=True)
    (tmp_path / "files" / f"{STEM}.csv").write_text("\n".join(right_lines()) + "\n")
    with pytest.raises(UserError, match=r"xlsx cannot be written \(FileCreateError\)"):
        formats.write(tmp_path / "files" / f"{STEM}.csv", described(), ["xlsx"], tmp_path / "scratch")


def test_a_spreadsheet_has_typed_cells_and_no_formula(tmp_path: Path) -> None:
    written(tmp_path / "files")
    header, *rows = sheet(tmp_path / "files" / f"{STEM}.xlsx")
    assert header == COLUMNS
    expected = table_rows()
    # NULL is an empty cell, which this reader returns as an empty string.
    assert [row[2] for row in rows] == [(text or "")[:CELL] for _, _, text, *_ in expected]
    assert {type(row[2]) for row in rows} == {str}
    for position in (0, 3, 4, 5):
        assert [None if row[position] == "" else float(row[position]) for row in rows] == [
            None if row[position] is None else float(row[position]) for row in expected
        ]
        assert {type(row[position]) for row in rows} <= {float, str}
        assert [row[position] for row in rows].count("") == [row[position] for row in expected].count(None)
    # What programs count alike begins later.
    days = {date(1, 1, 1): "0001-01-01", None: ""}
    assert [row[6] for row in rows] == [days.get(row[6], row[6]) for row in expected]
    assert [row[7] for row in rows] == ["" if row[7] is None else row[7] for row in expected]
    with zipfile.ZipFile(tmp_path / "files" / f"{STEM}.xlsx") as book:
        content = book.read("xl/worksheets/sheet1.xml").decode()
    assert "<f" not in content


def test_digits_that_a_spreadsheet_would_round_are_text(tmp_path: Path) -> None:
    numbers = {
        "999999999999999.0000000000": 999_999_999_999_999.0,
        "-1234567890123456.0000000000": "-1234567890123456.0000000000",
        "1000000000000000000000000000.0000000001": "1000000000000000000000000000.0000000001",
        "1000000000000000000000000000.0000000000": 1e27,
        "-0.1234567890": -0.123456789,
        "0.0000000000": 0.0,
        "": "",
    }
    types = {"big": "bigint", "precise": "decimal(38,10)", "at": "timestamp"}
    at = datetime.fromisoformat(AT.removesuffix("Z"))
    expected = [["1234567890123456", number, at] for number in numbers.values()]
    assert cells(tmp_path, types, *(f"1234567890123456,{text},{AT}" for text in numbers)) == expected


def test_days_that_programs_count_differently_are_text(tmp_path: Path) -> None:
    days = [date(1899, 12, 31), date(1900, 1, 1), date(1900, 2, 28), date(1900, 3, 1), date(1900, 3, 2)]
    types = {"day": "date", "at": "timestamp"}
    rows = cells(tmp_path, types, *(f"{day},{day}T23:59:59.000Z" for day in days))
    assert [day for day, _ in rows] == [*map(str, days[:3]), *days[3:]]
    times = [datetime(day.year, day.month, day.day, 23, 59, 59) for day in days]
    assert [at for _, at in rows] == [*map(str, times[:3]), *times[3:]]


def test_more_rows_than_a_sheet_has_are_in_several_files(tmp_path: Path) -> None:
    files = written(tmp_path / "files", at_most=20)[2:]
    assert [(file.file, file.rows) for file in files] == [
        (f"{STEM}_part1.xlsx", 20),
        (f"{STEM}_part2.xlsx", 20),
        (f"{STEM}_part3.xlsx", 9),
    ]
    sheets = [sheet(tmp_path / "files" / file.file) for file in files]
    assert [sheet_rows[0] for sheet_rows in sheets] == [COLUMNS] * 3
    assert [row[0] for sheet_rows in sheets for row in sheet_rows[1:]] == [row[0] for row in table_rows()]
    exactly = written(tmp_path / "exactly", at_most=49)[2:]
    assert [(file.file, file.rows) for file in exactly] == [(f"{STEM}.xlsx", 49)]


def test_a_week_without_rows_is_a_header(tmp_path: Path) -> None:
    (tmp_path / f"{STEM}.csv").write_text("\ufeff" + ",".join(COLUMNS) + "\n")
    files = formats.write(tmp_path / f"{STEM}.csv", described(0), ALL, tmp_path / "scratch")
    assert [file.rows for file in files] == [0, 0, 0]
    assert pq.read_table(tmp_path / f"{STEM}.parquet").schema.equals(SCHEMA)
    assert sheet(tmp_path / f"{STEM}.xlsx") == [COLUMNS]


def test_parquet_with_other_rows_than_the_csv_is_noticed(tmp_path: Path) -> None:
    right = right_lines()
    csvs = {"right": right, "cut": right[:-1], "reversed": right[:1] + right[:0:-1]}
    for name, lines in csvs.items():
        (tmp_path / f"{name}.csv").write_bytes(("\n".join(lines) + "\n").encode())
    formats.write(tmp_path / "right.csv", described(), ["parquet"], tmp_path / "scratch")
    file = tmp_path / f"{STEM}.parquet"

    def same() -> dict[str, bool]:
        columns = described().columns
        return {name: is_same(file, tmp_path / f"{name}.csv", columns, tmp_path / "scratch") for name in csvs}

    assert same() == {"right": True, "cut": False, "reversed": False}
    file.write_bytes(file.read_bytes()[:-9])
    assert not any(same().values())


def test_a_version_is_published_without_a_format(local: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(formats, "is_same", lambda *_: False)
    with pytest.raises(UserError, match=r"events_2020-W53_v1.parquet does not have the rows of the CSV"):
        publish_content(local, "note\na\n", formats=ALL[1:])
    assert tree(local) == {}


def test_a_format_cannot_be_fetched_or_is_other_content(target: Target, tmp_path: Path) -> None:
    content = "\n".join(right_lines()) + "\n"
    first = publish_file(target, content, described(), other_formats=ALL).manifest
    index.write(target)
    path = "events/2020-W53/v1"
    names = {f"{path}/{STEM}.{form}" for form in ("csv", *ALL)}
    companions = {f"{path}/{name}" for name in ("manifest.json", "dictionary.csv")}
    assert {name for name in without_folders(tree(target)) if path in name} == names | companions
    assert read(target, path) == first
    assert without_folders([f"{path}/{file.file}" for file in first.files]) == names - {f"{path}/{STEM}.csv"}
    for file in first.files:
        fetched = target.fetch(f"{path}/{file.file}", tmp_path)
        assert (fetched.stat().st_size, digest(fetched)) == (file.bytes, file.sha256)
    [listed] = json.loads(target.read("versions.json"))["datasets"]["events"]
    assert [file["file"] for file in listed["files"]] == [f"{path}/{file.file}" for file in first.files]
    assert all(f'href="{path}/{file.file}"' in target.read("index.html").decode() for file in first.files)

    # Other formats alone are no other content.
    again = publish_file(target, content, described())
    assert (again.unchanged, again.manifest) == (True, first)
