"""Delivers what is pending in the outbox, one mail and one webhook call per week, and sends alerts at once.

At least once: a row is marked after its channel has accepted it, so a crash in between sends it again, under the same
idempotency key. A channel that asks to try later is retried for a while; what it did not take stays pending for the
next run. A queue per recipient is the mail server's work. One process delivers at a time, by a lease that it checks
before each message. A message of a process that was suspended between check and sending cannot be recalled, so its
receiver has to know the key.
"""

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime

from pyiceberg.catalog import Catalog
from tenacity import Retrying, retry_if_exception_type, wait_exponential

from python_common.catalog.catalog import load_catalog
from python_common.config.environment import PROJECT_ROOT
from python_common.config.settings import Settings
from python_common.errors import Issue, UserError
from python_common.failure import to_user_error
from python_common.locks.lease import Lease, alone
from python_common.log import log
from python_common.weeks import IsoWeek
from python_dbt.project import Project
from python_export.datasets import declared
from python_export.datasets.report_spec import ReportSpec
from python_export.notify import messages, outbox
from python_export.notify.channels import TemporaryError
from python_export.notify.exported import Exported
from python_export.notify.messages import Announcements, announcement, counted
from python_export.notify.outbox import Entry
from python_export.publishing import late
from python_export.publishing.manifest import Manifest, ManifestError
from python_export.publishing.target import Target, is_announced, open_target
from python_export.variables import Channels

# What an operator runs in SQL, where a channel is gone for good.
REMEDY = "update ops.export_outbox set {0} = 'no channel' where {0} = 'pending'"
# What a server refuses for longer, as by greylisting, is the next run's.
RETRIED_SECONDS = 120.0
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 1.0, 60.0


def notify(
    settings: Settings,
    env: Mapping[str, str],
    catalog: Catalog,
    notices: Iterable[Issue] = (),
    weeks: Iterable[str] = (),
    now: datetime | None = None,
) -> list[UserError]:
    """Write the missing rows of versions, notices and alarms, deliver what is pending, and return what was not.

    `weeks` are those that the notices are complete for. For an export root that is not the announced one nothing is
    written or sent. Alarms are those that are due `now`.

    Raises:
        UserError: a channel is configured wrongly, or the outbox cannot be written.
    """
    channels = Channels.of(env)
    with alone(catalog, "notify", "notify") as lease:
        target = open_target(settings)
        unreadable: list[ManifestError] = []
        errors: list[UserError] = []
        if not is_announced(settings, target, channels.root):
            log.info(f"no notification: {target.address('')} is not {channels.root}, the {channels.variable('root')}")
            return []
        manifests = outbox.record_versions(catalog, target, channels, unreadable)
        outbox.record_notices(catalog, target, notices, channels, weeks)
        report_specs: dict[str, ReportSpec] = {}
        try:
            datasets = declared.load(Project(PROJECT_ROOT, env))
            report_specs = {name: dataset.display for name, dataset in datasets.items()}
            _record_overdue(catalog, target, datasets.keys(), channels, now or datetime.now(UTC))
        # What is pending is sent all the same; a manifest of dbt may be cut off or wrong in any way.
        except Exception as error:
            failed = to_user_error(error)
            if channels.expected_by is None:
                log.warning("messages have no figures: %s", failed.message)
            else:
                errors.append(failed)
        if not channels.smtp and not channels.webhook:
            log.info("no notification: neither LAKEHOUSE_SMTP_HOST nor LAKEHOUSE_WEBHOOK_URL is set")
        # Another root has other readers.
        pending = [entry for entry in outbox.entries(catalog) if entry.is_pending and outbox.belongs_to(target, entry)]
        by_key = _announcements(target, pending, manifests, report_specs)
        pending = [entry for entry in pending if entry.kind != outbox.VERSION or entry.idempotency_key in by_key]
        return [*errors, *unreadable, *_deliver(channels, target, pending, by_key, catalog, lease.require)]


def alert(env: Mapping[str, str], week: IsoWeek, error: UserError, at: datetime | None = None) -> list[UserError]:
    """Send the error of a run to every channel at once, and return what was not delivered.

    Nothing is stored, so it also works where nothing can be written; the run is in the history, and its command must
    not end with exit code 0. `at` is when the run failed, by default now: the same time is the same alert.

    Raises:
        UserError: a channel is configured wrongly.
    """
    channels = Channels.of(env)
    entry = outbox.alert(str(week), str(error), channels, at or datetime.now(UTC))
    return _deliver(channels, None, [entry], {})


@contextmanager
def only_run(
    settings: Settings, env: Mapping[str, str], catalog: Catalog, exported: Exported, command: str
) -> Iterator[Lease]:
    """Hold the lock and the lease of the runs that export.

    A failure, also of the wait for another run, sends an alert as `alerting` does.
    """
    with alerting(settings, env, exported), alone(catalog, "weekly", command) as lease:
        exported.is_alone = True
        yield lease


@contextmanager
def alerting(settings: Settings, env: Mapping[str, str], exported: Exported) -> Iterator[None]:
    """Send an alert if the block fails, then deliver what it had published before; its error is raised as a UserError.

    What cannot be delivered is logged, for the error itself counts more.
    """
    try:
        yield
    except Exception as cause:
        error = to_user_error(cause, settings)
        # The command logs them at the end of a run that succeeds.
        undelivered = [*exported.undelivered]
        try:
            step = f"{exported.step}: " if exported.step else ""
            undelivered += alert(env, exported.week, UserError(f"{step}{error.message}", error.remedy))
            if exported.is_alone:
                undelivered += notify(settings, env, load_catalog(settings), exported.notices())
        except Exception as second:  # any error here must not replace the first one
            undelivered.append(to_user_error(second, settings))
        for undelivered_error in undelivered:
            log.error("not delivered: %s", undelivered_error)
        raise error from (None if isinstance(cause, UserError) else cause)


def _record_overdue(
    catalog: Catalog, target: Target, names: Collection[str], channels: Channels, now: datetime
) -> None:
    """Record an alarm of each due dataset whose last week is not published by LAKEHOUSE_EXPORT_EXPECTED_BY, once.

    It has the reason why the dataset is withheld.
    """
    if channels.expected_by is None:
        return
    # Later in the next week it is still this one that was missed.
    week = IsoWeek.last_complete(now - channels.expected_by)
    # Published weeks are not compared with figures: `names` are as if they had one version per week.
    due, _ = late.weeks_to_export(catalog, target, {}, names, week, at_most=0, once=names)
    reasons = {notice.object: notice.message for notice in outbox.notices(catalog, target, str(week))}
    expected = f"{week.end + channels.expected_by:%Y-%m-%d %H:%M} UTC"
    texts = {
        name: f"{name} {week} was expected by {expected}: {reasons.get(name) or 'no run has published or withheld it'}"
        for name, due_week in due
        if due_week == week
    }
    if texts:
        outbox.record_alarms(catalog, target, str(week), texts, channels)


def _announcements(
    target: Target, pending: list[Entry], manifests: Mapping[str, Manifest], report_specs: Mapping[str, ReportSpec]
) -> Announcements:
    """Return what to announce of pending versions by their keys, compared with the newest ones of the week before."""
    public = {key: manifest for key, manifest in manifests.items() if not manifest.withdrawn}
    newest = {(manifest.dataset, manifest.week): manifest for manifest in public.values()}
    announcements: Announcements = {}
    for key in {entry.idempotency_key for entry in pending} & public.keys():
        week_before = str(IsoWeek.parse(public[key].week).minus(1))
        before = newest.get((public[key].dataset, week_before))
        announcements[key] = announcement(target, public[key], before, report_specs)
    return announcements


def _deliver(
    channels: Channels,
    target: Target | None,
    pending: list[Entry],
    by_key: Announcements,
    catalog: Catalog | None = None,
    require: Callable[[], None] = lambda: None,
) -> list[UserError]:
    """Send rows by every channel, and mark them in the outbox of a catalog; without one nothing is stored.

    A message that fails delays no other. `require` is asked before each, and raises if another process delivers.
    """
    errors: dict[str, UserError] = {}
    until = time.monotonic() + RETRIED_SECONDS
    again = Retrying(
        retry=retry_if_exception_type(TemporaryError),
        wait=wait_exponential(FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS),
        stop=lambda _: time.monotonic() > until,
        reraise=True,
    )
    for channel, field in outbox.CHANNELS.items():
        rows = [entry for entry in pending if getattr(entry, channel) == outbox.PENDING]
        configured = getattr(channels, field)
        if rows and not configured:
            waiting = f"{len(rows)} messages wait for a {channel} that is no longer configured"
            errors[waiting] = UserError(waiting, f"Configure it, or give them up: `{REMEDY.format(channel)}`")
            continue
        for entries, send in messages.SENT_BY[channel](configured, target, by_key, rows):
            require()
            try:
                again(send)
            except UserError as error:
                errors[error.message] = error
                continue
            if catalog:
                outbox.mark_delivered(catalog, entries, channel)
            kinds = Counter(entry.kind for entry in entries)
            what = " and ".join(counted(count, kind) for kind, count in kinds.items())
            log.info("%s: sent %s of %s", channel, what, entries[0].week)
    return list(errors.values())
