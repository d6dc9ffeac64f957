"""The commands on what is published or held: verify, diff, approve, withdraw, expire."""

import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated

import typer

from python_common.catalog.catalog import load_catalog
from python_common.config.environment import environment
from python_common.config.settings import from_environment
from python_common.config.variables import seconds
from python_common.errors import UserError
from python_common.failure import to_user_error
from python_common.locks.lease import alone
from python_common.log import log
from python_common.output import AsJson, console, print_json, print_table
from python_common.weeks import IsoWeek
from python_export.cli.outcome import AnyWeek, Datasets, Week, end
from python_export.notify import index, outbox, page
from python_export.notify.deliver import notify
from python_export.notify.messages import report_path
from python_export.publishing import hold, late
from python_export.publishing.audit import CheckResult, audit
from python_export.publishing.difference import difference
from python_export.publishing.manifest import Manifest, paths, published, read_all, readable
from python_export.publishing.target import Target, open_target
from python_export.publishing.versions import remove_version, rewrite
from python_export.readiness import decision
from python_export.variables import Channels

MISSING_VERSION = "it was published, and is missing; if it was deleted on purpose, delete its row of ops.export_outbox"
Version = Annotated[str, typer.Option(help="The version, for instance v1.")]


def verify(
    datasets: Datasets = None,
    week: AnyWeek = None,
    rewrite_to: Annotated[
        Path | None, typer.Option(help="Also write each version again, from its snapshot, to this directory.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Verify what is published: bytes, manifests, other formats, and the tables the files were made from.

    With --rewrite-to every byte of a CSV that is written again must be the published one's.

    Exit code 1 if a check of a version, a pointer or the index fails.
    """
    settings = from_environment()
    target, catalog = open_target(settings), load_catalog(settings)
    chosen = paths(target, datasets, week)
    gone = [
        entry.path
        for entry in outbox.missing_versions(catalog, target)
        if (not datasets or entry.dataset in datasets) and (not week or entry.week == week)
    ]
    there = {path.split("/")[0] for path in [*chosen, *gone]}
    missing = sorted({*(datasets or ())} - there)
    if missing or not there:
        what = "".join(f" of {text}" for text in (", ".join(missing), week) if text)
        raise UserError(f"Nothing{what} is published under {target.address('')}", "See `lakehouse export list`")
    results = [CheckResult(path, (MISSING_VERSION,)) for path in gone]
    for path in chosen:
        with tempfile.TemporaryDirectory(prefix="lakehouse-verify-") as scratch:
            results.append(audit(target, catalog, path, Path(scratch)))
    if rewrite_to:
        for manifest in readable(target, chosen):
            if manifest.withdrawn:
                continue
            issues: list[str] = []
            try:
                rewrite(catalog, target, manifest, rewrite_to)
            except UserError as error:
                issues.append(error.message)
            results.append(CheckResult(f"{manifest.path} written again", tuple(issues)))
    results += index.audit(target)
    failed = [result for result in results if result.issues]
    if as_json:
        print_json(results)
    else:
        for result in results:
            for issue in result.issues or (result.note or "OK",):
                console.print(f"{result.path}: {issue}")
    if failed:
        named = ", ".join(result.path for result in failed)
        raise UserError(
            f"{len(failed)} of {len(results)} checks failed: {named}",
            "Restore them from a backup; `lakehouse export verify --rewrite-to DIR` writes files again, from snapshots",
        )


def diff(
    week: Week,
    versions: Annotated[str, typer.Option(help="The earlier and the later version, for instance v1..v2.")],
    datasets: Datasets = None,
    limit: Annotated[int, typer.Option(min=0, help="Print at most so many rows of a dataset.")] = 20,
    as_json: AsJson = False,
) -> None:
    """List the rows in which two versions of a week differ: their keys, and the columns that changed."""
    old, dots, new = versions.partition("..")
    if not dots:
        raise typer.BadParameter("--versions are written as v1..v2")
    target = open_target(from_environment())
    differences = {}
    for name, (before, after) in _pairs(target, week, old, new, datasets).items():
        with tempfile.TemporaryDirectory(prefix="lakehouse-diff-") as scratch:
            old_file, new_file = (
                target.fetch(f"{version.path}/{version.file}", Path(scratch)) for version in (before, after)
            )
            differences[name] = difference(before, old_file, after, new_file, Path(scratch), limit)
    if as_json:
        print_json(differences)
        return
    for name, changes in differences.items():
        counts = ", ".join(f"{count:,} {kind}" for kind, count in changes.counts().items())
        by_column = ", ".join(f"{column} in {count:,}" for column, count in changes.columns.items())
        console.print(f"{name} {week}, {old} to {new}: {counts}" + (f": {by_column}" if by_column else ""))
        for kind, key, columns in changes.rows:
            named = ", ".join(f"{column} {value}" for column, value in key.items())
            console.print(f"  {kind} {named}" + (f": {', '.join(columns)}" if columns else ""))


def approve(
    dataset: Annotated[str, typer.Argument(help="The dataset.")],
    week: Week,
    sha256: Annotated[str, typer.Option(help="The first 12 digits of the held file's SHA-256, or all.")],
    reason: Annotated[str, typer.Option(help="Why its figures are right; the manifest has it.")],
) -> None:
    """Approve the content of a week that is held because its figures are far off: the next run publishes it."""
    settings = from_environment()
    target, catalog = open_target(settings), load_catalog(settings)
    approved = hold.approve(catalog, target, dataset, week, sha256, reason)
    decision.drop_issues(catalog, dataset, week)
    console.print(f"{dataset} {week} is approved: {approved.reason}. The next run that exports the week publishes it.")


def withdraw(
    datasets: Annotated[list[str], typer.Argument(help="Names of datasets.")],
    week: Week,
    version: Version,
    reason: Annotated[str, typer.Option(help="Why; the manifest and the notification have it.")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be withdrawn; change nothing.")] = False,
    as_json: AsJson = False,
) -> None:
    """Withdraw a version: delete its files, keep its manifest, and notify readers.

    The newest version that is left becomes the latest, and the reports of this week and the seven after it are written
    again. The same content is not published again; other content is the next version, as for late data.

    Exit code 3: it is withdrawn, and a notification failed.
    """
    env = environment()
    settings = from_environment(env)
    # A wrong channel is an error now, not when the files are deleted.
    Channels.of(env)
    target, catalog = open_target(settings), load_catalog(settings)
    # Again completes a withdrawal.
    chosen = [_version(target, name, week, version, with_withdrawn=True) for name in datasets]
    headings = ("dataset", "week", "version", "rows", "newest left")
    rows = [(one.dataset, one.week, one.version, one.rows, _newest_but(target, one)) for one in chosen]
    if dry_run:
        print_table(headings, rows, as_json)
        return
    with alone(catalog, "weekly", f"export withdraw of {version} of {week}"):
        try:
            page.withdraw(target, [manifest.path for manifest in chosen], reason)
        finally:
            listed = index.write(target)
            try:
                page.write_missing(settings, catalog, listed)
            except Exception as error:  # readers are notified all the same
                missing = f"reports from {week} on are missing until the next `lakehouse export run` or `weekly`"
                log.warning("%s: %s", missing, to_user_error(error, settings))
    print_table(headings, rows, as_json)
    end(notify(settings, env, catalog))


def expire(
    keep: Annotated[str, typer.Option(help="How long after its end a week is retained, for instance 26w.")],
    datasets: Datasets = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="List what would be removed; change nothing.")] = False,
    as_json: AsJson = False,
) -> None:
    """Remove versions and reports of old weeks, and the tags that keep their snapshots; not a dataset's newest week.

    A removed week counts as published: it is not due again, and readers are not notified.
    """
    settings = from_environment()
    target, catalog = open_target(settings), load_catalog(settings)
    limit = datetime.now(UTC) - timedelta(seconds=seconds(keep))
    if dry_run:
        _print_paths(_ended_by(limit, paths(target, datasets)), as_json)
        return
    with alone(catalog, "weekly", "export expire"):
        old = _ended_by(limit, paths(target, datasets))
        weeks = {(name, week) for name, week, _ in (path.split("/") for path in old)}
        late.record_figures(catalog, target, weeks, late.figures(catalog), are_expired=True)
        outbox.drop(catalog, [outbox.key_of(target, path) for path in old])
        manifests, unreadable = read_all(target, old)
        left = [path.split("/") for path in paths(target) if path not in manifests]
        # Before the versions: of a week without one nothing would name the report to the next run.
        for week in {week for _, week in weeks} - {week for _, week, _ in left}:
            target.delete(report_path(week))
        for path, manifest in manifests.items():
            remove_version(catalog, target, path, manifest)
            log.info("%s is removed", path)
        published_weeks = {target.address(f"{name}/{week}") for name, week, _ in left}
        hold.drop(catalog, hold.ended_by(catalog, target, limit, datasets or ()) - published_weeks)
        index.write(target)
    _print_paths([*manifests], as_json)
    if unreadable:
        raise UserError(
            ", ".join(error.message for error in unreadable.values()),
            "Restore what is damaged, or delete it; use a newer release for its versions",
        )


def _print_paths(versions: list[str], as_json: bool) -> None:
    rows = ((dataset, week, int(version[1:])) for dataset, week, version in (path.split("/") for path in versions))
    print_table(("dataset", "week", "version"), rows, as_json)


def _newest_but(target: Target, version: Manifest) -> int | None:
    """Return the newest version of a week without that one."""
    versions = reversed(published(target, version.dataset, version.week))
    return next((one.version for one in versions if one.version != version.version), None)


def _ended_by(limit: datetime, versions: list[str]) -> list[str]:
    """Return the versions of weeks that ended by a time, but for the newest week of each dataset."""
    weeks = [path.split("/")[:2] for path in versions]
    newest_weeks = {dataset: week for dataset, week in weeks}
    return [
        path
        for path, (dataset, week) in zip(versions, weeks, strict=True)
        if week != newest_weeks[dataset] and IsoWeek.parse(week).end <= limit
    ]


def _pairs(
    target: Target, week: str, old: str, new: str, names: list[str] | None
) -> dict[str, tuple[Manifest, Manifest]]:
    """Return both versions of each dataset; of all datasets only those that have both."""
    has = {(manifest.dataset, f"v{manifest.version}") for manifest in published(target, week=week)}
    chosen = names or sorted({name for name, _ in has if {(name, old), (name, new)} <= has})
    if not chosen:
        raise UserError(f"No dataset has both {old} and {new} of {week}", "See `lakehouse export list`")
    return {name: (_version(target, name, week, old), _version(target, name, week, new)) for name in chosen}


def _version(target: Target, dataset: str, week: str, version: str, with_withdrawn: bool = False) -> Manifest:
    for manifest in published(target, dataset, week, with_withdrawn):
        if version == f"v{manifest.version}":
            return manifest
    raise UserError(f"There is no {version} of {dataset} {week}", "See `lakehouse export list`")
