"""The steps of the weekly job.

Each can be run again at any time and then adds nothing, so a killed job is resumed by running it again. Each returns a
few words on what it did. What is wrong with a topic, model or number is an issue, which withholds the datasets
that come from there, and the job goes on.
"""

import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from pyiceberg.catalog import Catalog

from python_common.catalog.catalog import load_table
from python_common.config.settings import Settings
from python_common.errors import Issue, UserError
from python_common.failure import to_user_error
from python_common.log import log
from python_common.spark.session import LazySparkSession
from python_common.weeks import IsoWeek, weeks_label
from python_dbt import run as dbt
from python_dbt.project import Project
from python_export.datasets import declared
from python_export.notify import page
from python_export.notify.deliver import notify
from python_export.notify.exported import Exported
from python_export.publishing import late
from python_export.publishing.target import open_target
from python_export.readiness.issues import Readiness
from python_export.run import Exporter
from python_ingest.declare.topics import MODELS_DIR, Declaration, read_declarations
from python_ingest.landing.run import Ingester, Options
from python_ingest.maintenance import receipts
from python_ingest.maintenance.status import undecoded_keys
from python_ingest.verify.compare import verify_topic
from python_ingest.verify.report import Report, Sample

# Of every topic all rows are counted, and the bytes and decoded columns of so many percent are compared.
SAMPLE_PERCENT = 1.0
WAIT_SECONDS = 30.0
# The model of the checks, and its table.
RECONCILIATION, RECONCILED = "ops_reconciliation", "ops.reconciliation"


@dataclass
class Job:
    """What the steps of one run share. `figures` are None if they are not known."""

    settings: Settings
    project: Project
    catalog: Catalog
    weeks: list[IsoWeek]
    exported: Exported
    full_refresh: bool = False
    readiness: Readiness = field(default_factory=Readiness)
    built_all: bool = True
    figures: late.Figures | None = None
    # Raises if another machine may be at work.
    require: Callable[[], None] = lambda: None

    @property
    def label(self) -> str:
        """The weeks that the job must publish."""
        return weeks_label(self.weeks)

    @property
    def exporter(self) -> Exporter:
        """What publishes."""
        return Exporter(self.settings, self.catalog, self.project, self.exported, self.readiness, self.require)

    def add(self, note: str, issues: list[Issue]) -> str:
        """Add what is wrong in every week, log it, and return the note."""
        self.readiness.issues += issues
        return self.show(note, issues)

    def show(self, note: str, issues: list[Issue]) -> str:
        """Log what is wrong, a line each, and return the note."""
        for reason in dict.fromkeys(issue.message for issue in issues):
            log.warning(reason)
        return note


def ingest(job: Job) -> str:
    """Land the records of every topic, while dbt reads the project if it has changed."""
    with ThreadPoolExecutor(1) as beside:
        # What is wrong with the project is found again, and reported, by the step that needs it.
        beside.submit(dbt.parse, job.project)
        spark = LazySparkSession(job.settings)
        ingester = Ingester(job.settings, spark, Options(wait=WAIT_SECONDS))
        results = ingester.catch_up(read_declarations(MODELS_DIR))
        spark.stop()
    failed = []
    for result in results:
        if result.error:
            failed.append(Issue(f"{result.topic} could not be landed: {result.error.message}", object=result.topic))
        notes = [*result.notes, *([undecoded_keys(result.key_errors)] if result.key_errors else ())]
        job.exported.warnings += [f"{result.topic}: {note}" for note in notes]
    records, letters = sum(result.records for result in results), sum(result.dead_letters for result in results)
    return job.add(f"{records:,} new records of {len(results)} topics, {letters:,} dead letters", failed)


def verify(job: Job) -> str:
    """Check bronze against the broker."""
    sample = Sample(SAMPLE_PERCENT, random.randrange(2**32))
    checked, differing = [], []
    for declaration in read_declarations(MODELS_DIR):
        try:
            report = _verified(job, declaration, sample)
        except Exception as error:  # of one topic; the others are verified all the same, and it is reported once
            if declaration.topic not in {issue.object for issue in job.readiness.issues}:
                why = to_user_error(error, job.settings).message
                differing.append(Issue(f"{declaration.topic} could not be verified: {why}", object=declaration.topic))
            continue
        checked.append(report)
        if not report.good:
            first = report.error or f"{report.issue_count} issues, the first: {report.issues[0]}"
            differing.append(Issue(f"{report.topic} differs from the broker: {first}", object=report.topic))
    rows, records = sum(report.rows for report in checked), sum(report.records for report in checked)
    return job.add(f"{rows:,} rows once each, {records:,} byte by byte", differing)


def _verified(job: Job, topic: Declaration, sample: Sample) -> Report:
    """Return the report of a topic. A registry that is away holds no week up: columns are then not compared."""
    try:
        return verify_topic(job.settings, topic, WAIT_SECONDS, sample, decoded=True)
    except UserError as error:
        report = verify_topic(job.settings, topic, WAIT_SECONDS, sample)
        log.warning("%s: columns were not compared with their bytes: %s", topic.topic, error.message)
        return report


def complete(job: Job) -> str:
    """Read how far the topics are, before the build reads them, and find fields that landed without a class."""
    job.exported.warnings += receipts.unfinished(job.catalog)
    dbt.parse(job.project)
    chosen = list(declared.load(job.project).values())
    target = open_target(job.settings)
    for week in job.weeks:
        # Before a build that may fail: the week then stays due.
        late.record_due(job.catalog, target, week, [dataset.name for dataset in chosen])
    omitted = job.exporter.read_topics(chosen)
    # Before the build, which makes the views that read it.
    job.exporter.record(job.weeks)
    return job.show(f"{job.label} is over, {len(job.readiness.reads)} topics were read", omitted)


def build(job: Job) -> str:
    """Have dbt build and test everything."""
    failed = dbt.build_all(job.project, job.weeks, *(["--full-refresh"] if job.full_refresh else ()))
    job.built_all = job.readiness.has_views = not failed
    job.readiness.builds.add(dbt.invocation(job.project))
    exports = {dataset.model for dataset in declared.load(job.project).values()}
    job.readiness.add(failed, exports, job.weeks)
    return job.show(f"exports hold {job.label}" + ("" if failed else ", all tests passed"), failed)


def reconcile(job: Job) -> str:
    """Check that no row was lost or doubled from topic to export."""
    try:
        if not job.built_all:
            # These read every dataset, so dbt has skipped them; those that are there must add up all the same.
            dbt.rerun(job.project, job.weeks, RECONCILIATION, dbt.FIGURES)
    except UserError as error:
        unknown = "it is not known whether the numbers add up, and which older weeks have changed"
        job.exported.warnings.append(f"{unknown}: {error.message}")
        return "not possible"
    job.figures = late.figures(job.catalog)
    table = load_table(job.catalog, RECONCILED)
    checks = table.scan().to_arrow().to_pylist() if table else []
    if not checks:
        raise UserError(f"{RECONCILED} is empty", "Run `dbt build`")
    differing = [
        Issue(f"{check['check_name']}: not so for {check['subject']}, by {check['difference']} rows", object=origin)
        for check in checks
        if check["difference"]
        for origin in declared.origins_of(job.project.manifest(), check["subject"])
    ]
    outcome = f"{len(differing)} with a difference" if differing else "no difference"
    return job.add(f"{len(checks)} checks, {outcome}", differing)


def export(job: Job) -> str:
    """Write, verify and publish what nothing is wrong with, and older weeks that late data has changed."""
    job.exporter.publish_built(job.weeks, job.figures)
    new = [file.manifest.week for file in job.exported.published if not file.unchanged]
    older = sorted(set(new) - {*map(str, job.weeks)})
    changed = f", late data in {', '.join(older)}" if older else ""
    withheld = f", {len(job.exported.withheld)} withheld" if job.exported.withheld else ""
    return f"{len(job.exported.published)} files, {len(new)} new{changed}{withheld}"


def write_report(job: Job) -> str:
    """Write the pages with charts, of the newest week and of those with new versions."""
    return page.write_all(job.settings, job.catalog, job.exported)[-1]


def notify_readers(job: Job) -> str:
    """Deliver the notifications."""
    exported = job.exported
    undelivered = notify(job.settings, job.project.env, job.catalog, exported.notices(), exported.weeks())
    exported.undelivered += undelivered
    return "; ".join(error.message for error in undelivered) or "nothing pending"


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
