"""`lakehouse check`: what can be checked without a running stack."""

import re
from pathlib import Path
from typing import Annotated

import typer

import python_dbt.pii.check
from python_common.catalog.catalog import load_catalog
from python_common.config.environment import PROJECT_ROOT, environment
from python_common.config.settings import from_environment
from python_common.errors import UserError
from python_common.output import AsJson, console, print_json
from python_dbt.project import Project

app = typer.Typer(no_args_is_help=True)


@app.command()
def builds(as_json: AsJson = False) -> None:
    """Print why each node of the last dbt command ran, or that it was unchanged."""
    log = Project(PROJECT_ROOT, environment()).log
    if not log.exists():
        raise UserError(f"There is no {log}", "Run `dbt build` first")
    # dbt begins another file when one is full, also within a command.
    files = sorted(log.parent.glob(f"{log.name}*"), reverse=True)
    last = "".join(file.read_text() for file in files).rpartition("running dbt with arguments")[2]
    nodes = dict(re.findall("node state: (.*?): (.*)", last))
    if as_json:
        print_json(nodes)
    else:
        console.print("\n".join(f"{node}: {reason}" for node, reason in nodes.items()))


@app.command()
def pii(
    static: Annotated[bool, typer.Option(help="Check the project alone, not what has landed in a catalog.")] = False,
    target: Annotated[
        Path | None, typer.Option(help="Check the SQL that a dbt build ran, from its target directory.")
    ] = None,
) -> None:
    """Check that every field has a PII class, and prove that none leaves the restricted layers without its mask."""
    catalog = None if static else load_catalog(from_environment())
    console.print(f"pii: {python_dbt.pii.check.check(catalog, target)} models followed, no leak")
