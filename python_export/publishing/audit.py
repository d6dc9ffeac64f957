"""Verifies what is published, at any later time: files, manifests and their companions, readers, and the table.

It trusts nothing of a version: the manifest is compared with the file as three parsers read it, and with the
Iceberg table at the snapshot that the file was made from; the other formats are compared with the file.
"""

import csv
import io
import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path, PurePosixPath

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv as arrow_csv
from pyiceberg.catalog import Catalog

from python_common.errors import UserError
from python_common.weeks import IsoWeek
from python_export.csv import exact, pii_scan
from python_export.csv.compare import is_same, verify
from python_export.csv.csv_file import connect, name, one_row, rows_of
from python_export.csv.facts import measure
from python_export.datasets import dictionary
from python_export.publishing import formats
from python_export.publishing.difference import CHANGED, CHANGES, KIND
from python_export.publishing.manifest import Column, File, Manifest, Withdrawn, newest, paths, published, read
from python_export.publishing.publish import build_manifest, changes_after, neighbours, pointer
from python_export.publishing.target import Target, digest
from python_export.publishing.versions import SnapshotErasedError, source_snapshot

csv.field_size_limit(2**31 - 1)


@dataclass(frozen=True)
class Reading:
    """What a parser found: rows, empty cells by column, and the total of each numeric column.

    Python's parser does not distinguish NULL from the empty string: its `nulls` lack text columns.
    """

    rows: int
    nulls: dict[str, int]
    totals: dict[str, Decimal]


def with_duckdb(file: Path, manifest: Manifest, scratch: Path) -> Reading:
    """Return what DuckDB finds, with `scratch` for what outgrows its memory; a damaged file raises one of REFUSALS."""
    columns, numbers = manifest.column_names, _numbers(manifest)
    figures = ["count(*)", *(f"count(*) - count({name(column)})" for column in columns)]
    typed = (f"cast({name(one.name)} as decimal({one.precision}, {one.scale}))" for one in numbers)
    figures += map(exact.total, typed, numbers)
    with connect(scratch) as database:
        rows, *counts = one_row(database, f"select {', '.join(figures)} from {rows_of(file, columns)}")
    totals = map(Decimal, counts[len(columns) :])
    return Reading(
        rows,
        dict(zip(columns, counts, strict=False)),
        dict(zip(manifest.control_totals, totals, strict=True)),
    )


def with_pyarrow(file: Path, manifest: Manifest, scratch: Path) -> Reading:
    """Return what pyarrow finds, batch by batch; a damaged file raises one of REFUSALS."""
    columns, numbers = manifest.column_names, _numbers(manifest)
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
            for one in numbers:
                # pyarrow's sum wraps around at the digits of its type.
                values = pc.cast(batch[one.name], pa.decimal256(76, one.scale))
                totals[one.name] = exact.EXACT.add(totals[one.name], pc.sum(values).as_py() or 0)
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
                totals[column] = exact.EXACT.add(totals[column], Decimal(row[column] or 0))
    texts = {column.name for column in manifest.columns if column.type == "string"}
    return Reading(rows, {column: count for column, count in empty.items() if column not in texts}, totals)


PARSERS: dict[str, Callable[[Path, Manifest, Path], Reading]] = {
    "DuckDB": with_duckdb,
    "pyarrow": with_pyarrow,
    "Python's csv": with_python,
}
# What a parser raises on a damaged file, or on totals of columns that are not there. Its message may quote a row.
REFUSALS = (duckdb.Error, pa.ArrowException, csv.Error, ValueError, ArithmeticError, LookupError)


def _numbers(manifest: Manifest) -> list[Column]:
    columns = {column.name: column for column in manifest.columns}
    return [columns[name] for name in manifest.control_totals]


@dataclass(frozen=True)
class CheckResult:
    """What is wrong with a version, or with the pointer of a dataset; nothing if there are no issues.

    `note` is what should be known all the same.
    """

    path: str
    issues: tuple[str, ...]
    note: str = ""


def audit(target: Target, catalog: Catalog, path: str, scratch: Path) -> CheckResult:
    """Verify the version at a path; `scratch` is an empty directory with room for its file."""
    files: dict[str, Path] = {}
    try:
        manifest = read(target, path)
        if manifest.withdrawn:
            return _withdrawn(target, manifest, manifest.withdrawn, scratch)
        for one in manifest.all_files:
            files[one.file] = target.fetch(f"{path}/{one.file}", scratch)
    except UserError as error:
        return CheckResult(path, (error.message,))
    except FileNotFoundError:
        return CheckResult(path, (f"{one.file} is missing",))
    file = files[manifest.file]
    issues = [*_files(manifest, path, files, scratch), *_dictionary(target, manifest, path)]
    issues += _changes(target, manifest, path, scratch)
    for parser, reading in PARSERS.items():
        try:
            issues += [f"{parser} {issue}" for issue in _reading(manifest, reading(file, manifest, scratch))]
        except REFUSALS as error:
            issues.append(f"{parser} cannot read the file as the manifest has it ({type(error).__name__})")
    notes = []
    try:
        issues += _table(manifest, catalog, file, scratch)
    except SnapshotErasedError as error:
        notes.append(error.message)
    workbooks = [one for one in manifest.files if one.file.endswith(".xlsx")]
    if workbooks and not issues:
        issues, others = _workbooks(manifest, workbooks, files, scratch)
        notes += others
    return CheckResult(path, tuple(issues), "; ".join(notes))


def _withdrawn(target: Target, manifest: Manifest, withdrawn: Withdrawn, scratch: Path) -> CheckResult:
    note = f"withdrawn on {withdrawn.on}: {withdrawn.reason}"
    files = [f"{manifest.path}/{one.file}" for one in manifest.all_files]
    for file in (*files, _companion(manifest, manifest.path, CHANGES)):
        with suppress(FileNotFoundError):
            target.fetch(file, scratch)
            return CheckResult(manifest.path, ("it is withdrawn, and its file is still there",), note)
    issue = f"it is withdrawn, and {CHANGES} of the next version lists its keys: `export withdraw` it again"
    return CheckResult(manifest.path, (issue,) if changes_after(target, manifest) else (), note)


def audit_pointer(target: Target, dataset: str) -> CheckResult:
    """Verify that latest.json of a dataset names its newest version."""
    path = f"{dataset}/latest.json"
    try:
        named = json.loads(target.read(path))
        named["dataset"]
    except (OSError, ValueError, LookupError, TypeError) as error:
        if isinstance(error, FileNotFoundError) and _are_withdrawn(target, dataset):
            return CheckResult(path, ())
        return CheckResult(path, ("it is missing or damaged; the next export writes it again",))
    version = newest(target, dataset)
    if version is None:
        return CheckResult(path, ("no manifest of the versions that it might name can be read",))
    if named != json.loads(pointer(version, neighbours(target, version))):
        return CheckResult(path, (f"it does not name {version.path}; the next export writes it again",))
    return CheckResult(path, ())


def _are_withdrawn(target: Target, dataset: str) -> bool:
    versions = published(target, dataset, with_withdrawn=True)
    return len(versions) == len(paths(target, [dataset])) > 0 and all(version.withdrawn for version in versions)


def _files(manifest: Manifest, path: str, files: Mapping[str, Path], scratch: Path) -> list[str]:
    issues = [] if manifest.path == path else [f"the manifest is that of {manifest.path}"]
    for one in manifest.all_files:
        file = files[one.file]
        if (size := file.stat().st_size) != one.bytes:
            issues.append(f"{one.file} has {size} bytes instead of {one.bytes}")
        if digest(file) != one.sha256:
            issues.append(f"{one.file} has another SHA-256 than in the manifest")
        if file.suffix == ".parquet" and not is_same(file, files[manifest.file], manifest.columns, scratch):
            issues.append(f"{one.file} does not have the rows of the CSV")
        if file.suffix == ".gz" and not formats.unpacks_to(file, manifest.sha256):
            issues.append(f"{one.file} does not have the bytes of the CSV")
    return issues


def _workbooks(
    manifest: Manifest, workbooks: list[File], files: Mapping[str, Path], scratch: Path
) -> tuple[list[str], list[str]]:
    """Write the workbooks of a verified CSV again, and return which differ in cells, and which in other bytes alone."""
    csv = scratch / "again" / PurePosixPath(manifest.file).name
    csv.parent.mkdir()
    csv.symlink_to(files[manifest.file].absolute())
    try:
        again = formats.write(csv, manifest, ["xlsx"], scratch)
    except UserError as error:
        return [str(error)], []
    if [(one.file, one.rows) for one in workbooks] != [(one.file, one.rows) for one in again]:
        return ["the manifest's workbooks are not those of the CSV"], []
    issues, notes = [], []
    for one in (one for one in workbooks if one not in again):
        if formats.has_same_cells(files[one.file], csv.with_name(PurePosixPath(one.file).name)):
            notes.append(f"{one.file} has the cells of the CSV, and other bytes than the installed XlsxWriter writes")
        else:
            issues.append(f"{one.file} does not have the cells of the CSV")
    return issues, notes


def _dictionary(target: Target, manifest: Manifest, path: str) -> list[str]:
    try:
        content = target.read(_companion(manifest, path, dictionary.FILE)).decode()
        described = [(row.get("name"), row.get("type")) for row in csv.DictReader(io.StringIO(content))]
    except (OSError, ValueError, csv.Error):
        return [f"{dictionary.FILE} is missing or damaged"]
    if described != [(column.name, column.type) for column in manifest.columns]:
        return [f"{dictionary.FILE} does not have the file's columns"]
    return []


def _changes(target: Target, manifest: Manifest, path: str, scratch: Path) -> list[str]:
    """Return how changes.csv differs from the manifest, which has its SHA-256 and the number of its rows by kind."""
    try:
        file = target.fetch(_companion(manifest, path, CHANGES), scratch)
    except FileNotFoundError:
        return [f"{CHANGES} is missing"] if manifest.changes_sha256 else []
    if digest(file) != manifest.changes_sha256:
        return [f"{CHANGES} has another SHA-256 than in the manifest"]
    rows = rows_of(file, [KIND, *manifest.key, CHANGED])
    try:
        with connect(scratch) as database:
            counts = dict(database.execute(f"select {KIND}, count(*) from {rows} group by 1").fetchall())
    except duckdb.Error as error:
        return [f"DuckDB cannot read {CHANGES} as the manifest has it ({type(error).__name__})"]
    is_right = counts == {kind: count for kind, count in (manifest.difference or {}).items() if count}
    return [] if is_right else [f"{CHANGES} has other numbers of rows than the manifest's difference"]


def _companion(manifest: Manifest, path: str, name: str) -> str:
    return str(PurePosixPath(path, manifest.file).with_name(name))


def _reading(manifest: Manifest, reading: Reading) -> list[str]:
    nulls = {column.name: column.nulls for column in manifest.columns}
    totals = {column: Decimal(total) for column, total in manifest.control_totals.items()}
    issues = [f"reads {reading.rows} rows instead of {manifest.rows}"] if reading.rows != manifest.rows else []
    for what, counts, expected in (("number of NULLs in", reading.nulls, nulls), ("total of", reading.totals, totals)):
        issues += [f"reads another {what} {column}" for column in counts if counts[column] != expected[column]]
    return issues


def _table(manifest: Manifest, catalog: Catalog, file: Path, scratch: Path) -> list[str]:
    """Return how the file differs from the table at the recorded snapshot, and that from the manifest."""
    try:
        source = source_snapshot(catalog, manifest)
        # What was looked for when the version was made need not be what is looked for today.
        table = pii_scan.as_published(source, manifest.withheld_rows, scratch) or pii_scan.exclude_rows_missing_from(
            file, source, manifest.withheld_rows, scratch
        )
        verify(file, table, scratch)
        made = build_manifest(table, IsoWeek.parse(manifest.week), measure(table, scratch))
    except SnapshotErasedError:
        raise
    except UserError as error:
        return [error.message]
    checked = ("columns", "rows", "control_totals", "formula_escaped", "nul_removed")
    return [
        f"the manifest's {field} are not the table's"
        for field in checked
        if getattr(manifest, field) != getattr(made, field)
    ]
