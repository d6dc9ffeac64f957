"""`lakehouse backup`: where the tables of a lake stand, to be kept beside a copy of the warehouse's files."""

from pathlib import Path
from typing import Annotated

import typer

from lakehouse.backup import restore, save
from lakehouse.catalog import load_catalog
from lakehouse.errors import UserError
from lakehouse.settings import from_environment

app = typer.Typer(no_args_is_help=True, help="Where all tables stand, for a backup, and back into a catalog.")


@app.command(name="save")
def save_to(path: Annotated[Path, typer.Argument(help="The file to write.")]) -> None:
    """Write where all tables stand, before the files of the warehouse are copied."""
    if not path.absolute().parent.is_dir():
        raise UserError(f"There is no directory {path.absolute().parent}", "Make it, or name another file")
    typer.echo(f"tables saved: {save(load_catalog(from_environment()), path)}")


@app.command(name="restore")
def restore_from(
    path: Annotated[Path, typer.Argument(help="What `save` has written.")],
) -> None:
    """Give an empty catalog the tables whose files are back at their places."""
    typer.echo(f"tables restored: {restore(load_catalog(from_environment(), create=True), path)}")
