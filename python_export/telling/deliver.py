"""Delivers what the outbox owes: one mail per week for its new versions and notices, one webhook call per row.

At least once: a row is marked after its channel has taken it, so a crash in between sends it again, under the same
idempotency key. A channel that says "later" is asked again for a while; what it did not take stays owed for the next
run.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from itertools import groupby
from typing import Any

from pyiceberg.catalog import Catalog
from tenacity import RetryCallState, Retrying, retry_if_exception_type, stop_before_delay

from lakehouse.catalog import load_catalog
from lakehouse.environment import PROJECT_ROOT
from lakehouse.errors import UserError
from lakehouse.failure import as_user_error
from lakehouse.lease import Killed
from lakehouse.lock import locked
from lakehouse.settings import Settings
from lakehouse.weeks import IsoWeek
from python_export.datasets import declared
from python_export.datasets.declared import Project
from python_export.datasets.shown import Shown
from python_export.publishing.manifest import Manifest, ManifestError, newest, read
from python_export.publishing.target import Target, open_target
from python_export.telling import channels as sending
from python_export.telling import outbox
from python_export.telling.announce import Announcement, announcements, counted
from python_export.telling.channels import ChannelDownError, TemporaryError
from python_export.telling.mail import mail_of_failures, mail_of_week
from python_export.telling.outbox import Entry, Notice
from python_export.variables import Channels, Smtp, Webhook

FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 1.0, 60.0

Told = dict[str, Announcement]
Say = Callable[[str], None]


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
        later = [one for one, code in refused.items() if code < sending.PERMANENT_FROM]
        self.gone += [one for one in refused if one not in later]
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


def notify(
    settings: Settings, env: Mapping[str, str], catalog: Catalog, say: Say, notices: Iterable[Notice] = ()
) -> list[UserError]:
    """Write the rows that published versions and notices lack, deliver what is owed, and return who is not told, why.

    Raises:
        UserError: a channel is configured wrongly, or the outbox cannot be written.
    """
    channels = Channels.of(env)
    with locked("notify", say):
        target = open_target(settings)
        unreadable: list[ManifestError] = []
        outbox.record_versions(catalog, target, channels, unreadable)
        outbox.record_notices(catalog, target, notices, channels)
        if outbox.know_root(catalog, target).mail != outbox.TOLD:
            say(
                f"nobody is told of {target.address('')}: readers are told of another export root;"
                " `lakehouse export outbox adopt` adds this one"
            )
        if not channels.smtp and not channels.webhook:
            say("nobody is told: neither LAKEHOUSE_SMTP_HOST nor LAKEHOUSE_WEBHOOK_URL is set")
        owed = [one for one in outbox.entries(catalog) if outbox.OWED in {one.mail, one.webhook}]
        versions = [one for one in owed if one.kind == outbox.VERSION]
        told = _announcements(target, versions, _shown(env, say), unreadable)
        # What is of another root has other readers, and a version that somebody has taken away is told to nobody.
        mine: dict[str, Callable[[str], bool]] = {
            outbox.VERSION: told.__contains__,
            outbox.NOTICE: partial(outbox.is_notice_of, target),
        }
        owed = [one for one in owed if one.kind not in mine or mine[one.kind](one.idempotency_key)]
        return [*unreadable, *_deliver(catalog, channels, target, owed, told, say)]


def tell_of_failure(
    settings: Settings,
    env: Mapping[str, str],
    week: IsoWeek,
    error: UserError,
    say: Say,
    at: datetime | None = None,
    notices: Iterable[Notice] = (),
) -> None:
    """Tell that a run failed, as far as that is possible: the error itself is the caller's to report.

    It failed now, or `at` a time that makes it the same failure when it is told again. First of the failure itself,
    without the outbox if that cannot be written; then of what was published before it, and of notices.
    """
    try:
        catalog: Catalog | None = None
        channels = Channels.of(env)
        failures = [outbox.failure(str(week), str(error), channels, at or datetime.now(UTC))]
        with ExitStack() as stack:
            try:
                stack.enter_context(locked("notify", say))
                catalog = load_catalog(settings)
                outbox.record_failure(catalog, failures[0])
                failures = [one for one in outbox.entries(catalog) if one.kind == outbox.FAILURE and _is_owed(one)]
            except Exception as problem:
                catalog = None
                why = as_user_error(problem, settings).message
                say(f"the failure cannot be noted in {outbox.TABLE.identifier}, and is told all the same: {why}")
            problems = _deliver(catalog, channels, None, failures, {}, say)
        if catalog is not None:
            problems += notify(settings, env, catalog, say, notices)
    except Exception as problem:  # whatever it is, it must not take the place of the error
        problems = [as_user_error(problem, settings)]
    for untold in problems:
        say(f"not everybody is told of the failure: {untold}")


def tell_of_killed(settings: Settings, env: Mapping[str, str], week: IsoWeek, left: Killed | None, say: Say) -> None:
    """Tell that the run which has left its lease was killed, if there is one."""
    if left:
        error = UserError(f"The {left.run} was killed", "What it has published is whole; run it again")
        tell_of_failure(settings, env, week, error, say, left.at)


def _is_owed(entry: Entry) -> bool:
    return outbox.OWED in {entry.mail, entry.webhook}


def _shown(env: Mapping[str, str], say: Say) -> dict[str, Shown]:
    """Return what is shown of datasets. Without it messages have counts of rows alone: nobody waits for it."""
    try:
        return declared.shown(Project(PROJECT_ROOT, env))
    except Exception as error:  # a manifest of dbt may be cut off or wrong in any way
        say(f"figures are left out of messages: {as_user_error(error).message}")
        return {}


def _announcements(
    target: Target, owed: list[Entry], shown: Mapping[str, Shown], unreadable: list[ManifestError]
) -> Told:
    """Return what to tell of owed versions that are under an export root, by their keys."""
    chosen: dict[str, Manifest] = {}
    before: list[Manifest] = []
    for entry in owed:
        if entry.idempotency_key != outbox.name_of(target, entry.path):
            continue
        try:
            manifest = read(target, entry.path)
        except ManifestError as error:
            unreadable.append(error)
            continue
        chosen[entry.path] = manifest
        week_before = newest(target, manifest.dataset, str(IsoWeek.parse(manifest.week).minus(1)))
        before += [week_before] if week_before else []
    # The versions that are told of come last: of two of a week the later one counts.
    all_of_them = [*before, *chosen.values()]
    return {
        outbox.name_of(target, one.manifest.path): one
        for one in announcements(target, all_of_them, shown)
        if one.manifest.path in chosen
    }


def _deliver(
    catalog: Catalog | None, channels: Channels, target: Target | None, owed: list[Entry], told: Told, say: Say
) -> list[UserError]:
    """Send what is owed by mail and webhook. Without a catalog nothing is noted."""
    problems: dict[str, UserError] = {}
    ways: dict[outbox.Channel, Callable[[list[Entry]], Iterator[Message]] | None] = {
        "mail": partial(_mails, channels.smtp, target, told) if channels.smtp else None,
        "webhook": partial(_calls, channels.webhook, told) if channels.webhook else None,
    }
    for channel, messages in ways.items():
        rows = [one for one in owed if getattr(one, channel) == outbox.OWED]
        if messages is None and rows:
            said = f"{len(rows)} messages wait for a {channel} that is no longer configured"
            problems[said] = UserError(said, "Configure it, or drop them by `lakehouse export outbox drop`")
        elif messages is not None:
            for problem in _send_all(catalog, channel, messages(rows), channels.patience.total_seconds(), say):
                problems[problem.message] = problem
    return list(problems.values())


def _send_all(
    catalog: Catalog | None, channel: outbox.Channel, messages: Iterable[Message], patience: float, say: Say
) -> Iterator[UserError]:
    """Send messages. One that is refused does not hold up the next, but when the channel is down they can wait."""
    start = time.monotonic()
    for message in messages:
        try:
            problem = _patiently(message.try_once, start + patience - time.monotonic())
        except UserError as error:
            if catalog is not None:
                waiting = ", ".join(message.recipients) if message.some_have_it else None
                outbox.note_failure(catalog, message.about, message.attempts, error.message, waiting)
            yield error
            if isinstance(error, ChannelDownError):
                return
            continue
        if problem:
            yield problem
        if catalog is not None:
            outbox.settle(catalog, message.about, channel)
        say(f"{channel}: told of {_what(message.about)} of {message.about[0].week}")


def _what(about: list[Entry]) -> str:
    kinds = Counter(one.kind for one in about)
    words = {outbox.VERSION: "version", outbox.FAILURE: "failed run", outbox.NOTICE: "notice"}
    return " and ".join(counted(kinds[kind], word) for kind, word in words.items() if kinds[kind])


def _patiently(work: Callable[[], UserError | None], seconds: float) -> UserError | None:
    """Do something, and again while a channel says "later" and there is time."""
    again = Retrying(
        retry=retry_if_exception_type(TemporaryError), wait=_pause, stop=stop_before_delay(seconds), reraise=True
    )
    return again(work)


def _pause(state: RetryCallState) -> float:
    """Return how long to wait: twice as long each time, or longer if the channel said so."""
    error = state.outcome.exception() if state.outcome else None
    asked = error.wait if isinstance(error, TemporaryError) else 0.0
    return max(asked, min(LONGEST_PAUSE_SECONDS, FIRST_PAUSE_SECONDS * 2.0 ** (state.attempt_number - 1)))


def _mails(smtp: Smtp, target: Target | None, told: Told, owed: list[Entry]) -> Iterator[Message]:
    def subject(entry: Entry) -> tuple[str, bool, str]:
        return entry.week or "", entry.kind == outbox.FAILURE, entry.waiting_for or ""

    for (week, failed, waiting_for), group in groupby(sorted(owed, key=subject), subject):
        about = list(group)
        if failed:
            mail, recipients = mail_of_failures(smtp, week, about), smtp.alerts
        else:
            assert target is not None, "without an export root only failures are told"  # noqa: S101
            news = [told[one.idempotency_key] for one in about if one.kind == outbox.VERSION]
            mail, recipients = mail_of_week(smtp, target, IsoWeek.parse(week), news, about), smtp.recipients
        # Who has been taken out of the list does not wait any more.
        waiting = [one for one in recipients if not waiting_for or one in waiting_for.split(", ")]
        send = partial(sending.send, smtp, mail) if waiting else (lambda _: None)
        yield Message(about, send, waiting, bool(waiting_for))


def _calls(webhook: Webhook, told: Told, owed: list[Entry]) -> Iterator[Message]:
    for one in owed:
        body = _version(told[one.idempotency_key]) if one.kind == outbox.VERSION else _line(one)

        def post(_: list[str], key: str = one.idempotency_key, body: dict[str, Any] = body) -> None:
            sending.post(webhook, key, body)

        yield Message([one], post)


def _line(entry: Entry) -> dict[str, Any]:
    told = {"week": entry.week, "at": entry.recorded_at.isoformat()}
    if entry.kind == outbox.FAILURE:
        return {"event": "failed", **told, "error": entry.error}
    return {"event": "notice", **told, "dataset": entry.dataset, "text": entry.error}


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
