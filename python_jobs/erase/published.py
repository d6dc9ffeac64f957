"""Finds and withdraws the published versions that hold rows of a person."""

import re
import tempfile
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path

from pyiceberg.catalog import Catalog
from pyspark.sql import SparkSession

from python_common import pii_key
from python_common.config.settings import Settings
from python_common.errors import UserError
from python_common.text import PADDING, spellings
from python_dbt.manifest import DbtManifest
from python_dbt.pii import masks
from python_export.csv.csv_file import name, one_row, reading, rows_of
from python_export.notify import index, outbox, page
from python_export.publishing.manifest import Manifest, paths, read
from python_export.publishing.publish import changes_after
from python_export.publishing.target import Target, open_target, staging
from python_ingest.maintenance.erase import Person

# The clock of a store may be ahead.
ALL_AGES = timedelta(days=-1)
REASON = "a person was erased whose rows it held"
# Columns that identify a person, each with the kinds of persons.
PersonColumns = Mapping[str, Collection[str]]


def pseudonyms(spark: SparkSession, key_file: Path, persons: Iterable[Person]) -> set[str]:
    """Return the pseudonyms of persons by every version of the masking key and every rule of the models' macro.

    Key and ids reach Spark as rows of views, so no statement, plan or log has them.

    Raises:
        UserError: the masking key cannot be read.
    """
    hashes: set[str | None] = set()
    ids_by_kind: dict[str, set[str]] = defaultdict(set)
    for person in persons:
        ids_by_kind[person.kind] |= {person.id, *spellings([person.id])}
    for line in pii_key.lines(key_file).values():
        spark.createDataFrame([(line,)], "value string").createOrReplaceTempView("erasure_pads")
        for kind, ids in ids_by_kind.items():
            source, _, pii = kind.rpartition(".")
            spark.createDataFrame([(text,) for text in ids], "id string").createOrReplaceTempView("erasure_ids")
            columns = ", ".join(masks.pseudonyms("id", pii, source, "erasure_pads"))
            hashes.update(*spark.sql(f"select {columns} from erasure_ids").collect())
    return {hashed for hashed in hashes if hashed}


def person_columns(manifest: DbtManifest) -> PersonColumns:
    """Return every column that a model of dbt's manifest declares as an identifier of persons."""
    return _merged(
        {name: column.meta.get("subjects", ()) for name, column in node.columns.items()}
        for node in manifest.nodes.values()
    )


def targets(settings: Settings, catalog: Catalog) -> tuple[list[Target], list[str]]:
    """Return the export roots that versions were published to, and those that this machine cannot open."""
    opened, missing = [open_target(settings)], []
    entries = outbox.entries(catalog)
    used = {entry.export_root for entry in entries if entry.mail != outbox.DROPPED}
    # Those whose rows are all dropped, too: that ends notifications, and deletes no file. Their bucket may be gone.
    for root in sorted(filter(None, {entry.export_root for entry in entries} - {opened[0].address("")})):
        if "://" in root or Path(root).is_dir():
            other = open_target(settings.changed(export_root=root))
            with suppress(UserError):
                if root in used or paths(other):
                    opened.append(other)
        elif root in used:
            missing.append(f"{root} is missing; if it was deleted on purpose, delete its rows of ops.export_outbox")
    return opened, missing


def find(
    targets: Iterable[Target],
    persons: Collection[Person],
    hashes: Iterable[str],
    declared: PersonColumns,
    not_searched: list[str],
) -> dict[str, int]:
    """Return how many rows of persons each published version has that has some, by address.

    All columns are searched for pseudonyms, `hashes`, and the identifying ones, which the manifest names, for ids. For
    a version of release 0.5 these are all that a model or another manifest declares. A withdrawn version has 0, if
    changes.csv of the next one still lists its keys. `not_searched` gets the versions that cannot be searched, each
    with the reason.
    """
    rows_by_address: dict[str, int] = {}
    manifests = []
    for target in targets:
        with _record_failures(not_searched, target.address("")):
            for path in paths(target):
                with _record_failures(not_searched, target.address(path)):
                    manifests.append((target, read(target, path)))
    everywhere = _merged([declared, *(manifest.persons or {} for _, manifest in manifests)])
    for target, manifest in manifests:
        columns = everywhere if manifest.persons is None else manifest.persons
        address = target.address(manifest.path)
        with _record_failures(not_searched, address):
            rows = 0 if manifest.withdrawn else _rows(target, manifest, "|".join(sorted(hashes)), persons, columns)
            if rows or (manifest.withdrawn and changes_after(target, manifest)):
                rows_by_address[address] = rows
    return rows_by_address


def withdraw(targets: Iterable[Target], addresses: Collection[str]) -> None:
    """Withdraw versions, and complete the withdrawals that an earlier command began.

    Raises:
        UserError: a manifest cannot be read.
    """
    changed = []
    for target in targets:
        if versions := [path for path in paths(target) if target.address(path) in addresses]:
            page.withdraw(target, versions, REASON)
            changed.append(target)
    # A root whose index cannot be written must not keep the files of another one.
    for target in changed:
        index.write(target)


def clean(targets: Iterable[Target], names: Collection[str]) -> list[str]:
    """Delete what dead exports left of datasets in export roots and their staging areas; return what is not deleted."""
    left: list[str] = []
    for target in targets:
        with _record_failures(left, target.address("")), staging(target.staging):
            target.clean({*names, *(path.partition("/")[0] for path in paths(target))}, ALL_AGES)
    return left


@contextmanager
def _record_failures(not_searched: list[str], address: str) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        not_searched.append(f"{address}: its file is missing")
    except UserError as error:
        not_searched.append(f"{address}: {error.message}")


def _merged(declarations: Iterable[PersonColumns]) -> PersonColumns:
    columns: dict[str, set[str]] = defaultdict(set)
    for column, kinds in (item for declared in declarations for item in declared.items()):
        columns[column].update(kinds)
    return columns


def _rows(target: Target, manifest: Manifest, hashes: str, persons: Collection[Person], columns: PersonColumns) -> int:
    """Count the rows of a file that name one of the persons."""
    everything = ", ".join(map(name, manifest.column_names))
    conditions = [f"regexp_matches(lower(concat_ws(chr(31), {everything})), $hashes)"] if hashes else []
    parameters = {"hashes": hashes} if hashes else {}
    for number, column in enumerate(sorted(columns.keys() & {*manifest.column_names})):
        of_column = [person.id for person in persons if person.kind in columns[column]]
        ids = {*of_column, *spellings(of_column)}
        if ids:
            conditions.append(f"coalesce(regexp_full_match({name(column)}, $ids{number}), false)")
            # As it is or behind the name of a channel; the guard against formulas may come before it.
            parameters[f"ids{number}"] = f"{PADDING}'?(?:[a-z]+-)?(?:{'|'.join(map(re.escape, sorted(ids)))}){PADDING}"
    if not conditions:
        return 0
    with (
        tempfile.TemporaryDirectory(prefix="lakehouse-erase-") as scratch,
        reading(Path(scratch) / "db", "its file cannot be read", "Restore it from a backup") as database,
    ):
        file = target.fetch(f"{manifest.path}/{manifest.file}", Path(scratch))
        sql = f"select count(*) from {rows_of(file, manifest.column_names)} where {' or '.join(conditions)}"
        return int(one_row(database, sql, parameters)[0])
