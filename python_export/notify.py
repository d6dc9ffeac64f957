"""Delivers what the outbox owes: one mail per week for all its new versions, one webhook call per row.

At least once: a row is marked after its channel has taken it, so a crash in between sends it again, under the same
idempotency key. A message is tried a few times; what a channel did not take stays owed for the next run.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import Any

from pyiceberg.catalog import Catalog
from sqlalchemy.exc import OperationalError

from lakehouse.catalog import load_catalog, unavailable
from lakehouse.errors import UserError
from lakehouse.lock import locked
from lakehouse.settings import Settings
from lakehouse.weeks import IsoWeek
from python_export import channels as channel_settings
from python_export import outbox
from python_export.announce import Announcement, announcements, counted
from python_export.channels import ChannelDownError, Smtp, Webhook
from python_export.mail import mail_of_failures, mail_of_versions
from python_export.manifest import published
from python_export.outbox import Entry
from python_export.target import Target, open_target

ATTEMPTS = 3
PAUSE_SECONDS = 1.0

Told = dict[str, Announcement]


@dataclass(frozen=True)
class Message:
    """What a channel has to take, and the rows that it tells of; `send` returns who was left out by it."""

    about: list[Entry]
    send: Callable[[], UserError | None]


def notify(settings: Settings, env: Mapping[str, str], catalog: Catalog, say: Callable[[str], None]) -> list[UserError]:
    """Write the rows that published versions lack, deliver what is owed, and return why somebody is not told.

    Raises:
        UserError: a channel is configured wrongly, or the outbox cannot be written.
    """
    channels = channel_settings.from_environment(env)
    with locked("notify", say):
        target = open_target(settings)
        versions = published(target)
        entries = outbox.record_versions(catalog, versions, channels)
        if not channels.smtp and not channels.webhook:
            say("nobody is told: neither LAKEHOUSE_SMTP_HOST nor LAKEHOUSE_WEBHOOK_URL is set")
        told = {one.manifest.path: one for one in announcements(target, versions)}
        # A version that somebody has taken away since is not told of.
        entries = [one for one in entries if one.kind == outbox.FAILURE or one.idempotency_key in told]
        mails = [one for one in entries if one.mail == outbox.OWED]
        calls = [one for one in entries if one.webhook == outbox.OWED]
        return [
            *_deliver(catalog, "mail", mails, channels.smtp and _mails(channels.smtp, target, mails, told), say),
            *_deliver(catalog, "webhook", calls, channels.webhook and _calls(channels.webhook, calls, told), say),
        ]


def tell_of_failure(
    settings: Settings, env: Mapping[str, str], week: IsoWeek, error: UserError, say: Callable[[str], None]
) -> None:
    """Tell that a run failed, as far as that is possible: the error itself is the caller's to report."""
    try:
        catalog = load_catalog(settings)
        outbox.record_failure(catalog, str(week), str(error), channel_settings.from_environment(env))
        problems = notify(settings, env, catalog, say)
    except Exception as problem:  # whatever it is, it must not take the place of the error
        problems = [as_user_error(problem, settings)]
    for problem in problems:
        say(f"not everybody is told of the failure: {problem}")


def as_user_error(problem: Exception, settings: Settings) -> UserError:
    """Return what to say of anything that a run can fail with; it quotes no row."""
    if isinstance(problem, UserError):
        return problem
    if isinstance(problem, OperationalError):
        return unavailable(settings)
    # Its message may quote a row.
    return UserError(f"An error that nobody foresaw: {type(problem).__name__}", "Run it again, and report it")


def _deliver(
    catalog: Catalog, channel: str, owed: list[Entry], messages: Iterator[Message] | None, say: Callable[[str], None]
) -> list[UserError]:
    """Send messages. One that is refused does not hold up the next, but when the channel is down they can wait."""
    if messages is None:
        problem = UserError(f"{len(owed)} messages wait for a {channel} that is no longer configured", "Configure it")
        return [problem] if owed else []
    problems: dict[str, UserError] = {}
    for message in messages:
        try:
            problem = _attempt(message.send)
        except UserError as error:
            outbox.note_failure(catalog, message.about, ATTEMPTS, error.message)
            problems[error.message] = error
            if isinstance(error, ChannelDownError):
                break
            continue
        if problem:
            problems[problem.message] = problem
        outbox.settle(catalog, message.about, channel)
        what = "version" if message.about[0].kind == outbox.VERSION else "failed run"
        say(f"{channel}: told of {counted(len(message.about), what)} of {message.about[0].week}")
    return list(problems.values())


def _attempt(send: Callable[[], UserError | None]) -> UserError | None:
    for _ in range(ATTEMPTS - 1):
        try:
            return send()
        except UserError:
            time.sleep(PAUSE_SECONDS)
    return send()


def _mails(smtp: Smtp, target: Target, owed: list[Entry], told: Told) -> Iterator[Message]:
    def subject(entry: Entry) -> tuple[str, str]:
        return entry.week, entry.kind

    for (week, kind), group in groupby(sorted(owed, key=subject), subject):
        about = list(group)
        if kind == outbox.FAILURE:
            mail = mail_of_failures(smtp, week, about)
        else:
            mail = mail_of_versions(
                smtp, target, IsoWeek.parse(week), [told[one.idempotency_key] for one in about], about
            )
        yield Message(about, partial(channel_settings.send, smtp, mail))


def _calls(webhook: Webhook, owed: list[Entry], told: Told) -> Iterator[Message]:
    for one in owed:
        body = _failure(one) if one.kind == outbox.FAILURE else _version(told[one.idempotency_key])
        yield Message([one], partial(channel_settings.post, webhook, one.idempotency_key, body))


def _failure(entry: Entry) -> dict[str, Any]:
    return {"event": "failed", "week": entry.week, "at": entry.recorded_at.isoformat(), "error": entry.error}


def _version(one: Announcement) -> dict[str, Any]:
    manifest = one.manifest
    return {
        "event": "published",
        "dataset": manifest.dataset,
        "week": manifest.week,
        "version": manifest.version,
        "supersedes": manifest.supersedes,
        "news": one.news,
        "rows": manifest.rows,
        "control_totals": manifest.control_totals,
        "path": one.address,
        "bytes": manifest.bytes,
        "sha256": manifest.sha256,
        "created_at": manifest.created_at,
    }
