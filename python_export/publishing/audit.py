"""Verifies what is published, at any later time: files, manifests and their companions, and the table.

It trusts nothing of a version: the manifest is compared with the file as pyarrow reads it, and with the Iceberg table
at the snapshot that the file was made from; the other formats are compared with the file.
"""

import csv
import io
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path, PurePosixPath

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.catalog import Catalog

from python_common.errors import UserError
from python_common.weeks import IsoWeek
from python_export.csv import exact, pii_scan
from python_export.csv.compare import cells_of, is_same, verify
from python_export.csv.facts import measure
from python_export.datasets import dictionary
from python_export.publishing import formats
from python_export.publishing.layout import CHANGES
from python_export.publishing.manifest import File, Manifest, Withdrawn, read
from python_export.publishing.publish import build_manifest, changes_after, data_files
from python_export.publishing.target import Target, digest
from python_export.publishing.versions import SnapshotErasedError, source_snapshot


@dataclass(frozen=True)
class CheckResult:
    """What is wrong with a version, or with a file that lists versions; nothing if there are no issues.

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
            return _withdrawn(target, manifest, manifest.withdrawn)
        for one in manifest.all_files:
            files[one.file] = target.fetch(f"{path}/{one.file}", scratch)
    except UserError as error:
        return CheckResult(path, (error.message,))
    except FileNotFoundError:
        return CheckResult(path, (f"{one.file} is missing",))
    file = files[manifest.file]
    issues = [*_files(manifest, path, files, scratch), *_dictionary(target, manifest, path)]
    issues += _figures(manifest, file)
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


def _withdrawn(target: Target, manifest: Manifest, withdrawn: Withdrawn) -> CheckResult:
    note = f"withdrawn on {withdrawn.on}: {withdrawn.reason}"
    issues = []
    if data_files(target, manifest.path):
        issues.append("it is withdrawn, and its file is still there")
    elif changes_after(target, manifest):
        issues.append(f"it is withdrawn, and {CHANGES} of the next version lists its keys: `export withdraw` it again")
    return CheckResult(manifest.path, tuple(issues), note)


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
        content = target.read(str(PurePosixPath(path, manifest.file).with_name(dictionary.FILE))).decode()
        described = [(row.get("name"), row.get("type")) for row in csv.DictReader(io.StringIO(content))]
    except (OSError, ValueError, csv.Error):
        return [f"{dictionary.FILE} is missing or damaged"]
    if described != [(column.name, column.type) for column in manifest.columns]:
        return [f"{dictionary.FILE} does not have the file's columns"]
    return []


def _figures(manifest: Manifest, file: Path) -> list[str]:
    """Return how the manifest's rows, NULLs and totals differ from those of the file, read batch by batch."""
    columns = {column.name: column for column in manifest.columns}
    rows, nulls, totals = 0, dict.fromkeys(columns, 0), dict.fromkeys(manifest.control_totals, Decimal(0))
    try:
        with cells_of(file, manifest.column_names) as reader:
            if reader.schema.names != manifest.column_names:
                return ["the header does not name the manifest's columns"]
            for batch in reader:
                rows += batch.num_rows
                for column in nulls:
                    nulls[column] += batch[column].null_count
                for column in totals:
                    # pyarrow's sum wraps around at the digits of its type.
                    values = pc.cast(batch[column], pa.decimal256(76, columns[column].scale))
                    totals[column] = exact.EXACT.add(totals[column], pc.sum(values).as_py() or 0)
    # Its message may quote a row.
    except (pa.ArrowException, LookupError) as error:
        return [f"pyarrow cannot read the file as the manifest has it ({type(error).__name__})"]
    issues = [f"pyarrow reads {rows} rows instead of {manifest.rows}"] if rows != manifest.rows else []
    expected = {column: Decimal(total) for column, total in manifest.control_totals.items()}
    issues += [f"pyarrow reads another total of {column}" for column in totals if totals[column] != expected[column]]
    return issues + [
        f"pyarrow reads another number of NULLs in {column}"
        for column in nulls
        if nulls[column] != columns[column].nulls
    ]


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
