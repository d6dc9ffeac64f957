"""`lakehouse export`: the weekly CSV files."""

from datetime import UTC, datetime
from typing import Annotated

import typer

from python_common.catalog.catalog import load_catalog, require_views
from python_common.config.environment import PROJECT_ROOT, environment
from python_common.config.settings import from_environment
from python_common.deadline import step_within
from python_common.errors import UserError
from python_common.locks.lease import alone
from python_common.log import log
from python_common.output import AsJson, console, print_json, print_table
from python_common.spark import thrift
from python_common.weeks import IsoWeek, weeks_label
from python_dbt.project import Project
from python_dbt.run import parse
from python_export.cli import outcome
from python_export.cli.versions import approve, diff, expire, verify, withdraw
from python_export.datasets import declared
from python_export.notify import page
from python_export.notify.deliver import notify, only_run
from python_export.notify.exported import Exported
from python_export.publishing import hold, late
from python_export.publishing.manifest import Manifest, paths, read_all
from python_export.publishing.target import open_target
from python_export.readiness import decision
from python_export.readiness.completeness import last_week
from python_export.run import Run
from python_export.variables import Channels

app = typer.Typer(no_args_is_help=True)


@app.command()
def run(
    datasets: outcome.Datasets = None,
    week: outcome.OneWeek = None,
    weeks: outcome.SeveralWeeks = None,
    changed: Annotated[bool, typer.Option(help="The due weeks: never published, or changed by late data.")] = False,
    restate: Annotated[
        bool, typer.Option("--restate", help="Publish another version of datasets that have one per week.")
    ] = False,
    reason: Annotated[str | None, typer.Option(help="Why it is restated; the manifest records it.")] = None,
    build: Annotated[
        bool, typer.Option(help="Have dbt build and test the export tables first; otherwise they must hold the week.")
    ] = True,
    dry_run: outcome.DryRun = False,
    metrics_file: outcome.MetricsFile = None,
    as_json: AsJson = False,
) -> None:
    """Export weeks: check that they are complete, build, write, verify, publish, notify.

    Same content is no new version, and is not announced.

    A dataset that may be incomplete or wrong is withheld, by name and with the reason; the others are published.

    A dataset with suppressed groups is published once per week; --restate publishes another version.

    Exit codes: 1 something failed, and an alert is sent, as are the notifications of what was published before; 3
    published, but a notification failed; 4 something failed, and what does not come from it is published.
    """
    if restate != bool(reason) or (restate and not (week and datasets)):
        raise typer.BadParameter("--restate and --reason need each other, a dataset and --week")
    env = environment()
    settings = from_environment(env)
    # A wrong channel is an error now, not when the files are published.
    Channels.of(env)
    for field in ("export_root", "pii_key_file") if build else ("export_root",):
        settings.needed(field)
    if changed and (week or weeks or not build):
        raise typer.BadParameter("--changed finds the weeks itself, by a build")
    newest = last_week(settings, datetime.now(UTC))
    chosen = [] if changed else outcome.chosen_weeks(settings, datetime.now(UTC), week, weeks)
    project = Project(PROJECT_ROOT, env)
    # Without a catalog there is nothing to export, and none is made.
    catalog = load_catalog(settings)
    require_views(catalog, settings)
    parse(project)
    declared.choose(declared.load(project), datasets or ())
    exported = Exported(chosen[-1] if chosen else newest)
    if dry_run:
        outcome.print_preview(Run(settings, catalog, project, exported, chosen), datasets or (), as_json)
        return
    command = f"export run for {weeks_label(chosen) if chosen else 'late data'}"
    with only_run(settings, env, catalog, exported, command) as lease, step_within("export run"):
        Run(settings, catalog, project, exported, chosen, lease.require, restated=reason).export(datasets or (), build)
        outcome.print_summary(exported, as_json)
        for address in page.write_all(settings, catalog, exported):
            log.info("report: %s", address)
    exported.undelivered += notify(settings, env, catalog, exported.notices(), exported.weeks())
    outcome.end_run(exported, metrics_file)


@app.command()
def skip(
    week: outcome.Week,
    reason: Annotated[str, typer.Option(help="Why the week is not published; ops.exported_figures records it.")],
    datasets: outcome.Datasets = None,
) -> None:
    """Skip a week that was never published: it is no longer due."""
    env = environment()
    settings = from_environment(env)
    target, project = open_target(settings), Project(PROJECT_ROOT, env)
    parse(project)
    names = [chosen.name for chosen in declared.choose(declared.load(project), datasets or ())]
    label = IsoWeek.parse(week)
    catalog = load_catalog(settings)
    with alone(catalog, "weekly", "export skip"):
        if there := [name for name in names if paths(target, [name], str(label))]:
            raise UserError(f"{', '.join(there)} {label} is published", "Name the other datasets")
        late.record_due(catalog, target, label, names, reason)
        hold.drop(catalog, {target.address(f"{name}/{label}") for name in names})
    console.print(f"{label} is skipped for {', '.join(names)}")


@app.command("notify")
def notify_readers() -> None:
    """Notify readers of every published version that is still pending, by mail and webhook.

    Exit code 3: a notification failed; run it again.
    """
    env = environment()
    settings = from_environment(env)
    outcome.end(notify(settings, env, load_catalog(settings)))


@app.command("list")
def list_versions(
    datasets: outcome.Datasets = None,
    week: outcome.AnyWeek = None,
    as_json: AsJson = False,
) -> None:
    """List every published version, the newest of a week last."""
    target = open_target(from_environment())
    by_path, unreadable = read_all(target, paths(target, datasets, week))
    manifests = [*by_path.values()]
    for unknown in {*(datasets or ())} - {manifest.dataset for manifest in manifests} if not unreadable else ():
        raise UserError(
            f"Nothing of {unknown}{f' {week}' if week else ''} is published under {target.address('')}",
            "See all with `lakehouse export list`",
        )
    if as_json:
        print_json(manifests)
    else:
        _print_versions(manifests)
    if unreadable:
        errors = [*unreadable.values()]
        raise UserError(
            f"{len(errors)} versions are not in this list: {'; '.join(error.message for error in errors)}",
            errors[0].remedy,
        )


@app.command()
def status(
    datasets: outcome.Datasets = None,
    week: outcome.OneWeek = None,
    as_json: AsJson = False,
) -> None:
    """Print the rows of ops.export_weeks: what is decided of a week, and why it is withheld, skipped or held."""
    settings = from_environment()
    label = IsoWeek.parse(week) if week else last_week(settings, datetime.now(UTC))
    with thrift.connect(settings) as cursor:
        rows = [row for row in decision.verdicts(cursor, label) if not datasets or row[0] in datasets]
    missing = sorted({*(datasets or ())} - {row[0] for row in rows})
    if missing or not rows:
        what = f"{', '.join(missing)} {label}" if missing else label
        raise UserError(f"ops.export_weeks has no row of {what}", "Name a dataset and a week that is over")
    print_table(("dataset", "week", "verdict", "version", "why", "export root"), rows, as_json)


def _print_versions(manifests: list[Manifest]) -> None:
    superseded = {
        (manifest.dataset, manifest.week, manifest.supersedes): f"v{manifest.version}" for manifest in manifests
    }
    rows = []
    for manifest in manifests:
        by = superseded.get((manifest.dataset, manifest.week, manifest.version), "")
        by += f"{', ' if by else ''}withdrawn {manifest.withdrawn.on}" if manifest.withdrawn else ""
        published = manifest.created_at[:16].replace("T", " ")
        rows.append((manifest.dataset, manifest.week, f"v{manifest.version}", manifest.rows, published, by))
    print_table(("dataset", "week", "version", "rows", "published", "superseded by"), rows)


for command in (verify, diff, approve, withdraw, expire):
    app.command()(command)
