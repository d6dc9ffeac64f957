"""`lakehouse erase`."""

from typing import Annotated

import typer
from rich.console import Console

from erasure.job import Erasure, Request
from lakehouse.catalog import load_catalog
from lakehouse.deadline import step_within
from lakehouse.environment import PROJECT_ROOT, environment
from lakehouse.errors import UserError
from lakehouse.settings import from_environment
from python_export.cli.outcome import end, print_summary
from python_export.datasets.project import Project
from python_export.telling.deliver import notify
from python_ingest.repair.erase import Person

app = typer.Typer(invoke_without_command=True)
console = Console(highlight=False, soft_wrap=True, markup=False)


@app.callback()
def erase(
    subject: Annotated[
        list[str] | None,
        typer.Option(help="Whose rows: source.kind=id, as config.meta.subjects of the dbt sources has it; repeatable."),
    ] = None,
    offset: Annotated[
        list[str] | None,
        typer.Option(help="Also a record, as topic:partition:offset, such as a dead letter; repeatable."),
    ] = None,
    published: Annotated[
        bool,
        typer.Option("--published", help="Also withdraw the published versions that hold rows, and publish new ones."),
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be erased, and change nothing.")] = False,
) -> None:
    """Erase a person: rows in bronze, all that is built from them, and the snapshots and files that hold them.

    Erased rows keep their place, so nothing is landed again. It can be given again after a kill at any moment. No
    weekly job, export or maintenance runs meanwhile; the ingester may. Kafka keeps its records.

    Exit codes: 1 nothing like that is in any table, and was not erased before, or a step failed: give the command
    again; 3 readers were not notified; 4 everything is erased and withdrawn, and a new version is withheld.
    """
    request = Request(tuple(map(_person, subject or ())), tuple(map(_record, offset or ())))
    if not request.persons and not request.records:
        raise typer.BadParameter("name a --subject or an --offset")
    env = environment()
    settings = from_environment(env)
    settings.needed("export_root")
    with step_within(env, "erase"):
        project = Project(PROJECT_ROOT, env)
        exported = Erasure(settings, project, request, console.print, withdraws=published).run(dry_run)
    if exported is not None:
        print_summary(exported)
        end(exported, notify(settings, env, load_catalog(settings), console.print, exported.notices()))


def _person(text: str) -> Person:
    kind, found, identifier = text.partition("=")
    if not found or not kind or not identifier.strip():
        # Not quoted: it may be the id of a person.
        raise UserError("A --subject is not a kind and an id", "Write it as shop.customer=42")
    return Person(kind, identifier)


def _record(text: str) -> tuple[str, int, int]:
    topic, *place = text.split(":")
    if not topic or len(place) != 2 or not all(part.isascii() and part.isdigit() for part in place):
        raise UserError(f"--offset {text} does not name a record", "Write it as topic:partition:offset")
    return topic, int(place[0]), int(place[1])
