"""`lakehouse ingest`: land the declared topics in bronze, and check what was landed."""

import json
import os
import re
import time
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from lakehouse import settings as environment
from lakehouse.errors import UserError
from lakehouse.settings import Settings
from python_ingest import topics as declared
from python_ingest.report import ConsoleReporter, summary
from python_ingest.run import Ingester, Options
from python_ingest.session import QuietSpark
from python_ingest.topics import Declaration
from python_ingest.verify import verify_topic

app = typer.Typer(no_args_is_help=True, help="Kafka topics into Iceberg bronze tables, exactly once.")
console = Console(highlight=False, soft_wrap=True)
errors = Console(stderr=True, highlight=False, soft_wrap=True)

Topics = Annotated[list[str] | None, typer.Argument(help="Topic names; without any, every declared topic.")]
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
    wait: Wait = "30s",
    models: Models = declared.MODELS_DIR,
) -> None:
    """Land everything the broker has, batch by batch; then say what was landed.

    Exit code 1 if a topic could not be landed; the others are landed all the same.
    """
    pause, patience = seconds(every), seconds(wait)
    settings, chosen = _prepare(models, topics)
    try:
        failed = _run(settings, chosen, max_records, patience, pause if follow else None)
    except KeyboardInterrupt:
        # A thread may sit in a bounded wait, and no cut can harm the tables: do not wait for it.
        os._exit(130)
    if failed:
        raise typer.Exit(1)


@app.command()
def verify(
    topics: Topics = None, as_json: AsJson = False, wait: Wait = "30s", models: Models = declared.MODELS_DIR
) -> None:
    """Compare bronze with the broker, record by record, without Spark.

    Every offset up to the last landed one has to be there exactly once, with equal raw bytes.
    Exit code 1 if a topic differs; the first differing offsets are named.
    """
    settings, chosen = _prepare(models, topics)
    patience = seconds(wait)
    reports = [verify_topic(settings, declaration, patience) for declaration in chosen]
    if as_json:
        print_json([asdict(report) for report in reports])
    for report in reports if not as_json else ():
        console.print(report.line())
        for problem in report.problems:
            console.print(f"  {problem}")
    if any(report.problems for report in reports):
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


def _run(
    settings: Settings,
    chosen: list[Declaration],
    max_records: int,
    wait: float,
    pause: float | None,
) -> bool:
    spark = QuietSpark(settings)
    with ConsoleReporter(console) as reporter:
        ingester = Ingester(settings, spark, Options(max_records, wait), reporter)
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
