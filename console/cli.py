"""The console command `lakehouse`: a sub-command per part, and the place where errors become lines and exit codes."""

import os
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from console import configuration
from lakehouse import private
from lakehouse.catalog import load_catalog
from lakehouse.environment import environment
from lakehouse.errors import DeadlineError
from lakehouse.failure import as_user_error
from lakehouse.pii import check as pii_check
from lakehouse.pii.cli import app as pii_app
from lakehouse.settings import from_environment
from local_stack.cli import app as stack_app
from python_export.cli.run import app as export_app
from python_ingest.cli.landing import app as ingest_app
from spark_server import java
from weekly_job.cli import app as weekly_app

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Kafka topics in Avro become weekly, deduplicated, PII-masked CSV files.",
)
app.add_typer(stack_app, name="stack")
app.add_typer(ingest_app, name="ingest")
app.add_typer(export_app, name="export")
app.add_typer(weekly_app, name="weekly")
app.add_typer(pii_app, name="pii")

check_app = typer.Typer(no_args_is_help=True, help="Checks that need no running stack.")
app.add_typer(check_app, name="check")


@check_app.command(name="java")
def check_java() -> None:
    """Say which Java will run Spark, or what is wrong with it."""
    typer.echo(f"java: {java.executable()}")


@check_app.command(name="pii")
def check_pii(
    static: Annotated[bool, typer.Option(help="Check the project alone, not what has landed in a catalog.")] = False,
    target: Annotated[
        Path | None, typer.Option(help="Check the SQL that a dbt build ran, from its target directory.")
    ] = None,
) -> None:
    """Say whether every field has a PII class, and prove that none leaves the restricted layers without its mask."""
    catalog = None if static else load_catalog(from_environment())
    typer.echo(f"pii: {pii_check.check(catalog, target)} models followed, no leak")


def main() -> None:
    """Run the command line; an error of any kind ends it with one line on stderr and exit code 1."""
    private.restrict()
    try:
        if "--help" not in sys.argv:
            configuration.refuse_misspelled(environment())
        app()
    except Exception as error:  # no traceback: it could quote a record, and says nothing to the one who reads it
        said = as_user_error(error)
        Console(stderr=True, highlight=False, soft_wrap=True).print(f"error: {said}", markup=False)
        if isinstance(error, DeadlineError):
            # A thread that still waits for what hangs would keep the process from ending.
            sys.stdout.flush()
            os._exit(1)
        sys.exit(1)
