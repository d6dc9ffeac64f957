"""The steps of the weekly job. Each can be run again at any time and then adds nothing, so a killed job is resumed by
running it again; each returns in a few words what it did."""

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from pyiceberg.catalog import Catalog

from lakehouse import thrift
from lakehouse.catalog import load_table
from lakehouse.errors import UserError
from lakehouse.pii.check import require_classified
from lakehouse.settings import Settings
from lakehouse.weeks import IsoWeek
from python_export import build as dbt
from python_export import completeness, datasets, report
from python_export.datasets import Project
from python_export.notify import notify
from python_export.publish import Published
from python_export.run import run as run_export
from python_ingest.commit import Landed
from python_ingest.run import Ingester, Options
from python_ingest.session import QuietSpark
from python_ingest.topics import MODELS_DIR, read_declarations
from python_ingest.verify import Sample, verify_topic

# Of every topic all rows are counted, and the bytes of so many percent are compared.
SAMPLE_PERCENT = 1.0
WAIT_SECONDS = 30.0


@dataclass
class Job:
    """What the steps of one run share. `say` takes a line for a person."""

    settings: Settings
    env: Mapping[str, str] = field(repr=False)
    project: Project
    week: IsoWeek
    catalog: Catalog
    say: Callable[[str], None]
    published: list[Published] = field(default_factory=list)
    not_told: list[UserError] = field(default_factory=list)


@dataclass(frozen=True)
class _Notes:
    """Tells of an ingester's run only what is out of the ordinary."""

    say: Callable[[str], None]

    def waiting(self, topic: str, offsets_left: int) -> None: ...

    def landed(self, topic: str, what: Landed) -> None: ...

    def note(self, topic: str, text: str) -> None:
        self.say(f"{topic}: {text}")


def ingest(job: Job) -> str:
    """Land what the broker has of every topic."""
    spark = QuietSpark(job.settings)
    ingester = Ingester(job.settings, spark, Options(wait=WAIT_SECONDS), _Notes(job.say))
    results = ingester.catch_up(read_declarations(MODELS_DIR))
    spark.stop()
    _require("could not be landed", [f"{one.topic}: {one.error.message}" for one in results if one.error])
    letters = sum(one.dead_letters for one in results)
    return f"{sum(one.records for one in results):,} new records of {len(results)} topics, {letters:,} dead letters"


def verify(job: Job) -> str:
    """Check bronze against the broker."""
    sample = Sample(SAMPLE_PERCENT, random.randrange(2**32))
    checked = [verify_topic(job.settings, one, WAIT_SECONDS, sample) for one in read_declarations(MODELS_DIR)]
    _require("differ from the broker", [f"{one.topic}: {'; '.join(one.problems)}" for one in checked if not one.good])
    return f"{sum(one.rows for one in checked):,} rows once each, {sum(one.records for one in checked):,} byte by byte"


def complete(job: Job) -> str:
    """See that every topic has passed the week's end, and that nothing landed that no mask is known for."""
    dbt.parse(job.project)
    chosen = list(datasets.load(job.project).values())
    with thrift.connect(job.settings) as cursor:
        completeness.require_complete(job.settings, cursor, job.catalog, chosen, job.week, datetime.now(UTC))
    require_classified(job.project.manifest(), job.catalog)
    return f"{job.week} is over, and no topic is behind"


def build(job: Job) -> str:
    """Have dbt build and test everything."""
    dbt.build_all(job.project, job.week)
    return f"exports hold {job.week}, all tests passed"


def reconcile(job: Job) -> str:
    """See that nothing was lost or doubled from topic to export."""
    table = load_table(job.catalog, "ops.ops_reconciliation")
    checks = table.scan().to_arrow().to_pylist() if table else []
    if not checks:
        raise UserError("ops.ops_reconciliation is empty", "Run `dbt build`")
    _require(
        "do not add up",
        [f"{one['check_name']}, {one['subject']}: off by {one['difference']}" for one in checks if one["difference"]],
    )
    return f"{len(checks)} checks, no difference"


def export(job: Job) -> str:
    """Unload, verify and publish."""
    run_export(
        job.settings,
        job.catalog,
        job.project,
        job.week,
        with_build=False,
        say=lambda _: None,
        published=job.published,
    )
    new = sum(not one.unchanged for one in job.published)
    return f"{len(job.published)} files, {new} new"


def write_report(job: Job) -> str:
    """Write the page with charts."""
    return report.write(job.settings, job.week)


def tell(job: Job) -> str:
    """Tell the readers."""
    lines: list[str] = []
    job.not_told = notify(job.settings, job.env, job.catalog, lines.append)
    return "; ".join([*lines, *(problem.message for problem in job.not_told)]) or "nothing new"


def _require(what: str, problems: list[str]) -> None:
    if problems:
        raise UserError(
            f"{len(problems)} {what}: {'; '.join(problems)}", "Repair that and run `lakehouse weekly` again"
        )


STEPS = {
    "ingest": ingest,
    "verify": verify,
    "complete": complete,
    "build": build,
    "reconcile": reconcile,
    "export": export,
    "report": write_report,
    "notify": tell,
}
