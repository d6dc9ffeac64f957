"""`lakehouse ingest`: land the declared topics in bronze, and check what was landed."""

import os
from dataclasses import asdict
from datetime import UTC, datetime
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from threading import Thread
from typing import Annotated

import typer

from python_common.catalog.catalog import load_catalog, load_table
from python_common.catalog.commits import until_committed
from python_common.config.settings import Settings
from python_common.config.variables import seconds
from python_common.errors import UserError
from python_common.failure import to_user_error
from python_common.locks.lease import alone
from python_common.log import log
from python_common.output import AsJson, console, print_json, print_table
from python_common.spark.session import LazySparkSession, log_file
from python_ingest.bronze import tables, topic_identity
from python_ingest.cli.maintenance import maintain, status, verify
from python_ingest.cli.options import MetricsFile, Models, Topic, Topics, Wait, prepare
from python_ingest.declare.topics import MODELS_DIR, Declaration
from python_ingest.kafka.admin import Broker
from python_ingest.kafka.registry import Registry
from python_ingest.landing import decode
from python_ingest.landing.batch import BatchWriter
from python_ingest.landing.follow import follow_topics, stopped_by_signals
from python_ingest.landing.run import TOPICS_AT_ONCE, Ingester, Options, TopicResult
from python_ingest.landing.schema_plan import plan_of_file, plans_of_newest
from python_ingest.maintenance import metrics, replay
from python_ingest.maintenance.status import topic_statuses, undecoded_keys

app = typer.Typer(no_args_is_help=True)
# By name: models are above the ingester.
DOWNSTREAM = "python_dev.downstream"


@app.command()
def run(
    topics: Topics = None,
    max_records: Annotated[int, typer.Option(min=1, help="The most records of one topic in one batch.")] = 1_000_000,
    follow: Annotated[bool, typer.Option(help="Go on until stopped, instead of ending.")] = False,
    every: Annotated[str, typer.Option(help="With --follow: how often each topic gets a batch.")] = "30s",
    topics_at_once: Annotated[
        int, typer.Option(min=1, help="How many topics are landed at the same time.")
    ] = TOPICS_AT_ONCE,
    until: Annotated[
        datetime | None, typer.Option(help="Land only what is stamped before this moment (UTC), per partition.")
    ] = None,
    from_earliest: Annotated[
        bool, typer.Option(help="Also land what the broker has and the table lacks before its position.")
    ] = False,
    accept_gap: Annotated[
        bool, typer.Option(help="Go on behind records that the broker deleted, or whose checksum in its log is wrong.")
    ] = False,
    metrics_file: MetricsFile = None,
    as_json: AsJson = False,
    wait: Wait = "30s",
    models: Models = MODELS_DIR,
) -> None:
    """Land what the broker has at this moment, batch by batch, and print a summary.

    With --follow each topic gets a batch at an interval, and its next one at once if more is waiting; Ctrl-C or SIGTERM
    ends it after the batches in hand, with exit code 0.
    Exit code 1 if a topic could not be landed, 4 if more of a topic's records are dead letters than its declaration
    allows; the others are landed all the same.
    """
    pause, patience = seconds(every), seconds(wait)
    moment = until.replace(tzinfo=UTC) if until else None
    options = Options(max_records, patience, moment, from_earliest, accept_gap, topics_at_once)
    settings, chosen = prepare(models, topics)
    try:
        exit_code = _run(settings, chosen, options, pause if follow else None, metrics_file, as_json)
    except KeyboardInterrupt:
        # Not waiting for threads in a bounded wait: a kill harms no table.
        os._exit(130)
    if exit_code:
        raise typer.Exit(exit_code)


@app.command()
def dead_letters(
    topic: Topic,
    show_raw: Annotated[bool, typer.Option("--show-raw", help="List them with key and value in hexadecimal.")] = False,
    limit: Annotated[int, typer.Option(min=1, help="With --show-raw: the most records to list.")] = 20,
    as_json: AsJson = False,
    models: Models = MODELS_DIR,
) -> None:
    """Count the values and keys that could not be decoded, by reason and schema id.

    No payload is shown unless asked for.
    """
    settings, (declaration,) = prepare(models, [topic])
    table = tables.existing(load_catalog(settings), declaration)
    rows = replay.raw(table, limit) if show_raw else [vars(counted) for counted in replay.summary(table)]
    if as_json:
        print_json(rows)
    elif not rows:
        console.print(f"{topic}: no dead letters")
    elif show_raw:
        for row in rows:
            errors_of_row = [row["decode_error"], row["key_error"] and f"key: {row['key_error']}"]
            generation = f"{row['kafka_generation']}:" if row.get("kafka_generation") else ""
            # As `lakehouse erase --offset` takes it.
            record = f"{topic}:{generation}{row['kafka_partition']}:{row['kafka_offset']}"
            console.print(f"{record}: {', '.join(filter(None, errors_of_row))}")
            console.print("  key {kafka_raw_key}, value {kafka_raw_value}".format(**row))
    else:
        print_table([name.replace("_", " ") for name in rows[0]], [[*row.values()] for row in rows])


@app.command("replay")
def replay_letters(
    topic: Topic,
    reason: Annotated[str | None, typer.Option(help=f"Only those of a reason: {', '.join(decode.REASONS)}.")] = None,
    as_json: AsJson = False,
    wait: Wait = "30s",
    models: Models = MODELS_DIR,
) -> None:
    """Decode dead letters and undecoded keys again, after their schema was registered or the declaration corrected.

    Rows are changed in place and get a new batch number; a second replay changes nothing.
    """
    if reason is not None and reason not in decode.REASONS:
        raise UserError(f"There is no reason '{reason}'", f"Choose from {', '.join(decode.REASONS)}")
    settings, (declaration,) = prepare(models, [topic])
    spark = LazySparkSession(settings)
    batch_writer = BatchWriter(settings, spark, declaration, seconds(wait))
    with alone(load_catalog(settings), "maintain", "ingest replay"):
        outcome = replay.replay(batch_writer, reason)
    spark.stop()
    if as_json:
        print_json(outcome)
    else:
        console.print(f"{topic}: {outcome.decoded:,} of {outcome.looked_at:,} dead letters are decoded now")


@app.command()
def rebind(
    topic: Topic,
    start: Annotated[str, typer.Option("--from", help="Where to begin: earliest, latest, or a moment (UTC).")],
    wait: Wait = "30s",
    models: Models = MODELS_DIR,
) -> None:
    """Land a topic that was recreated, or moved to another cluster, in the same table, as its next generation.

    Rows stay, and the offsets of the new topic are separate from theirs. A topic that was copied with its records has
    them twice with --from earliest: harmless where records have a business key, wrong where each record counts.
    """
    settings, (declaration,) = prepare(models, [topic])
    catalog = load_catalog(settings)
    tables.existing(catalog, declaration)
    broker = Broker(settings, seconds(wait))
    state = broker.describe(topic)
    offsets = {"earliest": state.begin, "latest": state.end}.get(start)
    if offsets is None:
        try:
            moment = datetime.fromisoformat(start)
        except ValueError:
            raise UserError(f"--from {start} is not a time", "Write earliest, latest or 2026-11-09T10:00:00") from None
        offsets = broker.offsets_at(state, moment if moment.tzinfo else moment.replace(tzinfo=UTC))
    generation = until_committed(
        lambda: topic_identity.rebind(tables.prepared(catalog, declaration), declaration, state, offsets),
        f"{declaration.identifier} was changed by others",
        "Run the command again",
    )
    console.print(f"{topic}: {declaration.identifier} has generation {generation}; run `lakehouse ingest run {topic}`")


@app.command()
def plan_schema(
    topic: Topic,
    schema_file: Annotated[
        Path | None, typer.Option(help="A proposed schema of its values.", show_default="the newest in the registry")
    ] = None,
    downstream: Annotated[
        bool, typer.Option("--downstream", help="Also print which classes, staging, models and weekly files change.")
    ] = False,
    as_json: AsJson = False,
    wait: Wait = "30s",
    models: Models = MODELS_DIR,
) -> None:
    """Print how a schema would change the table, before the first record: columns added, widened, omitted.

    Nothing is changed. Without a file: the newest schemas under <topic>-value and, for Avro keys, <topic>-key.
    Exit code 1 if a schema is refused, whose records would be dead letters; 11 if --downstream finds a column of a
    weekly file without a value, 10 if it finds that anything else that is read changes, or a new field without a class.
    """
    if downstream and not find_spec(DOWNSTREAM):
        raise UserError("--downstream needs the dbt project", "Run it in a checkout after `make setup`")
    settings, (declaration,) = prepare(models, [topic])
    table = load_table(load_catalog(settings), declaration.identifier)
    registry = Registry(settings, seconds(wait))
    if schema_file is None:
        plans = plans_of_newest(registry, table, declaration)
    else:
        plans = [plan_of_file(schema_file, table, declaration, registry)]
    reached = import_module(DOWNSTREAM).downstream(plans) if downstream else [[]] * len(plans)
    if as_json:
        print_json([asdict(plan) | {"downstream": ends} for plan, ends in zip(plans, reached, strict=True)])
    for plan, ends in zip(plans, reached, strict=True) if not as_json else ():
        for line in (*plan.lines(), *(line for end in ends for line in end.lines())):
            console.print(line)
    exit_code = max((end.exit_code for ends in reached for end in ends), default=0)
    if exit_code or any(plan.refused for plan in plans):
        raise typer.Exit(1 if any(plan.refused for plan in plans) else exit_code)


def _run(
    settings: Settings,
    chosen: list[Declaration],
    options: Options,
    pause: float | None,
    metrics_file: Path | None,
    as_json: bool,
) -> int:
    spark = LazySparkSession(settings)
    ingester = Ingester(settings, spark, options, after_turn=replay.Recovery())

    def report(results: list[TopicResult]) -> None:
        is_java_lost = spark.gone()
        for result in results:
            if result.error is not None:
                if is_java_lost:
                    result.error = _lost_java(result.topic)
                log.error(result.error)
            if result.over_limit:
                log.warning(
                    f"{result.topic}: {result.dead_letters:,} of {result.records:,} records landed are dead letters,"
                    f" more than max_dead_letters allows. `lakehouse ingest dead-letters {result.topic}` lists why."
                )
        # A process cannot start a second JVM.
        if is_java_lost and pause is not None and not ingester.stopping.is_set():
            raise UserError("Spark's Java process has ended", f"See {log_file()}, and run it again: nothing is lost")

    def write_metrics() -> None:
        while metrics_file is not None:
            try:
                metrics.write(metrics_file, list(topic_statuses(settings, chosen, options.wait)))
            except Exception as error:  # no reason to stop landing
                log.error(to_user_error(error, settings, f"{metrics_file} was not written"))
            if pause is None or ingester.stopping.wait(pause):
                return

    if pause is None:
        results = ingester.catch_up(chosen)
        report(results)
        write_metrics()
    else:
        # In a thread: a broker that does not answer must not delay batches.
        Thread(target=write_metrics, daemon=True).start()
        with stopped_by_signals(ingester.stopping):
            results = follow_topics(ingester, chosen, pause, lambda result: report([result]))
    spark.stop()
    if as_json:
        print_json(results)
    else:
        _print_summary(results)
    for result in results:
        for note in [*result.notes, *([undecoded_keys(result.key_errors)] if result.key_errors else ())]:
            log.warning("%s: %s", result.topic, note)
    if pause is not None:
        return 0
    return 1 if any(result.error for result in results) else 4 if any(result.over_limit for result in results) else 0


def _lost_java(topic: str) -> UserError:
    return UserError(
        f"{topic}: Spark's Java process ended before this topic had landed, for instance for its memory",
        f"Run `lakehouse ingest run {topic}`: nothing is lost. If it ends again, raise spark.driver.memory in the file"
        f" of LAKEHOUSE_SPARK_CONF, or lower --max-records; see {log_file()}",
    )


def _print_summary(results: list[TopicResult]) -> None:
    headings = ("topic", "records", "dead letters", "batches", "seconds", "records/s", "lag")
    rows = [
        (
            result.topic,
            result.records,
            result.dead_letters,
            result.batches,
            f"{result.seconds:.1f}",
            round(result.records / result.seconds) if result.records else None,
            "unknown" if result.lag is None else result.lag,
        )
        for result in results
    ]
    print_table(headings, rows)


# Last, so that the help begins with landing.
for command in (verify, maintain, status):
    app.command()(command)
