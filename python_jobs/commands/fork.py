"""`lakehouse fork`: copies of the lake that share its data files, for trying changes."""

from datetime import timedelta
from typing import Annotated

import typer

from python_common.config.settings import from_environment
from python_common.config.variables import seconds
from python_common.output import AsJson, console, print_table
from python_jobs import fork

app = typer.Typer(no_args_is_help=True)


@app.command()
def create(
    name: Annotated[str, typer.Argument(help="A name for it.")],
    lives: Annotated[str, typer.Option(help="How long production keeps what it reads.")] = "24h",
) -> None:
    """Fork the lake as it is now, and start a Thrift server on the fork. Nothing done in a fork reaches the lake."""
    made = fork.create(from_environment(), name, timedelta(seconds=seconds(lives)))
    console.print(f"fork {name}: until {made.expires_at}; base is the lake as it was, read only")
    console.print(f"source {made.env_file}; dbt build")


@app.command(name="list")
def list_forks(as_json: AsJson = False) -> None:
    """List the forks of this home."""
    rows = [
        (one.name, one.made_at, one.expires_at, "up" if one.server().process() else "down", str(one.env_file), one.tag)
        for one in fork.forks(from_environment())
    ]
    print_table(("fork", "made", "expires", "server", "env file", "tag"), rows, as_json)


@app.command()
def drop(name: Annotated[str, typer.Argument(help="The fork.")]) -> None:
    """Stop a fork's server and delete its files. The lake is as before."""
    fork.drop(from_environment(), name)
    console.print(f"fork {name}: dropped")
