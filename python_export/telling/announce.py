"""What there is to tell of published versions, in mail, webhook and report: figures of their manifests alone."""

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from lakehouse.weeks import IsoWeek
from python_export.datasets.shown import Shown
from python_export.publishing.layout import REPORTS
from python_export.publishing.manifest import Manifest
from python_export.publishing.target import Target

TEMPLATES = Environment(
    loader=FileSystemLoader(Path(__file__).with_name("templates")),
    autoescape=lambda name: name is not None and ".html" in name,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
TEMPLATES.filters |= {
    "number": lambda value: f"{value:,}",
    "whole": lambda value: f"{value:,.0f}",
    "share": lambda value, of: round(float(value) / float(of) * 100, 2) if of else 0,
}


@dataclass(frozen=True)
class Figure:
    """A total of a version and, if there is one, that of the newest version of the week before."""

    name: str
    now: Decimal
    before: Decimal | None

    @property
    def change(self) -> str:
        """How much more or less than the week before, for instance `+7.2 %`."""
        if not self.before:
            return ""
        return f"{(self.now - self.before) / self.before * 100:+.1f} %"


@dataclass(frozen=True)
class Announcement:
    """What is told of one version."""

    manifest: Manifest
    address: str
    link: str | None
    figures: tuple[Figure, ...]
    changes: str


def announcements(target: Target, published: list[Manifest], shown: Mapping[str, Shown]) -> list[Announcement]:
    """Return what to tell of each version, given all that are published, the versions of a week in order.

    `shown` has by dataset what its model wants shown; of one without, that is the number of rows.
    """
    newest = {(manifest.dataset, manifest.week): manifest for manifest in published}
    found = []
    for manifest in published:
        measures = shown[manifest.dataset].measures if manifest.dataset in shown else ()
        before = newest.get((manifest.dataset, str(IsoWeek.parse(manifest.week).minus(1))))
        totals = {"rows": str(manifest.rows)} | manifest.control_totals
        totals_before = {} if before is None else {"rows": str(before.rows)} | before.control_totals
        figures = tuple(
            Figure(name, Decimal(totals[name]), Decimal(totals_before[name]) if name in totals_before else None)
            # The sums of a file that small groups are left out of depend on which those are.
            for name in ("rows", *(measures if not manifest.small_groups else ()))
            if name in totals
        )
        path = f"{manifest.path}/{manifest.file}"
        found.append(Announcement(manifest, target.address(path), target.link(path), figures, changes(manifest)))
    return found


def counted(number: int, what: str) -> str:
    """Return a number with its noun, for instance `2 files`."""
    return f"{number} {what}" + ("" if number == 1 else "s")


def changes(manifest: Manifest) -> str:
    """Return in words what is new about a version."""
    if manifest.supersedes is None:
        return "first version"
    counts = [f"{count:,} {what}" for what, count in (manifest.difference or {}).items() if count]
    return f"replaces v{manifest.supersedes}: {manifest.reason}" + (f" (rows: {', '.join(counts)})" if counts else "")


def report_path(week: IsoWeek) -> str:
    """Return where the report of a week is under the export root."""
    return f"{REPORTS}/{week}.html"
