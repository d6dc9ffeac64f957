"""Holds a file if its rows or totals are far off those of the weeks before, until its SHA-256 is approved."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from itertools import islice
from statistics import median
from typing import Annotated

from pyiceberg.catalog import Catalog

from python_common.catalog.small_table import SmallTable
from python_common.errors import UserError
from python_export.publishing.manifest import Manifest, newest, paths
from python_export.publishing.target import Target

# How many published weeks a figure is compared with, and how few are too few.
MOST, FEWEST = 8, 4


@dataclass(frozen=True)
class Hold:
    """A week of a dataset that is held, or approved and not published yet."""

    address: Annotated[str, "<export root>/<dataset>/<week>"]
    sha256: Annotated[str, "of the file that is held"]
    reason: Annotated[str, "the figures that are far off, and the command that approves them"]
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
            raise UserError(f"The hold of {draft.dataset} names {name}, no numeric column", "Correct its yml")
        value, *known = (Decimal(of_week[name]) for of_week in figures if name in of_week)
        if len(known) >= FEWEST and (middle := median(known)):
            # Of a negative median the quotient is the greater one.
            low, high = sorted((middle / factor, middle * factor))
            if not low <= value <= high:
                now, least, most, usual = (f"{round(float(one), 2):,.15g}" for one in (value, low, high, middle))
                of_weeks = f"median {usual} of {len(known)} weeks, factor {factor}"
                far.append(f"{name} {now} is not within {least} to {most} ({of_weeks})")
    return "; ".join(far)


def review(catalog: Catalog, target: Target, factors: Mapping[str, Decimal], draft: Manifest) -> Manifest:
    """Return the draft of new content, with a warning if it is far off and approved; a HeldError if not approved."""
    if not (factors and (far := far_off(draft, _weeks_before(target, draft), factors))):
        return draft
    remedy = f"lakehouse export approve {draft.week} --dataset {draft.dataset} --reason ..."
    address = target.address(f"{draft.dataset}/{draft.week}")
    new = Hold(address, draft.sha256, f"{far}; if that is right, run `{remedy}`")
    held = TABLE.change(
        catalog, lambda rows: rows if (row := rows.get(address)) and row.sha256 == new.sha256 else rows | {address: new}
    )
    if (why := held[address].approved) is None:
        raise HeldError(new.reason, "Otherwise correct the data")
    return replace(draft, warnings=[*draft.warnings, f"held for review, then approved: {why}"])


def approve(catalog: Catalog, target: Target, dataset: str, week: str, reason: str) -> None:
    """Approve what is held of a week; a UserError if nothing is."""
    held = TABLE.rows(catalog).get(target.address(f"{dataset}/{week}"))
    if held is None:
        raise UserError(f"{dataset} {week} is not held", "See what is withheld with `lakehouse export run --dry-run`")
    TABLE.change(catalog, lambda rows: rows | {held.address: replace(held, approved=reason)})


def drop(catalog: Catalog, addresses: set[str]) -> None:
    """Drop the holds of weeks that are published or expired."""
    if addresses & TABLE.rows(catalog).keys():
        TABLE.change(catalog, lambda rows: {address: row for address, row in rows.items() if address not in addresses})


def _weeks_before(target: Target, draft: Manifest) -> list[Manifest]:
    weeks = {path.split("/")[1] for path in paths(target, [draft.dataset])}
    current = (newest(target, draft.dataset, week) for week in sorted(weeks, reverse=True) if week < draft.week)
    return [*islice(filter(None, current), MOST)]
