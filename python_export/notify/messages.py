"""Messages: one mail and one webhook call per week with its new versions and notices; alerts and alarms apart.

The figures in mail, webhook and report are those of the manifest alone.
"""

import hashlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import timedelta
from decimal import Decimal
from email.message import EmailMessage
from email.utils import format_datetime
from functools import partial, reduce
from itertools import groupby
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from python_common.weeks import IsoWeek
from python_export.csv.exact import EXACT
from python_export.datasets.report_spec import ReportSpec
from python_export.notify import channels, outbox
from python_export.notify.outbox import Entry
from python_export.publishing.layout import REPORTS
from python_export.publishing.manifest import File, Manifest
from python_export.publishing.target import Target
from python_export.variables import Smtp, Webhook

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
# What LAKEHOUSE_ALERT_TO gets, each kind in a mail without others.
OPERATOR_KINDS = (outbox.ALERT, outbox.ALARM)
# What a webhook gets of a manifest.
WEBHOOK_FIELDS = (
    *("dataset", "version", "delivery", "supersedes"),
    *("rows", "control_totals", "bytes", "sha256", "created_at"),
)


@dataclass(frozen=True)
class Figure:
    """A total of a version and, if there is one, that of the newest version of the week before.

    `earlier` are those of the published ones of some weeks before.
    """

    name: str
    now: Decimal
    before: Decimal | None
    earlier: tuple[Decimal, ...] = ()

    @property
    def change(self) -> str:
        """How much more or less than the week before, for instance `+7.2 %`."""
        return self._against(self.before)

    @property
    def mean(self) -> Decimal | None:
        """The mean of the earlier totals; None without any."""
        return EXACT.divide(reduce(EXACT.add, self.earlier), len(self.earlier)) if self.earlier else None

    @property
    def change_of_mean(self) -> str:
        """How much more or less than that mean."""
        return self._against(self.mean)

    def _against(self, other: Decimal | None) -> str:
        return f"{(self.now - other) / other * 100:+.1f} %" if other else ""


@dataclass(frozen=True)
class Announcement:
    """A version as messages and report show it; `others` are its files but the CSV, with their addresses and links."""

    manifest: Manifest
    address: str
    link: str | None
    others: tuple[tuple[File, str, str | None], ...]
    figures: tuple[Figure, ...]
    changes: str


def announcement(
    target: Target,
    manifest: Manifest,
    before: Manifest | None,
    report_specs: Mapping[str, ReportSpec],
    earlier: Iterable[Manifest] = (),
) -> Announcement:
    """Return the announcement of a version, compared with the newest one of the week before and of `earlier` weeks.

    `report_specs` has by dataset what its model wants displayed; of one without, that is the number of rows.
    """
    # The sums of a file without its small groups depend on which those are.
    has_sums = manifest.dataset in report_specs and not manifest.small_groups
    measures = report_specs[manifest.dataset].measures if has_sums else ()
    totals, totals_before = _totals(manifest), _totals(before) if before else {}
    totals_earlier = list(map(_totals, earlier))
    figures = tuple(
        Figure(name, totals[name], totals_before.get(name), tuple(of[name] for of in totals_earlier if name in of))
        for name in ("rows", *measures)
        if name in totals
    )
    path = f"{manifest.path}/{manifest.file}"
    others = ((one, f"{manifest.path}/{one.file}") for one in manifest.files)
    links = tuple((one, target.address(other), target.link(other)) for one, other in others)
    return Announcement(manifest, target.address(path), target.link(path), links, figures, changes(manifest))


def _totals(manifest: Manifest) -> dict[str, Decimal]:
    totals = {"rows": str(manifest.rows), **manifest.control_totals}
    return {name: Decimal(total) for name, total in totals.items()}


def counted(number: int, what: str) -> str:
    """Return a number with its noun, for instance `2 files`."""
    return f"{number} {what}" + ("" if number == 1 else "s")


def changes(manifest: Manifest) -> str:
    """Return in words what is new about a version."""
    if manifest.supersedes is None:
        return "first version"
    counts = [f"{count:,} {what}" for what, count in (manifest.difference or {}).items() if count]
    columns = [f"{column} in {count:,}" for column, count in manifest.changed_columns.items()]
    rows = ", ".join(counts) + (f": {', '.join(columns)}" if columns else "")
    return f"replaces v{manifest.supersedes}: {manifest.reason}" + (f" (rows: {rows})" if rows else "")


def report_path(week: IsoWeek | str) -> str:
    """Return where the report of a week is under the export root."""
    return f"{REPORTS}/{week}.html"


Announcements = dict[str, Announcement]
"""The announcements of versions, by the keys of their outbox rows."""


Messages = Iterator[tuple[list[Entry], Callable[[], None]]]
"""The rows of the outbox that each message delivers, and a function that gives it to its channel."""


def _by_week(pending: Iterable[Entry], single: Collection[str] = ()) -> Iterator[list[Entry]]:
    """Yield pending rows in groups: by week, alerts and alarms by kind, each row of a `single` kind alone."""

    def key(entry: Entry) -> tuple[str, str, str]:
        kind = entry.kind if entry.kind in OPERATOR_KINDS else ""
        return entry.week or "", kind, entry.idempotency_key if kind in single else ""

    return (list(group) for _, group in groupby(sorted(pending, key=key), key))


def mails(smtp: Smtp, target: Target | None, by_key: Announcements, pending: list[Entry]) -> Messages:
    """Yield a mail per week of what is pending; alerts and alarms have separate mails. An alert needs no target."""
    for entries in _by_week(pending):
        yield entries, partial(channels.send, smtp, _mail(smtp, target, by_key, entries))


def _mail(smtp: Smtp, target: Target | None, by_key: Announcements, entries: list[Entry]) -> EmailMessage:
    week, kind = IsoWeek.parse(entries[0].week or ""), entries[0].kind
    is_alert = kind in OPERATOR_KINDS
    versions = [by_key[entry.idempotency_key] for entry in entries if entry.kind == outbox.VERSION]
    others = [entry for entry in entries if entry.kind != outbox.VERSION]
    others.sort(key=lambda entry: (entry.kind != outbox.WITHDRAWN, entry.dataset is None, entry.error or ""))
    message = EmailMessage()
    subjects = {
        outbox.ALERT: "the weekly files failed",
        outbox.ALARM: f"{counted(len(entries), 'dataset')} not published in time",
    }
    message["Subject"] = f"{week}: {subjects.get(kind) or _summary(versions, others)}"
    message["From"] = smtp.sender
    message["To"] = ", ".join(smtp.alerts if is_alert else smtp.recipients)
    message["Date"] = format_datetime(max(entry.recorded_at for entry in entries))
    message["Message-ID"] = f"<{_id(entries)}@retail-lakehouse>"
    message["X-Idempotency-Key"] = ", ".join(entry.idempotency_key for entry in entries)
    values = {
        "subject": message["Subject"],
        "is_alert": is_alert,
        "week": week,
        "last_day": week.end - timedelta(days=1),
        "report": target and (target.link(report_path(week)) or target.address(report_path(week))),
        "announcements": versions,
        "entries": others,
    }
    message.set_content(TEMPLATES.get_template("mail.txt").render(values))
    message.add_alternative(TEMPLATES.get_template("mail.html").render(values), subtype="html")
    return message


def _id(entries: list[Entry]) -> str:
    """Return what a message of some rows has in common with the same message sent again."""
    content = ", ".join(entry.idempotency_key for entry in entries) + "".join(entry.sha256 or "" for entry in entries)
    return hashlib.sha256(content.encode()).hexdigest()[:32]


def _summary(versions: list[Announcement], others: list[Entry]) -> str:
    replaced = sum(announcement.manifest.supersedes is not None for announcement in versions)
    withdrawn = sum(entry.kind == outbox.WITHDRAWN for entry in others)
    withheld = sum(entry.kind == outbox.NOTICE and entry.dataset is not None for entry in others)
    warnings = len(others) - withdrawn - withheld
    counts = {
        f"{counted(len(versions), 'file')} published": len(versions),
        f"{replaced} of them again": replaced,
        f"{counted(withdrawn, 'file')} withdrawn": withdrawn,
        f"{withheld} withheld": withheld,
        counted(warnings, "warning"): warnings,
    }
    return ", ".join(text for text, count in counts.items() if count)


def calls(webhook: Webhook, target: Target | None, by_key: Announcements, pending: list[Entry]) -> Messages:
    """Yield a call per week of what is pending, and one per alert and alarm. An alert needs no target."""
    for entries in _by_week(pending, single=OPERATOR_KINDS):
        if target is None or entries[0].kind in OPERATOR_KINDS:
            key, body = entries[0].idempotency_key, _line(entries[0])
        else:
            key, body = _id(entries), _delivery(target, by_key, entries)
        yield entries, partial(channels.post, webhook, key, body)


SENT_BY: dict[outbox.Channel, Callable[..., Messages]] = {"mail": mails, "webhook": calls}


def _line(entry: Entry) -> dict[str, Any]:
    common = {"week": entry.week, "at": entry.recorded_at.isoformat()}
    if entry.kind == outbox.ALERT:
        return {"event": "failed", **common, "error": entry.error}
    return {"event": entry.kind, **common, "dataset": entry.dataset, "text": entry.error}


def _delivery(target: Target, by_key: Announcements, entries: list[Entry]) -> dict[str, Any]:
    week, at = entries[0].week or "", max(entry.recorded_at for entry in entries)
    bodies: dict[str, list[dict[str, Any]]] = {"versions": [], "withdrawn": [], "notices": []}
    for entry in entries:
        text = {"dataset": entry.dataset, "text": entry.error}
        if entry.kind == outbox.VERSION:
            announcement = by_key[entry.idempotency_key]
            facts = {name: getattr(announcement.manifest, name) for name in WEBHOOK_FIELDS}
            facts |= {"news": announcement.changes, "path": announcement.address, "link": announcement.link}
            files = [asdict(file) | {"path": address, "link": link} for file, address, link in announcement.others]
            bodies["versions"].append(facts | {"files": files})
        elif entry.kind == outbox.WITHDRAWN:
            version = {"version": entry.version, "sha256": entry.sha256, "path": target.address(entry.path)}
            bodies["withdrawn"].append(text | version)
        else:
            bodies["notices"].append(text)
    return {"event": "delivery", "week": week, "at": at.isoformat()} | bodies
