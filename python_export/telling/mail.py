"""What a mail says: the figures of the versions of one week beside those of the week before, or why a run failed.

Figures are those of the manifests; there are no rows of data in it.
"""

import hashlib
from collections.abc import Iterable
from datetime import timedelta
from email.message import EmailMessage
from email.utils import format_datetime

from lakehouse.weeks import IsoWeek
from python_export.publishing.target import Target
from python_export.telling.announce import TEMPLATES, Announcement, counted, report_path
from python_export.telling.outbox import NOTICE, WITHDRAWN, Entry
from python_export.variables import Smtp


def mail_of_week(
    smtp: Smtp, target: Target, week: IsoWeek, told: list[Announcement], entries: list[Entry]
) -> EmailMessage:
    """Return the mail about versions, withdrawals and notices of one week."""
    replaced = sum(announcement.manifest.supersedes is not None for announcement in told)
    withheld = sum(entry.kind == NOTICE and entry.dataset is not None for entry in entries)
    by_weight = sorted(entries, key=lambda entry: (entry.dataset is None, entry.error or ""))
    withdrawals = [entry.error for entry in by_weight if entry.kind == WITHDRAWN]
    notices = [entry.error for entry in by_weight if entry.kind == NOTICE]
    parts = [
        f"{counted(len(told), 'file')} published" + (f", {replaced} of them anew" if replaced else "") if told else "",
        f"{counted(len(withdrawals), 'file')} withdrawn" if withdrawals else "",
        f"{withheld} withheld" if withheld else "",
        counted(len(notices) - withheld, "warning") if len(notices) > withheld else "",
    ]
    subject = f"{week}: {', '.join(part for part in parts if part)}"
    values = {"week": week, "last_day": week.end - timedelta(days=1), "report": target.address(report_path(week))}
    values["report_link"] = target.link(report_path(week))
    return _mail(
        smtp, smtp.recipients, subject, "published", entries, told=told, notices=[*withdrawals, *notices], **values
    )


def mail_of_failures(smtp: Smtp, week: str, entries: list[Entry]) -> EmailMessage:
    """Return the mail about failed runs for one week."""
    subject = f"{week}: the weekly files failed"
    return _mail(smtp, smtp.alerts, subject, "failed", entries, week=week, entries=entries)


def _mail(
    smtp: Smtp, recipients: Iterable[str], subject: str, template: str, about: list[Entry], **values: object
) -> EmailMessage:
    message = EmailMessage()
    message["Subject"] = subject
    message["From"] = smtp.sender
    message["To"] = ", ".join(recipients)
    message["Date"] = format_datetime(max(entry.recorded_at for entry in about))
    # The same message sent twice has the same id, so that mail servers and readers know it for one.
    keys = ", ".join(entry.idempotency_key for entry in about)
    told = keys + "".join(entry.sha256 or "" for entry in about)
    message["Message-ID"] = f"<{hashlib.sha256(told.encode()).hexdigest()[:32]}@retail-lakehouse>"
    message["X-Idempotency-Key"] = keys
    message.set_content(TEMPLATES.get_template(f"{template}.txt").render(values, subject=subject))
    message.add_alternative(TEMPLATES.get_template(f"{template}.html").render(values, subject=subject), subtype="html")
    return message
