"""Verifying what is published: right versions pass, and each planted fault is reported; what two versions differ in."""

import gzip
import json
import re
import shutil
import zipfile
from collections.abc import Callable, Collection
from dataclasses import asdict, replace
from decimal import Decimal
from functools import partial
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog

from python_common.catalog.catalog import load_catalog
from python_common.config.settings import Settings
from python_common.errors import UserError
from python_common.weeks import IsoWeek
from python_export.csv import pii_scan
from python_export.csv.facts import measure
from python_export.datasets.snapshot import Source
from python_export.notify import index, outbox
from python_export.publishing.manifest import Manifest
from python_export.publishing.publish import build_manifest, withdraw
from python_export.publishing.target import digest, open_target
from python_export.publishing.versions import source_snapshot, tag_name, tag_snapshot
from python_export.variables import Channels
from tests.support.hostile_rows import (
    DATASET,
    MONDAY,
    arrow_table,
    cell,
    current_source,
    hostile_rows,
    right_lines,
    source_of,
)
from tests.support.in_process import Command
from tests.support.publishing import lay_out_as_before, unlock
from tests.support.versions import publish_file

WEEK = IsoWeek(2020, 53)
ROWS = len(hostile_rows())
VERSION = "events/2020-W53/v1"
CSV = "events_2020-W53_v1.csv"
FORMATS = ("csv.gz", "parquet", "xlsx")


def publish_lines(settings: Settings, table: Source, lines: list[str], formats: Collection[str] = ()) -> Manifest:
    target = open_target(settings)
    draft = build_manifest(table, WEEK, measure(table, target.staging / "scratch"))
    content = "\n".join([*lines, ""])
    manifest = publish_file(target, content, draft, table.dataset.fields, other_formats=formats).manifest
    index.write(target)
    return manifest


def edit(path: Path, old: str, new: str) -> None:
    content = path.read_bytes()
    assert old.encode() in content
    path.write_bytes(content.replace(old.encode(), new.encode(), 1))


def edit_manifest(at: Path, **fields: object) -> None:
    manifest = json.loads((at / "manifest.json").read_text())
    assert fields.keys() <= manifest.keys()
    (at / "manifest.json").write_text(json.dumps(manifest | fields))


def edit_consistently(version: Path) -> None:
    """Change the file, and everything that speaks of its bytes."""
    edit(version / CSV, ',"plain",', ',"plane",')
    edit_manifest(version, sha256=digest(version / CSV))


def edit_format_consistently(version: Path, form: str, change: Callable[[Path], object]) -> None:
    """Change the file of another format, and everything that speaks of its bytes."""
    file = version / CSV.replace(".csv", f".{form}")
    [listed] = [one for one in json.loads((version / "manifest.json").read_text())["files"] if one["format"] == form]
    change(file)
    edit(version / "manifest.json", listed["sha256"], digest(file))
    edit(version / "manifest.json", f'"bytes": {listed["bytes"]}', f'"bytes": {file.stat().st_size}')


def cut_off(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-60])


def put_formula(file: Path) -> None:
    zip_again(file, b"<is><t>plain</t></is>", b"<f>1+1</f><v>2</v>")


def zip_again(file: Path, old: bytes = b"", new: bytes = b"") -> None:
    """Write a workbook with another compression, and another text in its cells if one is given."""
    with zipfile.ZipFile(file) as book:
        parts = {name: book.read(name) for name in book.namelist()}
    assert any(old in content for content in parts.values())
    with zipfile.ZipFile(file, "w") as book:
        for name, content in parts.items():
            book.writestr(name, content.replace(old, new))


def without_row(lines: list[str]) -> str:
    return "\n".join([*lines[:5], *lines[6:]]) + "\n"


# A file of the version and a text of it with another in its place, or the bytes in its place, or what changes it;
# a file alone is missing. Or fields of the manifest, or a format and what changes its file and the manifest alike.
Plant = tuple[str, str, str] | tuple[str, bytes | Callable[[Path], object]] | tuple[str] | dict[str, object]


def plant(version: Path, fault: Plant) -> None:
    match fault:
        case dict():
            edit_manifest(version, **fault)
        case ("file and manifest",):
            edit_consistently(version)
        case (file,):
            (version / file).unlink()
        case (file, str(old), str(new)):
            edit(version / file, old, new)
        case (file, bytes(content)):
            (version / file).write_bytes(content)
        case (form, change) if form in FORMATS:
            edit_format_consistently(version, form, change)
        case (file, change):
            change(version / file)


NOT_LISTED = "it is missing or does not list what is published; the next export writes it again"
TOTALS = "the manifest's control_totals are not the table's"
ALONE: list[tuple[Plant, tuple[str, ...]]] = [
    ((CSV, "comma,", "comma;"), ("another SHA-256", "1 cells of note")),
    # Inside a cell.
    ((CSV, cut_off), ("bytes instead of", "SHA-256", "pyarrow cannot read the file", "differs from the table")),
    (("file and manifest",), ("1 cells of note",)),
    ({"version": 2}, ("the manifest is that of",)),
    ({"source_snapshot_id": "1"}, ("no longer has the snapshot",)),
    (("manifest.json", '"amount": "', '"amounx": "'), ("pyarrow cannot read the file as the manifest has it", TOTALS)),
    ({"file": "../../../../secret.csv"}, (f"{VERSION}/manifest.json is missing or damaged",)),
    ((CSV,), (f"{CSV} is missing",)),
    (("csv.gz", cut_off), ("v1.csv.gz does not have the bytes of the CSV",)),
    (("xlsx", put_formula), ("v1.xlsx does not have the cells of the CSV",)),
    (("xlsx", cut_off), ("v1.xlsx does not have the cells of the CSV",)),
    (
        ("manifest.json", f'"rows": {ROWS}\n    }}\n  ]', f'"rows": {ROWS - 1}\n    }}\n  ]'),
        ("the manifest's workbooks are not those of the CSV",),
    ),
]
# Each of a group is of another file or figure, and has another message: one run reports them all.
TOGETHER: list[list[tuple[Plant, tuple[str, ...]]]] = [
    [
        ({"rows": ROWS + 1}, (f"reads {ROWS} rows instead of {ROWS + 1}", "manifest's rows are not the table's")),
        ({"control_totals": {"amount": "1.00"}}, ("pyarrow reads another total of amount", TOTALS)),
        ({"formula_escaped": {"note": 0}}, ("manifest's formula_escaped",)),
        (
            ("manifest.json", '"nulls": 1', '"nulls": 2'),
            ("reads another number of NULLs in note", "the manifest's columns"),
        ),
    ],
    [
        (("dictionary.csv",), ("dictionary.csv is missing or damaged",)),
        (
            ("events_2020-W53_v1.parquet", b"PAR1"),
            (
                "v1.parquet has 4 bytes instead of",
                "v1.parquet has another SHA-256",
                "v1.parquet does not have the rows of the CSV",
            ),
        ),
        (("../../latest.json",), (f"latest.json: {NOT_LISTED}",)),
        (("../../../index.html", "W53_v1.csv", "W53_v2.csv"), (f"index.html: {NOT_LISTED}",)),
    ],
    [
        (("dictionary.csv", "quantity", "count"), ("dictionary.csv does not have the file's columns",)),
        (
            ("csv.gz", lambda file: file.write_bytes(gzip.compress(b"event_id\n"))),
            ("v1.csv.gz does not have the bytes of the CSV",),
        ),
        (("../../../versions.json", '"version": 1,', '"version": 2,'), (f"versions.json: {NOT_LISTED}",)),
    ],
]


def test_verify_misses_a_planted_fault(offline_settings: Settings, hostile_source: Source, export: Command) -> None:
    publish_lines(offline_settings, hostile_source, right_lines(), FORMATS)
    version = Path(offline_settings.export_root) / VERSION
    # As releases before 0.7 published it, with files that this one does not publish.
    lay_out_as_before(open_target(offline_settings), VERSION)
    publish_lines(offline_settings, hostile_source, right_lines())
    unlock(version)
    for name in ("changes.csv", "datapackage.json"):
        (version / name).write_text("not checked")
    right = {path: path.read_bytes() for path in version.parents[2].rglob("*") if path.is_file()}
    passed = export(offline_settings, "verify", "--week", "2020-W53")
    assert passed.exit_code == 0
    checked = (VERSION, "events/latest.json", "versions.json", "index.html")
    assert passed.output.splitlines() == [f"{path}: OK" for path in checked]
    for faults in [[fault] for fault in ALONE] + TOGETHER:
        for fault, _ in faults:
            plant(version, fault)
        result = export(offline_settings, "verify")
        assert isinstance(result.exception, UserError), faults
        faulty = {line.partition(": ")[0] for line in result.output.splitlines() if not line.endswith(": OK")}
        # A dataset of which no manifest can be read has no pointer to check.
        failed, named = re.split(r" of [34] checks failed: ", str(result.exception))
        assert (int(failed), set(named.split(". ")[0].split(", "))) == (len(faulty), faulty), faults
        for fault, expected in faults:
            assert [line for line in expected if line not in result.output] == [], (fault, result.output)
        assert "pizza" not in result.output
        for path, content in right.items():
            path.write_bytes(content)
    checks = json.loads(export(offline_settings, "verify", "events", "--json").output)
    assert checks == [{"path": path, "issues": [], "note": ""} for path in checked]
    nothing = export(offline_settings, "verify", "--week", "2021-W01")
    assert str(nothing.exception).startswith("Nothing of 2021-W01 is published")
    typo = export(offline_settings, "verify", "events", "event")
    assert str(typo.exception).startswith("Nothing of event is published")


DECIMALS = {
    f"decimal_{precision}_{scale}": pa.decimal128(precision, scale)
    for precision in (1, 9, 18, 19, *range(27, 39))
    for scale in {0, 1, precision // 3, precision}
}


def test_totals_of_decimals_of_any_precision_are_exact(
    offline_settings: Settings, catalog: Catalog, export: Command, random_seed: int
) -> None:
    """Totals beyond 38 digits, negative ones, and sums whose digits cancel out."""
    random = Random(random_seed)
    units: dict[str, list[int]] = {}
    for column, kind in DECIMALS.items():
        most = 10**kind.precision - 1
        low, high = random.choice([(most - 1, most), (-most, 1 - most), (-most, most), (0, 9)])
        units[column] = [random.randint(low, high) for _ in range(random.choice([12, 25]) if random_seed else 25)]
    rows = max(map(len, units.values()))

    def text(column: str, number: int) -> str:
        return format(Decimal(f"{number}e-{DECIMALS[column].scale}"), "f")

    cells = [
        [text(column, numbers[row]) if row < len(numbers) else "" for column, numbers in units.items()]
        for row in range(rows)
    ]
    schema = pa.schema([("event_id", pa.int64()), ("event_at", pa.timestamp("us", "UTC")), *DECIMALS.items()])
    typed = [(row, MONDAY, *(Decimal(cell) if cell else None for cell in cells[row])) for row in range(rows)]
    source = source_of(catalog, typed, schema)
    source = replace(source, dataset=replace(source.dataset, totals_by=("event_at",)))
    lines = [",".join(schema.names), *(f"{row},{cell(MONDAY)},{','.join(cells[row])}" for row in range(rows))]

    manifest = publish_lines(offline_settings, source, lines)
    expected = {column: text(column, sum(numbers)) for column, numbers in units.items()}
    assert {column: manifest.control_totals[column] for column in units} == expected
    [of_one_time] = manifest.totals_by["event_at"].values()
    assert {column: of_one_time[column] for column in units} == expected
    assert export(offline_settings, "verify").exit_code == 0

    version = Path(offline_settings.export_root) / VERSION
    unlock(version)
    off_by_one = {column: text(column, sum(numbers) + 1) for column, numbers in units.items()}
    edit_manifest(version, control_totals=manifest.control_totals | off_by_one)
    [checked, *_] = json.loads(export(offline_settings, "verify", "--json").output)
    assert {f"pyarrow reads another total of {column}" for column in units} <= set(checked["issues"])


def test_bytes_of_another_xlsxwriter_are_an_issue(
    offline_settings: Settings, hostile_source: Source, export: Command
) -> None:
    publish_lines(offline_settings, hostile_source, right_lines(), FORMATS)
    lay_out_as_before(open_target(offline_settings), VERSION)
    version = Path(offline_settings.export_root) / VERSION
    unlock(version)
    edit_format_consistently(version, "xlsx", zip_again)
    index.write(open_target(offline_settings))
    result = export(offline_settings, "verify")
    assert result.exit_code == 0, result.output
    assert f"{VERSION}: events_2020-W53_v1.xlsx has the cells of the CSV, and other bytes" in result.output


def test_what_cannot_be_written_again_is_an_issue(
    offline_settings: Settings, hostile_source: Source, export: Command, tmp_path: Path
) -> None:
    """This file quotes more cells than the writer does."""
    publish_lines(offline_settings, hostile_source, right_lines())
    refused = export(offline_settings, "verify", "--rewrite-to", str(tmp_path / "again"))
    assert str(refused.exception).startswith(f"1 of 5 checks failed: {VERSION} written again. ")
    assert [*(tmp_path / "again").iterdir()] == []


def test_versions_in_a_bucket_are_verified_and_compared(
    s3_settings: Settings, hostile_source: Source, catalog: Catalog, export: Command
) -> None:
    first = publish_lines(s3_settings, hostile_source, right_lines(), FORMATS)
    tag_snapshot(catalog, open_target(s3_settings), first)
    rows = [row for row in hostile_rows() if row[0] != 4]
    changed = [(*row[:3], None, *row[4:6], None, row[7]) if row[0] == 2 else row for row in rows]
    rows = [*changed, (2000, *rows[0][1:])]
    hostile_source.table.overwrite(arrow_table(rows))
    second = publish_lines(s3_settings, current_source(catalog, DATASET), right_lines(rows), FORMATS)
    assert asdict(second)["difference"] == {"added": 1, "removed": 1, "changed": 1}
    assert asdict(second)["changed_columns"] == {"amount": 1, "sold_on": 1}

    assert export(s3_settings, "verify").exit_code == 0
    diff = partial(export, s3_settings, "diff", "--week", "2020-W53", "--versions")
    assert diff("v1..v2").output.splitlines() == [
        "events 2020-W53, v1 to v2: 1 added, 1 removed, 1 changed: amount in 1, sold_on in 1",
        "  added event_id 2000",
        "  changed event_id 2: amount, sold_on",
        "  removed event_id 4",
    ]
    listed = json.loads(diff("v2..v1", "--json").output)
    assert (listed["events"]["added"], listed["events"]["rows"][0]) == (1, ["added", {"event_id": "4"}, []])
    for datasets in ((), ("events",)):
        refused = diff("v1..v3", *datasets)
        assert isinstance(refused.exception, UserError)
    assert diff("v1").exit_code == 2


def test_a_trial_moves_the_tag_of_a_version(
    offline_settings: Settings, hostile_source: Source, catalog: Catalog
) -> None:
    manifest = publish_lines(offline_settings, hostile_source, right_lines())
    target, trial = open_target(offline_settings), open_target(offline_settings.changed(export_root="/trial"))
    tag_snapshot(catalog, target, manifest)
    tag_snapshot(catalog, target, manifest)
    table = catalog.load_table(("shop", "exp_weekly__events"))
    tag = tag_name(target, manifest)
    assert table.refs()[tag].snapshot_id == hostile_source.snapshot_id
    table.append(arrow_table(hostile_rows()[:1]))
    newer = str(table.current_snapshot().snapshot_id)
    # An export to somewhere else does not move it, and another content in its place does.
    tag_snapshot(catalog, trial, replace(manifest, source_snapshot_id=newer))
    table = table.refresh()
    assert table.refs()[tag].snapshot_id == hostile_source.snapshot_id
    assert str(table.refs()[tag_name(trial, manifest)].snapshot_id) == newer
    tag_snapshot(catalog, target, replace(manifest, source_snapshot_id=newer))
    assert str(table.refresh().refs()[tag].snapshot_id) == newer
    with pytest.raises(UserError, match="no longer has the snapshot"):
        source_snapshot(catalog, replace(manifest, source_snapshot_id="1"))


def test_a_version_that_is_gone_is_noticed_until_it_is_dropped(
    offline_settings: Settings, hostile_source: Source, catalog: Catalog, export: Command
) -> None:
    publish_lines(offline_settings, hostile_source, right_lines())
    target = open_target(offline_settings)
    outbox.record_versions(catalog, target, Channels(), [])
    elsewhere = open_target(offline_settings.changed(export_root=f"{offline_settings.export_root}-trial"))
    outbox.record_versions(catalog, elsewhere, Channels(), [])
    assert export(offline_settings, "verify").exit_code == 0
    unlock(Path(offline_settings.export_root))
    shutil.rmtree(Path(offline_settings.export_root) / "events")

    for options in ((), ("--week", "2020-W53"), ("events",)):
        result = export(offline_settings, "verify", *options)
        assert f"{VERSION}: it was published, and is missing" in result.output, options
        assert isinstance(result.exception, UserError)
    catalog.load_table("ops.export_outbox").delete(f"idempotency_key = '{outbox.key_of(target, VERSION)}'")
    assert str(export(offline_settings, "verify").exception).startswith("Nothing is published")


def test_a_version_is_verified_by_a_later_search(
    offline_settings: Settings, hostile_source: Source, monkeypatch: pytest.MonkeyPatch, export: Command
) -> None:
    """Later releases look for other personal data; what was withheld then is what the file lacks."""
    publish_lines(offline_settings, hostile_source, right_lines())
    more = (501, MONDAY, "more", *[None] * 5)
    hostile_source.table.append(arrow_table([(500, MONDAY, "a@example.com", *[None] * 5), more]))
    table = current_source(load_catalog(offline_settings), DATASET)
    scanned = pii_scan.withhold(table, Path(offline_settings.export_root) / ".staging" / "scan")
    second = publish_lines(offline_settings, scanned, right_lines([*hostile_rows(), more]))
    assert second.withheld_rows == {"e-mail address in note": 1}
    monkeypatch.setattr(pii_scan, "TEXT_CONDITIONS", {"word": "regexp_matches({0}, 'plain')"})
    result = export(offline_settings, "verify")
    assert (result.exit_code, result.stdout.count(": OK")) == (0, 5), result.stdout

    # A row more that the file lacks is still found.
    file = Path(open_target(offline_settings).address(f"{second.path}/{second.file}"))
    unlock(file.parent)
    file.write_text(without_row(right_lines([*hostile_rows(), more])))
    result = export(offline_settings, "verify")
    assert "the file lacks 2 rows of the table, and 1 were withheld" in result.stdout


def test_a_withdrawn_version_or_erased_snapshot_is_an_issue(
    hostile_source: Source, offline_settings: Settings, export: Command
) -> None:
    manifest = publish_lines(offline_settings, hostile_source, right_lines(), FORMATS)
    with hostile_source.table.transaction() as change:
        change.set_properties({f"lakehouse.erased-snapshot.{manifest.source_snapshot_id}": "2021-01-04"})
    result = export(offline_settings, "verify")
    assert result.exception is None, result.output
    assert f"{VERSION}: its snapshot was erased on 2021-01-04" in result.output

    target = open_target(offline_settings)
    withdraw(target, VERSION, "somebody was erased")
    result = export(offline_settings, "verify")
    assert f"versions.json: {NOT_LISTED}\nindex.html: {NOT_LISTED}\n" in result.output
    index.write(target)
    result = export(offline_settings, "verify")
    assert result.exception is None, result.output
    assert f"{VERSION}: withdrawn on " in result.output
    target.put("events/2020-W53/v2/changes.csv", b"keys")
    issue = f"{VERSION}: it is withdrawn, and changes.csv of the next version lists its keys"
    assert issue in export(offline_settings, "verify").output
    withdraw(target, VERSION, "somebody was erased")
    assert issue not in export(offline_settings, "verify").output
    target.put(f"{VERSION}/{CSV}", b"a person")
    result = export(offline_settings, "verify")
    assert isinstance(result.exception, UserError)
    assert f"{VERSION}: it is withdrawn, and its file is still there" in result.output
