"""The commands for what was landed: verify, maintain, status."""

import random
from datetime import timedelta
from typing import Annotated

import typer

from python_common.catalog.catalog import load_catalog
from python_common.config.settings import from_environment
from python_common.config.variables import seconds
from python_common.errors import UserError
from python_common.failure import to_user_error
from python_common.locks.lease import alone
from python_common.log import log
from python_common.output import AsJson, console, print_json, print_table
from python_common.spark.session import LazySparkSession
from python_ingest.cli.options import MetricsFile, Models, Topics, Wait, prepare
from python_ingest.declare.topics import MODELS_DIR
from python_ingest.maintenance import metrics
from python_ingest.maintenance.maintain import Retention, built_tables, is_landed, maintain_table
from python_ingest.maintenance.status import topic_statuses
from python_ingest.verify.compare import verify_topic
from python_ingest.verify.report import Report, Sample


def verify(
    topics: Topics = None,
    sample: Annotated[float | None, typer.Option(help="Compare bytes of this percentage of the offsets only.")] = None,
    seed: Annotated[int | None, typer.Option(help="Draw the same sample as a run that printed this seed.")] = None,
    decoded: Annotated[
        bool, typer.Option("--decoded", help="Also decode the stored bytes again and compare every column.")
    ] = False,
    as_json: AsJson = False,
    wait: Wait = "30s",
    models: Models = MODELS_DIR,
) -> None:
    """Compare bronze with the broker, record by record, without Spark.

    Every offset up to the last landed one must be there exactly once, with equal bytes, headers and timestamp. With
    --decoded the columns must equal what another decoder makes of these bytes and the registry's schemas.
    Exit code 1 if a topic differs; the first differing offsets are named.
    """
    settings, chosen = prepare(models, topics)
    patience = seconds(wait)
    if sample is not None and not 0 < sample <= 100:
        raise UserError(f"--sample {sample} is not a percentage", "Write it like 5 or 0.1")
    drawn = None if sample is None else Sample(sample, random.randrange(2**32) if seed is None else seed)
    reports = []
    for declaration in chosen:
        try:
            report = verify_topic(settings, declaration, patience, drawn, decoded)
        except Exception as error:  # of one topic; the others are compared all the same
            message = str(to_user_error(error, settings))
            report = Report(declaration.topic, declaration.identifier, sample=drawn, error=message)
        reports.append(report)
        if not as_json:
            console.print("\n  ".join([report.line(), *report.issues, *report.notes]))
    if as_json:
        print_json(reports)
    if not all(report.good for report in reports):
        raise typer.Exit(1)


def maintain(
    topics: Topics = None,
    table: Annotated[list[str] | None, typer.Option(help="Another table, as schema.table; repeatable.")] = None,
    keep_snapshots: Annotated[
        str | None, typer.Option(help="How long, e.g. 7d.", show_default="the table's history.expire properties")
    ] = None,
    keep_orphans: Annotated[str, typer.Option(help="How long files stay that nothing refers to.")] = "3d",
    as_json: AsJson = False,
    models: Models = MODELS_DIR,
) -> None:
    """Merge small files and manifests, expire snapshots, delete orphan files, while others read and write.

    Without names: the tables of declared topics, and those that dbt builds, which are maintained while no weekly job
    runs. Exit code 1 if a table could not be maintained, or not all of its files merged; the others are.
    """
    snapshots = None if keep_snapshots is None else timedelta(seconds=seconds(keep_snapshots))
    retention = Retention(snapshots, timedelta(seconds=seconds(keep_orphans)))
    retention.check()
    settings = from_environment()
    named = table or []
    landed = [declaration.identifier for declaration in prepare(models, topics)[1]] if topics or not named else []
    spark = LazySparkSession(settings)
    done, failed = [], False
    built = [] if topics or named else built_tables(settings)
    for identifier in [*named, *landed, *built]:
        try:
            # A MERGE into a table under compaction is refused, and an erasure deletes orphan files, as those of a
            # compaction are until its commit.
            is_bronze = identifier in landed or (identifier in named and is_landed(load_catalog(settings), identifier))
            name = "maintain" if is_bronze else "weekly"
            with alone(load_catalog(settings), name, "ingest maintain") as lease:
                outcome = maintain_table(settings, spark, identifier, retention, lease.require)
            # A declared topic may not be landed yet; a named table must exist.
            if outcome is None and identifier in named:
                raise UserError(f"There is no table {identifier}", "Name a table as schema.table")
        except Exception as error:  # of one table; the others are maintained all the same
            log.error(to_user_error(error, settings, identifier))
            failed = True
            continue
        done += [outcome] if outcome else []
        failed = failed or (outcome is not None and outcome.left > 0)
        if not as_json:
            console.print(outcome.line() if outcome else f"{identifier}: no table yet")
    spark.stop()
    if as_json:
        print_json(done)
    if failed:
        raise typer.Exit(1)


def status(
    topics: Topics = None,
    as_json: AsJson = False,
    metrics_file: MetricsFile = None,
    wait: Wait = "5s",
    models: Models = MODELS_DIR,
) -> None:
    """Print position, lag and freshness of each topic and the state of its table, without Spark.

    Exit code 1 if a topic cannot be described; the others are shown all the same.
    """
    settings, chosen = prepare(models, topics)
    statuses = list(topic_statuses(settings, chosen, seconds(wait)))
    if metrics_file is not None:
        metrics.write(metrics_file, statuses)
    if as_json:
        print_json(statuses)
    else:
        print_table([*statuses[0].row()], [[*topic.row().values()] for topic in statuses])
        for topic in statuses:
            for remark in topic.remarks():
                console.print(f"note: {topic.topic}: {remark}")
    for topic in statuses:
        if topic.error is not None:
            log.error("%s: %s", topic.topic, topic.error)
    if any(topic.error for topic in statuses):
        raise typer.Exit(1)
