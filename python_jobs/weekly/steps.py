"""The steps of the weekly job.

Each can be run again at any time and then adds nothing, so a killed job is resumed by running it again. Each returns a
few words on what it did. What is wrong with a topic, model or number is an issue, which withholds the datasets
that come from there, and the job goes on.
"""

import random
from concurrent.futures import ThreadPoolExecutor

from python_common.catalog.catalog import load_table
from python_common.errors import Issue, Kind, UserError
from python_common.failure import to_user_error
from python_common.log import log
from python_common.spark.session import LazySparkSession
from python_common.weeks import weeks_label
from python_dbt.run import FIGURES, build_all, invocation, parse, rerun
from python_export.datasets import declared
from python_export.notify import page
from python_export.notify.deliver import notify
from python_export.publishing import late
from python_export.publishing.target import open_target
from python_export.run import Run
from python_ingest.declare.topics import MODELS_DIR, Declaration, read_declarations
from python_ingest.landing.run import Ingester, Options
from python_ingest.maintenance import receipts
from python_ingest.maintenance.status import undecoded_keys
from python_ingest.verify.compare import verify_topic
from python_ingest.verify.report import Report, Sample

# All rows of every topic are counted, and the bytes and decoded columns of so many percent are compared.
SAMPLE_PERCENT = 1.0
WAIT_SECONDS = 30.0
# The model of the checks, and its table.
RECONCILIATION, RECONCILED = "ops_reconciliation", "ops.reconciliation"


def ingest(run: Run) -> str:
    """Land the records of every topic, while dbt reads the project if it has changed."""
    with ThreadPoolExecutor(1) as beside:
        # What is wrong with the project is found again, and reported, by the step that needs it.
        beside.submit(parse, run.project)
        spark = LazySparkSession(run.settings)
        ingester = Ingester(run.settings, spark, Options(wait=WAIT_SECONDS))
        results = ingester.catch_up(read_declarations(MODELS_DIR))
        spark.stop()
    failed = []
    for result in results:
        if result.error:
            reason = f"{result.topic} could not be landed: {result.error.message}"
            failed.append(Issue(reason, object=result.topic, kind="ingest"))
        notes = [*result.notes, *([undecoded_keys(result.key_errors)] if result.key_errors else ())]
        run.exported.warnings += [f"{result.topic}: {note}" for note in notes]
    records, letters = sum(result.records for result in results), sum(result.dead_letters for result in results)
    return _add(run, "ingest", f"{records:,} new records of {len(results)} topics, {letters:,} dead letters", failed)


def verify(run: Run) -> str:
    """Check bronze against the broker."""
    sample = Sample(SAMPLE_PERCENT, random.randrange(2**32))
    checked, differing = [], []
    for declaration in read_declarations(MODELS_DIR):
        try:
            report = _verified(run, declaration, sample)
        except Exception as error:  # of one topic; the others are verified all the same, and it is reported once
            if declaration.topic not in {issue.object for issue in run.issues}:
                why = to_user_error(error, run.settings).message
                reason = f"{declaration.topic} could not be verified: {why}"
                differing.append(Issue(reason, object=declaration.topic, kind="verify"))
            continue
        checked.append(report)
        if not report.good:
            first = report.error or f"{report.issue_count} issues, the first: {report.issues[0]}"
            reason = f"{report.topic} differs from the broker: {first}"
            differing.append(Issue(reason, object=report.topic, kind="verify"))
    rows, records = sum(report.rows for report in checked), sum(report.records for report in checked)
    return _add(run, "verify", f"{rows:,} rows once each, {records:,} byte by byte", differing)


def _verified(run: Run, topic: Declaration, sample: Sample) -> Report:
    """Return the report of a topic. A registry that is away holds no week up: columns are then not compared."""
    try:
        return verify_topic(run.settings, topic, WAIT_SECONDS, sample, decoded=True)
    except UserError as error:
        report = verify_topic(run.settings, topic, WAIT_SECONDS, sample)
        log.warning("%s: columns were not compared with their bytes: %s", topic.topic, error.message)
        return report


def complete(run: Run) -> str:
    """Read how far the topics are, before the build reads them, and find fields that landed without a class."""
    run.exported.warnings += receipts.unfinished(run.catalog)
    parse(run.project)
    chosen = list(declared.load(run.project).values())
    target = open_target(run.settings)
    for week in run.weeks:
        # Before a build that may fail: the week then stays due.
        late.record_due(run.catalog, target, week, [dataset.name for dataset in chosen])
    omitted = run.read_topics(chosen)
    # Before the build, which makes the views that read it.
    run.record(run.weeks)
    return _show(f"{weeks_label(run.weeks)} is over, {len(run.reads)} topics were read", omitted)


def build(run: Run) -> str:
    """Have dbt build and test everything."""
    failed = build_all(run.project, run.weeks, *(["--full-refresh"] if run.full_refresh else ()))
    run.has_views = not failed
    run.checked["build"] = None
    run.builds.add(invocation(run.project))
    exports = {dataset.model for dataset in declared.load(run.project).values()}
    run.add_failed(failed, exports, run.weeks)
    return _show(f"exports hold {weeks_label(run.weeks)}" + ("" if failed else ", all tests passed"), failed)


def reconcile(run: Run) -> str:
    """Check that no row was lost or doubled from topic to export."""
    try:
        if not run.has_views:
            # These read every dataset, so dbt has skipped them; those that are there must add up all the same.
            rerun(run.project, run.weeks, RECONCILIATION, FIGURES)
    except UserError as error:
        unknown = "it is not known whether the numbers add up, and which older weeks have changed"
        run.exported.warnings.append(f"{unknown}: {error.message}")
        return "not possible"
    run.figures = late.figures(run.catalog)
    table = load_table(run.catalog, RECONCILED)
    checks = table.scan().to_arrow().to_pylist() if table else []
    if not checks:
        raise UserError(f"{RECONCILED} is empty", "Run `dbt build`")
    differing = [
        Issue(
            f"{check['check_name']}: not so for {check['subject']}, by {check['difference']} rows",
            object=origin,
            kind="reconcile",
        )
        for check in checks
        if check["difference"]
        for origin in declared.origins_of(run.project.manifest(), check["subject"])
    ]
    outcome = f"{len(differing)} with a difference" if differing else "no difference"
    return _add(run, "reconcile", f"{len(checks)} checks, {outcome}", differing)


def export(run: Run) -> str:
    """Write, verify and publish what nothing is wrong with, and older weeks that late data has changed."""
    run.publish(declared.load(run.project).values(), are_built=True)
    new = [file.manifest.week for file in run.exported.published if not file.unchanged]
    older = sorted(set(new) - {*map(str, run.weeks)})
    changed = f", late data in {', '.join(older)}" if older else ""
    withheld = f", {len(run.exported.withheld)} withheld" if run.exported.withheld else ""
    return f"{len(run.exported.published)} files, {len(new)} new{changed}{withheld}"


def write_report(run: Run) -> str:
    """Write the pages with charts, of the newest week and of those with new versions."""
    return page.write_all(run.settings, run.catalog, run.exported)[-1]


def notify_readers(run: Run) -> str:
    """Deliver the notifications."""
    exported = run.exported
    undelivered = notify(run.settings, run.project.env, run.catalog, exported.notices(), exported.weeks())
    exported.undelivered += undelivered
    return "; ".join(error.message for error in undelivered) or "nothing pending"


def _add(run: Run, kind: Kind, note: str, issues: list[Issue]) -> str:
    """Add what a check of everything has found, which counts for every week, log it, and return the note."""
    run.checked[kind] = None
    run.issues += issues
    return _show(note, issues)


def _show(note: str, issues: list[Issue]) -> str:
    """Log what is wrong, a line each, and return the note."""
    for reason in dict.fromkeys(issue.message for issue in issues):
        log.warning(reason)
    return note


STEPS = {
    "ingest": ingest,
    "verify": verify,
    "complete": complete,
    "build": build,
    "reconcile": reconcile,
    "export": export,
    "report": write_report,
    "notify": notify_readers,
}
