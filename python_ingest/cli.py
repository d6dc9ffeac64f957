"""`lakehouse ingest`: land the declared topics in bronze, and check what was landed."""

import json
import os
import random
import re
import time
import uuid
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from lakehouse import settings as environment
from lakehouse.catalog import load_catalog
from lakehouse.errors import UserError
from lakehouse.settings import Settings
from python_ingest import dead_letters as letters
from python_ingest import decode, tables
from python_ingest import reproduce as reproducing
from python_ingest import topics as declared
from python_ingest.batch import Lander
from python_ingest.broker import Broker
from python_ingest.evolve import TopicSchemas
from python_ingest.plan_schema import plan_of_file, plans_of_newest
from python_ingest.registry import Registry
from python_ingest.report import ConsoleReporter, columns, summary
from python_ingest.run import Ingester, Options
from python_ingest.session import QuietSpark
from python_ingest.topics import Declaration
from python_ingest.verify import Report, Sample, verify_topic

app = typer.Typer(no_args_is_help=True, help="Kafka topics into Iceberg bronze tables, exactly once.")
console = Console(highlight=False, soft_wrap=True)
errors = Console(stderr=True, highlight=False, soft_wrap=True)

Topics = Annotated[list[str] | None, typer.Argument(help="Topic names; without any, every declared topic.")]
Topic = Annotated[str, typer.Argument(help="A topic's name.")]
Models = Annotated[
    Path, typer.Option(help="Where the dbt source files are, that declare the topics.", show_default="models/")
]
Wait = Annotated[str, typer.Option(help="How long to wait for a broker or registry that does not answer.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]


@app.command()
def run(
    topics: Topics = None,
    max_records: Annotated[int, typer.Option(min=1, help="The most records of one topic in one batch.")] = 1_000_000,
    follow: Annotated[bool, typer.Option(help="Go on until stopped, instead of ending.")] = False,
    every: Annotated[str, typer.Option(help="With --follow: the pause between runs.")] = "30s",
    until: Annotated[
        datetime | None, typer.Option(help="Land only what is stamped before this moment (UTC), per partition.")
    ] = None,
    from_earliest: Annotated[
        bool, typer.Option(help="Also land what the broker has and the table lacks before its position.")
    ] = False,
    accept_gap: Annotated[
        bool, typer.Option(help="Go on behind records that the broker deleted before they were landed.")
    ] = False,
    wait: Wait = "30s",
    models: Models = declared.MODELS_DIR,
) -> None:
    """Land everything the broker has, batch by batch; then say what was landed.

    Exit code 1 if a topic could not be landed; the others are landed all the same.
    """
    pause, patience = seconds(every), seconds(wait)
    moment = until.replace(tzinfo=UTC) if until else None
    options = Options(max_records, patience, moment, from_earliest, accept_gap)
    settings, chosen = _prepare(models, topics)
    try:
        failed = _run(settings, chosen, options, pause if follow else None)
    except KeyboardInterrupt:
        # A thread may sit in a bounded wait, and no cut can harm the tables: do not wait for it.
        os._exit(130)
    if failed:
        raise typer.Exit(1)


@app.command()
def verify(
    topics: Topics = None,
    sample: Annotated[float | None, typer.Option(help="Compare bytes of this percentage of the offsets only.")] = None,
    seed: Annotated[int | None, typer.Option(help="Draw the same sample as a run that printed this seed.")] = None,
    as_json: AsJson = False,
    wait: Wait = "30s",
    models: Models = declared.MODELS_DIR,
) -> None:
    """Compare bronze with the broker, record by record, without Spark.

    Every offset up to the last landed one has to be there exactly once, with equal bytes, headers and timestamp.
    Exit code 1 if a topic differs; the first differing offsets are named.
    """
    settings, chosen = _prepare(models, topics)
    patience = seconds(wait)
    if sample is not None and not 0 < sample <= 100:
        raise UserError(f"--sample {sample} is not a percentage", "Write it like 5 or 0.1")
    drawn = None if sample is None else Sample(sample, random.randrange(2**32) if seed is None else seed)
    reports = []
    for declaration in chosen:
        try:
            report = verify_topic(settings, declaration, patience, drawn)
        except UserError as error:
            report = Report(declaration.topic, declaration.identifier, sample=drawn, error=str(error))
        reports.append(report)
        if not as_json:
            console.print("\n  ".join([report.line(), *report.problems, *report.notes]), markup=False)
    if as_json:
        print_json([asdict(report) for report in reports])
    if not all(report.good for report in reports):
        raise typer.Exit(1)


@app.command()
def dead_letters(
    topic: Topic,
    show_raw: Annotated[bool, typer.Option("--show-raw", help="List them with key and value in hexadecimal.")] = False,
    limit: Annotated[int, typer.Option(min=1, help="With --show-raw: the most records to list.")] = 20,
    as_json: AsJson = False,
    models: Models = declared.MODELS_DIR,
) -> None:
    """Count the records that could not be decoded, by reason and schema id; no payload is shown unless asked for."""
    settings, (declaration,) = _prepare(models, [topic])
    table = tables.existing(load_catalog(settings), declaration)
    found = letters.raw(table, limit) if show_raw else [asdict(each) for each in letters.summary(table)]
    if as_json:
        print_json(found)
    elif not found:
        console.print(f"{topic}: no dead letters")
    elif show_raw:
        for row in found:
            console.print("{kafka_partition}/{kafka_offset}: {decode_error}".format(**row), markup=False)
            console.print("  key {kafka_raw_key}, value {kafka_raw_value}".format(**row), markup=False)
    else:
        console.print(columns(found))


@app.command()
def replay(
    topic: Topic,
    reason: Annotated[str | None, typer.Option(help=f"Only those of a reason: {', '.join(decode.REASONS)}.")] = None,
    as_json: AsJson = False,
    wait: Wait = "30s",
    models: Models = declared.MODELS_DIR,
) -> None:
    """Decode dead letters again, after their schema was registered or the mapping corrected.

    Rows are changed in place and get a new batch number; a second replay changes nothing.
    """
    if reason is not None and reason not in decode.REASONS:
        raise UserError(f"There is no reason '{reason}'", f"Choose from {', '.join(decode.REASONS)}")
    lander, spark = _lander(models, topic, seconds(wait))
    outcome = letters.replay(lander, reason)
    spark.stop()
    if as_json:
        print_json(asdict(outcome))
    else:
        console.print(f"{topic}: {outcome.decoded:,} of {outcome.looked_at:,} dead letters are decoded now")


@app.command()
def reproduce(
    topic: Topic,
    batch: Annotated[int, typer.Option(min=1, help="The batch's number, as in the column ingest_batch.")],
    as_json: AsJson = False,
    wait: Wait = "30s",
    models: Models = declared.MODELS_DIR,
) -> None:
    """Read a batch's offsets from the broker again and compare them with the stored rows, every column of them.

    Exit code 1 if a partition differs.
    """
    lander, spark = _lander(models, topic, seconds(wait))
    proofs = reproducing.reproduce(lander, Broker(lander.settings, lander.wait).describe(topic), batch)
    spark.stop()
    lines = [asdict(proof) | {"equal": proof.equal} for proof in proofs]
    if as_json:
        print_json(lines)
    else:
        console.print(columns(lines))
    if not all(proof.equal for proof in proofs):
        errors.print(
            f"error: {topic}: batch {batch} differs from the topic. `lakehouse ingest verify` names the offsets;"
            " dead letters that can be decoded by now are decoded by `lakehouse ingest replay`."
        )
        raise typer.Exit(1)


@app.command()
def plan_schema(
    topic: Topic,
    schema_file: Annotated[
        Path | None, typer.Option(help="A proposed schema of its values.", show_default="the newest in the registry")
    ] = None,
    as_json: AsJson = False,
    wait: Wait = "30s",
    models: Models = declared.MODELS_DIR,
) -> None:
    """Say what a schema would do to the table, before the first record: columns added, widened, left out.

    Nothing is changed. Without a file: the newest schemas under <topic>-value and, for Avro keys, <topic>-key.
    Exit code 1 if a schema is refused: its records would be dead letters.
    """
    settings, (declaration,) = _prepare(models, [topic])
    table = tables.load(load_catalog(settings), declaration)
    if schema_file is None:
        registry = Registry(settings, seconds(wait))
        plans = plans_of_newest(registry, table, declaration)
    else:
        plans = [plan_of_file(schema_file, table, declaration)]
    if as_json:
        print_json([asdict(plan) for plan in plans])
    for plan in plans if not as_json else ():
        for line in plan.lines():
            console.print(line, markup=False)
    if any(plan.refused for plan in plans):
        raise typer.Exit(1)


def print_json(value: object) -> None:
    """Print a value as JSON on stdout; what JSON does not know is printed as text."""
    typer.echo(json.dumps(value, indent=2, default=str))


def seconds(text: str) -> float:
    """Return the seconds of a duration such as `500ms`, `30s`, `5m` or `1h`.

    Raises:
        UserError: it is none.
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(ms|s|m|h)?", text.strip())
    if not match:
        raise UserError(f"'{text}' is not a duration", "Write it like 500ms, 30s, 5m or 1h")
    return float(match[1]) * {"ms": 0.001, "s": 1, "m": 60, "h": 3600}[match[2] or "s"]


def _prepare(models: Path, topics: list[str] | None) -> tuple[Settings, list[Declaration]]:
    chosen = declared.select(declared.read_declarations(models), topics or ())
    if not chosen:
        raise UserError("No dbt source declares a topic", "Add config.meta.kafka to a source table")
    return environment.from_environment(), chosen


def _lander(models: Path, topic: str, wait: float) -> tuple[Lander, QuietSpark]:
    settings, (declaration,) = _prepare(models, [topic])
    spark = QuietSpark(settings)
    schemas = TopicSchemas(Registry(settings, wait))
    catalog = load_catalog(settings)
    return Lander(settings, spark, catalog, declaration, schemas, str(uuid.uuid4()), wait), spark


def _run(settings: Settings, chosen: list[Declaration], options: Options, pause: float | None) -> bool:
    spark = QuietSpark(settings)
    with ConsoleReporter(console) as reporter:
        ingester = Ingester(settings, spark, options, reporter)
        while True:
            results = ingester.catch_up(chosen)
            for result in results:
                if result.error is not None:
                    errors.print(f"error: {result.error}", markup=False)
            if pause is None:
                break
            time.sleep(pause)
    spark.stop()
    console.print(summary(results))
    return any(result.error for result in results)
