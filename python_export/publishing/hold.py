"""Holds a file if its rows or totals are far off those of the weeks before, until its SHA-256 is approved."""

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal
from itertools import islice
from statistics import median
from typing import Annotated

from pyiceberg.catalog import Catalog

from python_common.catalog.small_table import SmallTable
from python_common.errors import UserError
from python_common.log import log
from python_common.weeks import IsoWeek
from python_export.publishing.manifest import Manifest, newest, paths
from python_export.publishing.target import Target

# How many published weeks a figure is compared with, and how few are too few.
MOST, FEWEST = 8, 4


@dataclass(frozen=True)
class Hold:
    """A week of a dataset that is held, or approved and not published yet."""

    address: Annotated[str, "<export root>/<dataset>/<week>"]
    sha256: Annotated[str, "of the file that is held"]
    reason: Annotated[str, "the figures that are far off"]
    approved: Annotated[str | None, "why it may be published; null until `export approve`"] = None


TABLE = SmallTable("ops.export_holds", Hold)


class HeldError(UserError):
    """A week is held for review."""


def far_off(draft: Manifest, before: Iterable[Manifest], factors: Mapping[str, Decimal]) -> str:
    """Return which figures, `rows` or totals of columns, are off their median in weeks before by more than a factor.

    A median of 0, or of fewer than FEWEST weeks, holds nothing. A UserError for an unknown figure.
    """
    far = []
    figures = [manifest.control_totals | {"rows": str(manifest.rows)} for manifest in (draft, *before)]
    for name, factor in factors.items():
        if name not in figures[0]:
            raise UserError(f"The hold of {draft.dataset} names {name}, not a numeric column", "Correct its yml")
        value, *known = (Decimal(of_week[name]) for of_week in figures if name in of_week)
        if len(known) >= FEWEST and (middle := median(known)):
            # The quotient of a negative median is the greater one.
            low, high = sorted((middle / factor, middle * factor))
            if not low <= value <= high:
                now, least, most, usual = (f"{round(float(one), 2):,.15g}" for one in (value, low, high, middle))
                of_weeks = f"median {usual} of {len(known)} weeks, factor {factor}"
                far.append(f"{name} {now} is not within {least} to {most} ({of_weeks})")
    return "; ".join(far)


def review(catalog: Catalog, target: Target, factors: Mapping[str, Decimal], draft: Manifest) -> Manifest:
    """Return the draft of new content, with a warning if it is far off and approved; a HeldError if not approved.

    The error, which is in mail and report, has no figure of the file.
    """
    if not (factors and (far := far_off(draft, _weeks_before(target, draft), factors))):
        return draft
    options = f"{draft.dataset} --week {draft.week} --sha256 {draft.sha256[:12]} --reason ..."
    address = target.address(f"{draft.dataset}/{draft.week}")
    new = Hold(address, draft.sha256, far)
    log.warning("%s %s: %s", draft.dataset, draft.week, far)
    holds = TABLE.change(
        catalog, lambda rows: rows if (row := rows.get(address)) and row.sha256 == new.sha256 else rows | {address: new}
    )
    if (why := holds[address].approved) is None:
        far_off_weeks = "its figures are far off the weeks before, as `lakehouse export run --dry-run` shows"
        raise HeldError(
            f"{far_off_weeks}; if they are right, run `lakehouse export approve {options}`",
            "Otherwise correct the data",
        )
    return replace(draft, warnings=[*draft.warnings, f"held for review, then approved: {why}"])


def approve(catalog: Catalog, target: Target, dataset: str, week: str, sha256: str, reason: str) -> Hold:
    """Approve the file of a week that is held, by how its SHA-256 begins; a UserError if another one is, or none."""
    if not re.fullmatch("[0-9a-f]{12,64}", sha256):
        raise UserError(f"'{sha256}' is not how a SHA-256 begins", "Give its first 12 digits, or all")
    address, see = target.address(f"{dataset}/{week}"), "See what is held with `lakehouse export run --dry-run`"

    def approved(rows: dict[str, Hold]) -> dict[str, Hold]:
        if (row := rows.get(address)) is None:
            raise UserError(f"{dataset} {week} is not held", see)
        if not row.sha256.startswith(sha256):
            raise UserError(f"{dataset} {week} is held with another file, {row.sha256[:12]}: {row.reason}", see)
        return rows | {address: replace(row, approved=reason)}

    return TABLE.change(catalog, approved)[address]


def unapproved(catalog: Catalog) -> dict[str, Hold]:
    """Return what is held and not approved, by address."""
    return {address: row for address, row in TABLE.rows(catalog).items() if row.approved is None}


def ended_by(catalog: Catalog, target: Target, limit: datetime, datasets: Collection[str]) -> set[str]:
    """Return the addresses of held weeks of an export root that ended by a time, of some datasets or, if empty, all."""
    return {
        address
        for address, row in TABLE.rows(catalog).items()
        for dataset, week in [address.split("/")[-2:]]
        if address == target.address(f"{dataset}/{week}") and (not datasets or dataset in datasets)
        if row.approved is None and IsoWeek.parse(week).end <= limit
    }


def drop(catalog: Catalog, addresses: set[str]) -> None:
    """Drop the holds of weeks that are published, skipped or expired."""
    if addresses & TABLE.rows(catalog).keys():
        TABLE.change(catalog, lambda rows: {address: row for address, row in rows.items() if address not in addresses})


def _weeks_before(target: Target, draft: Manifest) -> list[Manifest]:
    weeks = {path.split("/")[1] for path in paths(target, [draft.dataset])}
    current = (newest(target, draft.dataset, week) for week in sorted(weeks, reverse=True) if week < draft.week)
    return [*islice(filter(None, current), MOST)]
