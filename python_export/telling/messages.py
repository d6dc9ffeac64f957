"""What a channel has to take: one mail per week for its new versions and notices, one webhook call per row."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from typing import Any

from lakehouse.errors import UserError
from lakehouse.weeks import IsoWeek
from python_export.publishing.target import Target
from python_export.telling import channels, outbox
from python_export.telling.announce import Announcement
from python_export.telling.channels import TemporaryError
from python_export.telling.mail import mail_of_failures, mail_of_week
from python_export.telling.outbox import Entry
from python_export.variables import Smtp, Webhook

Told = dict[str, Announcement]
"""What to tell of versions, by the keys of their rows."""


@dataclass
class Message:
    """What a channel has to take, and the rows that it tells of.

    A mail is owed to `recipients`; `send` gives it to them and returns the codes of those that were refused.
    """

    about: list[Entry]
    send: Callable[[list[str]], dict[str, int] | None]
    recipients: list[str] = field(default_factory=list)
    some_have_it: bool = False
    gone: list[str] = field(default_factory=list)
    attempts: int = 0

    def try_once(self) -> UserError | None:
        """Send it, and return what to say if recipients were refused for good, while others have it.

        Raises:
            UserError: nobody has it.
            TemporaryError: it is owed to nobody or somebody yet, and may be taken later.
        """
        self.attempts += 1
        refused = self.send(self.recipients) or {}
        later = [address for address, code in refused.items() if code < channels.PERMANENT_FROM]
        self.gone += [address for address in refused if address not in later]
        self.some_have_it |= len(refused) < len(self.recipients)
        if later:
            self.recipients = later
            raise TemporaryError(
                f"The mail server is to be asked later for {', '.join(later)}", "`lakehouse export notify` does so"
            )
        if not self.gone:
            return None
        problem = UserError(
            f"The mail server refused {len(self.gone)} recipients for good: {', '.join(self.gone)}",
            "Check LAKEHOUSE_SMTP_TO and LAKEHOUSE_ALERT_TO; who has the mail does not get it again",
        )
        if self.some_have_it:
            return problem
        raise problem


def mails(smtp: Smtp, target: Target | None, told: Told, owed: list[Entry]) -> Iterator[Message]:
    """Yield a mail per week of what is owed, and one per week of failed runs."""

    def subject(entry: Entry) -> tuple[str, bool, str]:
        return entry.week or "", entry.kind == outbox.FAILURE, entry.waiting_for or ""

    for (week, failed, waiting_for), group in groupby(sorted(owed, key=subject), subject):
        about = list(group)
        if failed:
            mail, recipients = mail_of_failures(smtp, week, about), smtp.alerts
        else:
            assert target is not None, "without an export root only failures are told"  # noqa: S101
            published = [told[entry.idempotency_key] for entry in about if entry.kind == outbox.VERSION]
            mail, recipients = mail_of_week(smtp, target, IsoWeek.parse(week), published, about), smtp.recipients
        # Who has been taken out of the list does not wait any more.
        waiting = [address for address in recipients if not waiting_for or address in waiting_for.split(", ")]
        send = partial(channels.send, smtp, mail) if waiting else (lambda _: None)
        yield Message(about, send, waiting, bool(waiting_for))


def calls(webhook: Webhook, told: Told, owed: list[Entry]) -> Iterator[Message]:
    """Yield a call per row that is owed."""
    for entry in owed:
        body = _version(told[entry.idempotency_key]) if entry.kind == outbox.VERSION else _line(entry)

        def post(_: list[str], key: str = entry.idempotency_key, body: dict[str, Any] = body) -> None:
            channels.post(webhook, key, body)

        yield Message([entry], post)


def _line(entry: Entry) -> dict[str, Any]:
    told = {"week": entry.week, "at": entry.recorded_at.isoformat()}
    if entry.kind == outbox.FAILURE:
        return {"event": "failed", **told, "error": entry.error}
    if entry.kind == outbox.WITHDRAWN:
        version = {"dataset": entry.dataset, "version": entry.version, "sha256": entry.sha256}
        path = f"{(entry.export_root or '').rstrip('/')}/{entry.path}"
        return {"event": "withdrawn", **told, **version, "path": path, "text": entry.error}
    return {"event": "notice", **told, "dataset": entry.dataset, "text": entry.error}


def _version(announcement: Announcement) -> dict[str, Any]:
    manifest = announcement.manifest
    return {
        "event": "published",
        "dataset": manifest.dataset,
        "week": manifest.week,
        "version": manifest.version,
        "supersedes": manifest.supersedes,
        "news": announcement.changes,
        "rows": manifest.rows,
        "control_totals": manifest.control_totals,
        "path": announcement.address,
        "link": announcement.link,
        "bytes": manifest.bytes,
        "sha256": manifest.sha256,
        "created_at": manifest.created_at,
    }
