"""What was erased, when, and by which release, without saying of whom: a JSON file each in LAKEHOUSE_HOME/erasures.

A receipt is begun before the first row is erased and ended when nothing is left to do, so an erasure that was killed is
known, and goes on where it was when the command is given again.
"""

import hashlib
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import TypedDict

from lakehouse import pii_key, private
from lakehouse.environment import home
from python_ingest.repair.erase import Person

BEGUN, DONE = "begun", "done"
DOMAIN = "erasure"


class ErasedRows(TypedDict):
    """How many rows of a table were erased, and when the last of them."""

    rows: int
    erased_at: str | None


class LetGo(TypedDict):
    """What a table let go of: tags by name, and how many snapshots and files that nothing referred to."""

    tags: list[str]
    snapshots: int
    orphans: int


@dataclass
class Receipt:
    """One erasure.

    `subjects` have kind, and a hash of the id by the masking key of a version, which stands beside it; `records` are
    places in topics. `tables` has by name the rows that were erased and when, `shared` what others' rows name too and
    is kept, `purged` what each table let go of, `versions` the published ones that held rows and what became of them,
    `replaced_by` the new ones.
    """

    id: str
    subjects: list[dict[str, str]]
    records: list[str]
    begun_at: str
    release: str
    state: str = BEGUN
    ended_at: str | None = None
    tables: dict[str, ErasedRows] = field(default_factory=dict)
    shared: dict[str, int] = field(default_factory=dict)
    purged: dict[str, LetGo] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    replaced_by: list[str] = field(default_factory=list)

    @property
    def path(self) -> Path:
        """Where it is kept."""
        return directory() / f"{self.begun_at.replace(':', '')}-{self.id[:8]}.json"

    def save(self) -> None:
        """Write it in the place of what was there, at once or not at all."""
        private.directory(directory())
        private.write(self.path, json.dumps(asdict(self), indent=2) + "\n")

    def end(self) -> None:
        """Say that nothing is left to do."""
        self.state, self.ended_at = DONE, _now()
        self.save()


def begin(key_file: Path, persons: Iterable[Person], records: Iterable[str]) -> Receipt:
    """Return a new receipt, which is not saved yet."""
    key_version = pii_key.check(key_file)
    subjects = sorted(
        (
            {"kind": person.kind, "hash": _hashes(key_file, person)[key_version], "key_version": key_version}
            for person in persons
        ),
        key=lambda subject: (subject["kind"], subject["hash"]),
    )
    named = sorted(set(records))
    number = hashlib.sha256(json.dumps([subjects, named]).encode()).hexdigest()
    return Receipt(number, subjects, named, _now(), version("retail-lakehouse"))


def of_request(key_file: Path, persons: Iterable[Person], records: Iterable[str]) -> list[Receipt]:
    """Return the receipts of the same persons and records, the oldest first; the masking key may have been rotated."""
    hashes = [{(person.kind, *entry) for entry in _hashes(key_file, person).items()} for person in persons]
    named = sorted(set(records))

    def is_same(receipt: Receipt) -> bool:
        said = {(subject["kind"], subject["key_version"], subject["hash"]) for subject in receipt.subjects}
        same_persons = len(said) == len(hashes) and all(said & versions for versions in hashes)
        return same_persons and receipt.records == named

    return [receipt for receipt in every() if is_same(receipt)]


def every() -> list[Receipt]:
    """Return all receipts, the oldest first."""
    return [Receipt(**json.loads(path.read_text())) for path in sorted(directory().glob("*.json"))]


def _hashes(key_file: Path, person: Person) -> dict[str, str]:
    return pii_key.pseudonyms(key_file, DOMAIN, f"{person.kind}={person.id.strip()}")


def directory() -> Path:
    """Return where this machine keeps its receipts."""
    return home() / "erasures"


def _now() -> str:
    return f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%S.%fZ}"
