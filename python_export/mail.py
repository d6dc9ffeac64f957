"""What a mail says: the figures of the versions of one week beside those of the week before, or why a run failed.

Figures are those of the manifests; there are no rows of data in it.
"""

import hashlib
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from email.message import EmailMessage
from email.utils import format_datetime
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from lakehouse.weeks import IsoWeek
from python_export.channels import Smtp
from python_export.manifest import Manifest
from python_export.outbox import Entry
from python_export.target import Target

# The columns whose sum over a file means something; a sum of prices or numbers does not.
MEASURES = ("quantity", "line_count", "order_count", "net_price", "amount", "total_amount", "revenue")

TEMPLATES = Environment(
    loader=FileSystemLoader(Path(__file__).with_name("templates")),
    autoescape=lambda name: bool(name) and ".html" in name,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)


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
    figures: tuple[Figure, ...]
    news: str


def announcements(target: Target, published: list[Manifest]) -> list[Announcement]:
    """Return what to tell of each version, given all that are published, the versions of a week in order."""
    newest = {(one.dataset, one.week): one for one in published}
    found = []
    for one in published:
        before = newest.get((one.dataset, str(IsoWeek.parse(one.week).minus(1))))
        totals = {"rows": str(one.rows)} | one.control_totals
        totals_before = {} if before is None else {"rows": str(before.rows)} | before.control_totals
        figures = tuple(
            Figure(name, Decimal(totals[name]), Decimal(totals_before[name]) if name in totals_before else None)
            for name in ("rows", *MEASURES)
            if name in totals
        )
        address = target.address(f"{one.path}/{one.file}")
        found.append(Announcement(one, address, figures, news(one)))
    return found


def news(manifest: Manifest) -> str:
    """Return in words what is new about a version."""
    if manifest.supersedes is None:
        return "first version"
    return f"replaces v{manifest.supersedes}"


def mail_of_versions(smtp: Smtp, week: IsoWeek, told: list[Announcement], entries: list[Entry]) -> EmailMessage:
    """Return the mail about versions of one week."""
    replaced = sum(one.manifest.supersedes is not None for one in told)
    subject = f"{week}: {_count(len(told), 'file')} published" + (f", {replaced} of them anew" if replaced else "")
    return _mail(smtp, subject, "published", entries, week=week, last_day=week.end - timedelta(days=1), told=told)


def mail_of_failures(smtp: Smtp, week: str, entries: list[Entry]) -> EmailMessage:
    """Return the mail about failed runs for one week."""
    return _mail(smtp, f"{week}: the weekly files failed", "failed", entries, week=week, entries=entries)


def _mail(smtp: Smtp, subject: str, template: str, about: list[Entry], **values: object) -> EmailMessage:
    message = EmailMessage()
    message["Subject"] = subject
    message["From"] = smtp.sender
    message["To"] = ", ".join(smtp.recipients)
    message["Date"] = format_datetime(max(entry.recorded_at for entry in about))
    # The same message sent twice has the same id, so that mail servers and readers know it for one.
    keys = ", ".join(entry.idempotency_key for entry in about)
    message["Message-ID"] = f"<{hashlib.sha256(keys.encode()).hexdigest()[:32]}@retail-lakehouse>"
    message["X-Idempotency-Key"] = keys
    message.set_content(TEMPLATES.get_template(f"{template}.txt").render(values, subject=subject))
    message.add_alternative(TEMPLATES.get_template(f"{template}.html").render(values, subject=subject), subtype="html")
    return message


def _count(number: int, what: str) -> str:
    return f"{number} {what}" + ("" if number == 1 else "s")


def _number(value: Decimal) -> str:
    return f"{value:,}"


TEMPLATES.filters["number"] = _number
