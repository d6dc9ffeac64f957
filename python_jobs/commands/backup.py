"""`lakehouse backup`: save and restore the catalog's tables, next to a copy of the warehouse's files."""

from pathlib import Path
from typing import Annotated

import typer

from python_common.catalog.catalog import load_catalog
from python_common.config.environment import PROJECT_ROOT, environment
from python_common.config.settings import from_environment
from python_common.errors import UserError
from python_common.output import console
from python_dbt.project import Project
from python_ingest.maintenance import receipts
from python_jobs.backup import restore, save
from python_jobs.erase.cli import report
from python_jobs.erase.job import again

app = typer.Typer(no_args_is_help=True)


@app.command(name="save")
def save_to(path: Annotated[Path, typer.Argument(help="The file to write.")]) -> None:
    """Write the metadata of all tables, before the files of the warehouse are copied."""
    if not path.absolute().parent.is_dir():
        raise UserError(f"There is no directory {path.absolute().parent}", "Make it, or name another file")
    catalog = load_catalog(from_environment())
    # A restore needs it, also if no person was erased yet.
    receipts.TABLE.change(catalog, lambda rows: rows)
    console.print(f"tables saved: {save(catalog, path)}")


@app.command(name="restore")
def restore_from(
    path: Annotated[Path, typer.Argument(help="What `save` has written.")],
) -> None:
    """Register the tables, whose files are back in the warehouse, in an empty catalog, then repeat later erasures.

    No reader may see the lake before this has ended with exit code 0, 3 or 4; the Thrift server must run.
    If it stops after the tables are restored: `lakehouse erase --again`.
    """
    env = environment()
    settings = from_environment(env)
    catalog = load_catalog(settings, create=True)
    console.print(f"tables restored: {restore(catalog, path, newest={receipts.TABLE.identifier})}")
    report(settings, env, again(settings, Project(PROJECT_ROOT, env)))
