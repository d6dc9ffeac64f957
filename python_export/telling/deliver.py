"""Delivers what the outbox owes: one mail per week for its new versions and notices, one webhook call per row.

At least once: a row is marked after its channel has taken it, so a crash in between sends it again, under the same
idempotency key. A channel that says "later" is asked again for a while; what it did not take stays owed for the next
run. One process delivers at a time, by a lease that it asks for before each message: nobody can take back a message of
one that was stopped between the question and the sending, so its receiver has to know the key.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from datetime import UTC, datetime
from functools import partial

from pyiceberg.catalog import Catalog
from tenacity import RetryCallState, Retrying, retry_if_exception_type, stop_before_delay

from lakehouse.catalog import load_catalog
from lakehouse.environment import PROJECT_ROOT
from lakehouse.errors import UserError
from lakehouse.failure import to_user_error
from lakehouse.lease import Killed, LeaseLostError, leased
from lakehouse.lock import locked
from lakehouse.settings import Settings
from lakehouse.weeks import IsoWeek
from python_export.datasets import declared
from python_export.datasets.project import Project
from python_export.datasets.shown import Shown
from python_export.publishing.manifest import Manifest, ManifestError, newest, read
from python_export.publishing.target import Target, is_announced, open_target
from python_export.telling import messages, outbox
from python_export.telling.channels import ChannelDownError, TemporaryError
from python_export.telling.messages import ByKey, Message, announcements, counted
from python_export.telling.outbox import Entry, Notice
from python_export.variables import Channels

FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 1.0, 60.0

Say = Callable[[str], None]


def notify(
    settings: Settings,
    env: Mapping[str, str],
    catalog: Catalog,
    say: Say,
    notices: Iterable[Notice] = (),
    weeks: Iterable[IsoWeek] = (),
) -> list[UserError]:
    """Write the rows that versions and notices lack, deliver what is pending, and return what was not delivered.

    `weeks` are those that the notices are complete for. For an export root that is not the announced one nothing is
    written or sent.

    Raises:
        UserError: a channel is configured wrongly, or the outbox cannot be written.
    """
    channels = Channels.of(env)
    with locked("notify"), leased(catalog, "notify", "notify") as lease:
        target = open_target(settings)
        unreadable: list[ManifestError] = []
        if not is_announced(settings, target, channels.root):
            say(f"no notification: {target.address('')} is not {channels.root}, the {channels.variable('root')}")
            return []
        outbox.record_versions(catalog, target, channels, unreadable)
        outbox.record_notices(catalog, target, notices, channels, map(str, weeks))
        if not channels.smtp and not channels.webhook:
            say("no notification: neither LAKEHOUSE_SMTP_HOST nor LAKEHOUSE_WEBHOOK_URL is set")
        # Another root has other readers.
        owed = [entry for entry in outbox.entries(catalog) if _is_owed(entry) and outbox.is_of(target, entry)]
        versions = [entry for entry in owed if entry.kind == outbox.VERSION]
        by_key = _announcements(target, versions, _shown(env, say), unreadable)
        owed = [entry for entry in owed if entry.kind != outbox.VERSION or entry.idempotency_key in by_key]
        return [*unreadable, *_deliver(catalog, channels, target, owed, by_key, say, lease.require)]


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
        require: Callable[[], None] | None = None
        with ExitStack() as stack:
            try:
                stack.enter_context(locked("notify"))
                catalog = load_catalog(settings)
                lease = stack.enter_context(leased(catalog, "notify", "notify"))
                outbox.add(catalog, failures)
                failures = [
                    entry for entry in outbox.entries(catalog) if entry.kind == outbox.FAILURE and _is_owed(entry)
                ]
                require = lease.require
            except Exception as problem:
                catalog = None
                why = to_user_error(problem, settings).message
                say(f"the failure cannot be noted in {outbox.TABLE.identifier}, and is told all the same: {why}")
            problems = _deliver(catalog, channels, None, failures, {}, say, require)
        if catalog is not None:
            problems += notify(settings, env, catalog, say, notices)
    except Exception as problem:  # whatever it is, it must not take the place of the error
        problems = [to_user_error(problem, settings)]
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
        say(f"figures are left out of messages: {to_user_error(error).message}")
        return {}


def _announcements(
    target: Target, owed: list[Entry], shown: Mapping[str, Shown], unreadable: list[ManifestError]
) -> ByKey:
    """Return what to announce of pending versions of an export root, by their keys; not of withdrawn ones."""
    chosen: dict[str, Manifest] = {}
    before: list[Manifest] = []
    for entry in owed:
        try:
            manifest = read(target, entry.path)
        except ManifestError as error:
            unreadable.append(error)
            continue
        if manifest.withdrawn:
            continue
        chosen[entry.path] = manifest
        week_before = newest(target, manifest.dataset, str(IsoWeek.parse(manifest.week).minus(1)))
        before += [week_before] if week_before else []
    # The versions that are told of come last: of two of a week the later one counts.
    all_of_them = [*before, *chosen.values()]
    return {
        outbox.name_of(target, announcement.manifest.path): announcement
        for announcement in announcements(target, all_of_them, shown)
        if announcement.manifest.path in chosen
    }


def _deliver(
    catalog: Catalog | None,
    channels: Channels,
    target: Target | None,
    owed: list[Entry],
    by_key: ByKey,
    say: Say,
    require: Callable[[], None] | None,
) -> list[UserError]:
    """Send what is owed by mail and webhook. Without a catalog nothing is noted.

    `require` is asked before each message, and raises if another process delivers.
    """
    problems: dict[str, UserError] = {}
    ways: dict[outbox.Channel, Callable[[list[Entry]], Iterator[Message]] | None] = {
        "mail": partial(messages.mails, channels.smtp, target, by_key) if channels.smtp else None,
        "webhook": partial(messages.calls, channels.webhook, by_key) if channels.webhook else None,
    }
    for channel, messages_of in ways.items():
        rows = [entry for entry in owed if getattr(entry, channel) == outbox.OWED]
        if messages_of is None and rows:
            said = f"{len(rows)} messages wait for a {channel} that is no longer configured"
            problems[said] = UserError(said, "Configure it, or drop them by `lakehouse export outbox drop`")
        elif messages_of is not None:
            patience = channels.patience.total_seconds()
            for problem in _send_all(catalog, channel, messages_of(rows), patience, say, require):
                problems[problem.message] = problem
    return list(problems.values())


def _send_all(
    catalog: Catalog | None,
    channel: outbox.Channel,
    waiting: Iterable[Message],
    patience: float,
    say: Say,
    require: Callable[[], None] | None,
) -> Iterator[UserError]:
    """Send messages. One that is refused does not hold up the next, but when the channel is down they can wait."""
    start = time.monotonic()
    for message in waiting:

        def try_once(message: Message = message) -> UserError | None:
            if require:
                require()
            return message.try_once()

        try:
            again = Retrying(
                retry=retry_if_exception_type(TemporaryError),
                wait=_pause,
                stop=stop_before_delay(start + patience - time.monotonic()),
                reraise=True,
            )
            problem = again(try_once)
        except LeaseLostError:
            raise
        except UserError as error:
            if catalog is not None:
                lacking = ", ".join(message.recipients) if message.some_have_it else None
                outbox.note_failure(catalog, message.about, message.attempts, error.message, lacking)
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
    kinds = Counter(entry.kind for entry in about)
    words = {
        outbox.VERSION: "version",
        outbox.WITHDRAWN: "withdrawal",
        outbox.FAILURE: "failed run",
        outbox.NOTICE: "notice",
    }
    return " and ".join(counted(kinds[kind], word) for kind, word in words.items() if kinds[kind])


def _pause(state: RetryCallState) -> float:
    """Return how long to wait: twice as long each time, or longer if the channel said so."""
    error = state.outcome.exception() if state.outcome else None
    asked = error.wait if isinstance(error, TemporaryError) else 0.0
    return max(asked, min(LONGEST_PAUSE_SECONDS, FIRST_PAUSE_SECONDS * 2.0 ** (state.attempt_number - 1)))
