"""The published versions that hold rows of a person: which they are, and how they are taken back."""

import re
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from lakehouse import pii_key
from python_export.datasets.declared import Dataset
from python_export.files.csv_file import connect, name, rows_of
from python_export.publishing.manifest import Manifest, ManifestError, paths, read
from python_export.publishing.target import Target
from python_export.publishing.withdraw import withdraw as take_back
from python_ingest.repair.erase import Person

REASON = "a person was erased whose rows it held"


@dataclass
class Versions:
    """What published versions hold of some persons, by path.

    `rows` counts the rows of each version that has some, `unknown` are those that could not be looked through, each
    with the reason.
    """

    rows: dict[str, int] = field(default_factory=dict)
    unknown: list[str] = field(default_factory=list)


def find(target: Target, datasets: Iterable[Dataset], key_file: Path, persons: Iterable[Person]) -> Versions:
    """Look through every version that is published under an export root, in the columns that say whose a row is.

    Raises:
        UserError: the masking key cannot be read.
    """
    by_name = {dataset.name: dataset for dataset in datasets}
    patterns = _patterns(key_file, persons)
    found = Versions()
    for path in paths(target):
        dataset = by_name.get(path.split("/")[0])
        if dataset is None:
            found.unknown.append(f"{path}: no model of this project makes it")
            continue
        try:
            manifest = read(target, path)
            rows = 0 if manifest.withdrawn else _rows(target, manifest, dataset, patterns)
        except ManifestError as error:
            found.unknown.append(f"{path}: {error.message}")
        except FileNotFoundError:
            found.unknown.append(f"{path}: its file is missing")
        else:
            found.rows |= {path: rows} if rows else {}
    return found


def withdraw(target: Target, versions: Iterable[str], say: Callable[[str], None]) -> None:
    """Take versions back, those too that an erasure which was killed has begun to take back.

    Raises:
        UserError: a manifest cannot be read.
    """
    for path in versions:
        take_back(target, path, REASON)
        say(f"{path} is withdrawn")


def _patterns(key_file: Path, persons: Iterable[Person]) -> dict[str, str]:
    """Return of each kind of person what a cell must be to name one of them.

    It is the id, or a pseudonym by any version of the key, as it is or behind the name of a channel.
    """
    values: dict[str, set[str]] = {}
    for person in persons:
        value = person.id.strip()
        names = {value, *pii_key.pseudonyms(key_file, person.kind, value).values()}
        values.setdefault(person.kind, set()).update(map(re.escape, names))
    return {kind: f"(?:[a-z]+-)?(?:{'|'.join(sorted(names))})" for kind, names in values.items()}


def _rows(target: Target, manifest: Manifest, dataset: Dataset, patterns: dict[str, str]) -> int:
    conditions = [
        (f"coalesce(regexp_full_match({name(column)}, ?), false)", patterns[kind])
        for column, kinds in dataset.persons.items()
        if column in manifest.column_names
        for kind in kinds
        if kind in patterns
    ]
    if not conditions:
        return 0
    with tempfile.TemporaryDirectory(prefix="lakehouse-erase-") as scratch, connect(Path(scratch) / "db") as database:
        file = target.fetch(f"{manifest.path}/{manifest.file}", Path(scratch))
        sql = (
            f"select count(*) from {rows_of(file, manifest.column_names)} where {' or '.join(c for c, _ in conditions)}"
        )
        [(count,)] = database.execute(sql, [pattern for _, pattern in conditions]).fetchall()
        return int(count)
