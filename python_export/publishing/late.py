"""Which weeks are due: every week from a dataset's first due one that was never published, or that late data changed.

The figures of a week (ops.weekly_figures) have a fingerprint of what is exported. The figures of an exported week are
recorded once its version is public, so a run that dies before finds the week due again, and one that finds the same
content publishes nothing and records them too. A week without a version whose figures are recorded has expired.
"""

import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any

from pyiceberg.catalog import Catalog

from python_common.catalog.catalog import load_table
from python_common.catalog.small_table import SmallTable
from python_common.weeks import IsoWeek, weeks_between
from python_dbt.run import FIGURES_TABLE
from python_export.publishing import hold
from python_export.publishing.manifest import newest, paths, published
from python_export.publishing.publish import Published, unchanged
from python_export.publishing.target import Target


@dataclass(frozen=True)
class ExportedWeek:
    """What is recorded of a week of a dataset."""

    address: Annotated[str, "<export root>/<dataset>/<week>, or once/<dataset>/<week>: it has its one version"]
    figures: Annotated[str | None, "the week's row of ops.weekly_figures when last exported, as JSON; null before"]
    noted_at: Annotated[datetime, "when the row was written"]
    skipped: Annotated[str | None, "why the week is not to be published; null unless `export skip` named it"] = None


TABLE = SmallTable("ops.exported_figures", ExportedWeek)

Figures = dict[tuple[str, str], str]
WeeksToExport = list[tuple[str, IsoWeek]]
# The figures of a week without rows.
NO_ROWS = "{}"
ONCE = "once/"


def figures(catalog: Catalog) -> Figures:
    """Return the figures of each dataset and week as text; without the table, none."""
    table = load_table(catalog, FIGURES_TABLE)
    rows = table.scan().to_arrow().to_pylist() if table else []
    return {(row["dataset_name"], row["week_label"]): as_text(row) for row in rows if row["week_label"]}


def as_text(row: dict[str, Any]) -> str:
    """Return a week's figures as they are compared."""
    return json.dumps(row, sort_keys=True, default=str)


def weeks_to_export(
    catalog: Catalog,
    target: Target,
    now: Figures,
    names: Iterable[str],
    until: IsoWeek,
    at_most: int,
    once: Collection[str] = (),
) -> tuple[WeeksToExport, list[IsoWeek]]:
    """Return the due datasets and weeks in the order to export them, and the weeks that are left for the next run.

    Weeks never published come first, the oldest first; then published ones whose figures are not `now` those recorded,
    the newest first but those that are held last, `at_most` so many. `until` is the last complete week. A dataset's
    weeks begin with its first published or recorded one. Datasets of `once` have one version per week.
    """
    published = {tuple(path.split("/")[:2]) for path in paths(target)}
    rows, holds = TABLE.rows(catalog), hold.unapproved(catalog)
    missing: dict[IsoWeek, list[str]] = defaultdict(list)
    to_restate: dict[IsoWeek, list[str]] = defaultdict(list)
    for name in names:
        prefix = f"{target.address(name)}/"
        recorded = {address.removeprefix(prefix): row for address, row in rows.items() if address.startswith(prefix)}
        labels = {week for dataset, week in published if dataset == name} | recorded.keys()
        first = IsoWeek.parse(min(labels)) if labels else None
        for week in weeks_between(f"{first}..{max(first, until)}") if first else ():
            row = recorded.get(str(week))
            figures = row.figures if row else None
            if row and row.skipped:
                continue
            if (name, str(week)) in published:
                if name not in once and _differ(figures, now.get((name, str(week)), NO_ROWS)):
                    to_restate[week].append(name)
            elif figures is None and week <= until:
                missing[week].append(name)
    is_held = {week: all(_address(target, one, str(week)) in holds for one in due) for week, due in to_restate.items()}
    restated = sorted(sorted(to_restate.keys() - missing.keys(), reverse=True), key=is_held.__getitem__)
    order = [*sorted(missing), *restated[:at_most]]
    return [(name, week) for week in order for name in (*missing[week], *to_restate[week])], restated[at_most:]


def why_due(target: Target, name: str, week: IsoWeek, has_one_version: bool) -> str:
    """Return why a week of a dataset is exported, in words for a preview."""
    versions = published(target, name, str(week), with_withdrawn=True)
    if not versions:
        return "never published"
    current = [version for version in versions if not version.withdrawn]
    if not current:
        return "withdrawn"
    return f"v{current[-1].version} {'is its one version' if has_one_version else 'may differ'}"


def record_due(
    catalog: Catalog, target: Target, week: IsoWeek, names: Iterable[str], skipped: str | None = None
) -> None:
    """Record that a week of some datasets is due until it is published; or why it is not to be, if it never was."""
    new = _rows({_address(target, name, str(week)): None for name in names}, skipped)
    TABLE.change(catalog, lambda before: {**before, **new} if skipped else {**new, **before})


def published_once(
    catalog: Catalog, target: Target, names: Collection[str], is_announced: bool
) -> set[tuple[str, str]]:
    """Return dataset and week of what has its one version, withdrawn or not, of some datasets that have no more.

    An announced export root counts for the whole lake, from when this has seen its version. Any other is a trial, which
    counts for itself.
    """
    here = {(path.split("/")[0], path.split("/")[1]) for path in paths(target, names)} if names else set()
    if not is_announced or not names:
        return here
    new = _rows({f"{ONCE}{dataset}/{week}": None for dataset, week in here})
    rows = TABLE.rows(catalog)
    if new.keys() - rows.keys():
        rows = TABLE.change(catalog, lambda before: {**new, **before})
    recorded = (address.split("/") for address in rows if address.startswith(ONCE))
    return here | {(dataset, week) for _, dataset, week in recorded}


def without_published(
    target: Target, due: WeeksToExport, published: Collection[tuple[str, str]]
) -> tuple[WeeksToExport, list[Published], list[str]]:
    """Return due datasets without those that have their one version, these versions, and a warning for each other."""
    left: WeeksToExport = []
    versions: list[Published] = []
    warnings: list[str] = []
    for name, week in due:
        if (name, str(week)) not in published:
            left.append((name, week))
        elif version := newest(target, name, str(week)):
            versions.append(unchanged(target, version))
        else:
            warnings.append(
                f"{name} {week} was published, and is withdrawn, unreadable or in another export root: another version"
                f" needs `lakehouse export run {name} --restate --week {week} --reason ...`"
            )
    return left, versions, warnings


def record_figures(
    catalog: Catalog, target: Target, weeks: Iterable[tuple[str, str]], now: Figures, are_expired: bool = False
) -> None:
    """Record the figures of datasets and weeks that are exported; of expired ones, if none are recorded.

    An expired week without figures would be due again.
    """
    new = _rows({_address(target, dataset, week): now.get((dataset, week), NO_ROWS) for dataset, week in weeks})

    def record(before: dict[str, ExportedWeek]) -> dict[str, ExportedWeek]:
        unchanged = {key: row for key, row in before.items() if are_expired and row.figures is not None}
        return {**before, **new, **unchanged}

    TABLE.change(catalog, record)


def _rows(figures: Mapping[str, str | None], skipped: str | None = None) -> dict[str, ExportedWeek]:
    at = datetime.now(UTC)
    return {address: ExportedWeek(address, text, at, skipped) for address, text in figures.items()}


def _differ(recorded: str | None, now: str) -> bool:
    """Return whether figures changed; a rotated masking key, which changes all pseudonyms, is no late data."""
    if recorded is None:
        return True
    before: dict[str, Any] = json.loads(recorded)
    after: dict[str, Any] = json.loads(now)
    if before.get("key_version") != after.get("key_version"):
        for figures in (before, after):
            for name in ("key_version", "fingerprint"):
                figures.pop(name, None)
    return before != after


def _address(target: Target, dataset: str, week: str) -> str:
    return target.address(f"{dataset}/{week}")
