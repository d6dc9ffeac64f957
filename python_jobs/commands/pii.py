"""`lakehouse pii`: the masking key."""

from pathlib import Path
from typing import Annotated

import typer

from python_common import pii_key
from python_common.config.settings import from_environment
from python_common.log import log
from python_common.output import console

app = typer.Typer(no_args_is_help=True)


@app.command()
def create(path: Annotated[Path, typer.Argument(help="A file that must not be there yet.")]) -> None:
    """Make the first masking key, and its copy next to it. `lakehouse stack up` does so by itself."""
    pii_key.create(path)
    console.print(f"{path} holds v1. Keep a copy where the warehouse is not: a lost key cannot be made again")


@app.command()
def rotate() -> None:
    """Make a new version of the masking key. The next build stops until it is a full refresh."""
    path = from_environment().needed("pii_key_file")
    old = pii_key.check(path)
    version = pii_key.rotate(path)
    console.print(f"{path} holds {version} now; {old} is now in {path}.{old}")
    log.warning("in a pod or container both are lost when it ends: replace the secret that they come from first")
    console.print("Mask all again: lakehouse weekly --full-refresh")
