"""Receipts of erasures, without ids of persons: the Iceberg table ops.erasures.

A receipt is saved before the first row is erased and ended with the last step. So a killed erasure is known, and the
same command continues it, on any machine that shares the lake and the masking key.
"""

import hashlib
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

from pyiceberg.catalog import Catalog

from python_common import pii_key
from python_common.catalog.small_table import SmallTable
from python_common.text import spelling
from python_ingest.maintenance.erase import Person

BEGUN, DONE = "begun", "done"
DOMAIN = "erasure"


@dataclass(frozen=True)
class ReceiptRow:
    """A stored receipt."""

    name: Annotated[str, "when it was begun, and the beginning of a hash of its persons and records"]
    state: Annotated[str, "begun or done"]
    receipt: Annotated[str, "what was done, as JSON; persons are keyed hashes"]


TABLE = SmallTable("ops.erasures", ReceiptRow)


@dataclass
class Receipt:
    """One erasure.

    `subjects` have kind, and a hash of kind and id by the masking key of `key_version`; `records` are positions.
    By table: `tables` has `rows` and `erased_at`, `shared` how many stay because others' rows name them too,
    `purged` which `tags` and how many `snapshots` and `orphans` were deleted. `versions` are the published ones that
    held rows, and their state, `replaced_by` the new ones, `not_searched` what could not be searched for the persons.
    """

    id: str
    subjects: list[dict[str, str]]
    records: list[str]
    begun_at: str
    release: str
    state: str = BEGUN
    ended_at: str | None = None
    tables: dict[str, dict[str, Any]] = field(default_factory=dict)
    shared: dict[str, int] = field(default_factory=dict)
    purged: dict[str, dict[str, Any]] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    replaced_by: list[str] = field(default_factory=list)
    not_searched: list[str] = field(default_factory=list)

    @property
    def name(self) -> str:
        """The key of its row."""
        return f"{self.begun_at}-{self.id[:8]}"

    @property
    def hashes(self) -> set[str]:
        """The hashes of its persons."""
        return {subject["hash"] for subject in self.subjects}

    def save(self, catalog: Catalog) -> None:
        """Save the receipt."""
        row = ReceiptRow(self.name, self.state, json.dumps(asdict(self)))
        TABLE.change(catalog, lambda rows: {**rows, self.name: row})

    def end(self, catalog: Catalog) -> None:
        """Save that the erasure is complete."""
        self.state, self.ended_at = DONE, _now()
        self.save(catalog)


def begin(key_file: Path, persons: Iterable[Person], records: Iterable[str]) -> Receipt:
    """Return a new receipt, not saved yet."""
    key_version = pii_key.check(key_file)
    hashes = sorted((person.kind, _hashes(key_file, person)[key_version]) for person in persons)
    subjects = [{"kind": kind, "hash": hashed, "key_version": key_version} for kind, hashed in hashes]
    named = sorted(set(records))
    number = hashlib.sha256(json.dumps([subjects, named]).encode()).hexdigest()
    return Receipt(number, subjects, named, _now(), version("retail-lakehouse"))


def of_request(catalog: Catalog, key_file: Path, persons: Iterable[Person], records: Iterable[str]) -> list[Receipt]:
    """Return the receipts of the same persons and records, the oldest first; the masking key may have been rotated."""
    hashes = [{*_hashes(key_file, person).values()} for person in persons]
    named = sorted(set(records))
    return [
        receipt
        for receipt in every(catalog)
        if receipt.records == named
        and len(receipt.hashes) == len(hashes)
        and all(receipt.hashes & of_person for of_person in hashes)
    ]


def every(catalog: Catalog) -> list[Receipt]:
    """Return all receipts, the oldest first."""
    return [Receipt(**json.loads(row.receipt)) for row in TABLE.rows(catalog).values()]


def unfinished(catalog: Catalog) -> list[str]:
    """Return a line for each erasure that was begun and not ended."""
    return [
        f"the erasure of {receipt.begun_at} is not finished: give its `lakehouse erase` command again"
        for receipt in every(catalog)
        if receipt.state != DONE
    ]


def named(catalog: Catalog, key_file: Path, persons: Iterable[Person]) -> tuple[list[Person], list[str]]:
    """Return those of some persons that a receipt names by a hash, and the records of all receipts."""
    receipts = every(catalog)
    known = set[str]().union(*(receipt.hashes for receipt in receipts))
    matching = [person for person in (persons if known else ()) if known & {*_hashes(key_file, person).values()}]
    return matching, sorted({record for receipt in receipts for record in receipt.records})


def _hashes(key_file: Path, person: Person) -> dict[str, str]:
    return pii_key.pseudonyms(key_file, DOMAIN, f"{person.kind}={spelling(person.id)}")


def _now() -> str:
    return f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%S.%fZ}"
