"""`lakehouse erase`."""

from typing import Annotated

import typer

from python_common.catalog.catalog import load_catalog
from python_common.config.environment import PROJECT_ROOT, environment
from python_common.config.settings import from_environment
from python_common.deadline import step_within
from python_common.errors import UserError
from python_common.text import spelling
from python_dbt.project import Project
from python_export.cli.outcome import end, print_summary
from python_export.notify.deliver import notify
from python_ingest.maintenance.erase import Person, Record
from python_jobs.erase import job
from python_jobs.erase.job import Erasure, record_at

app = typer.Typer(invoke_without_command=True)


@app.callback()
def erase(
    subject: Annotated[
        list[str] | None,
        typer.Option(help="Whose rows: source.kind=id, as config.meta.subjects of the dbt sources has it; repeatable."),
    ] = None,
    offset: Annotated[
        list[str] | None,
        typer.Option(help="Also a record, as topic:[generation:]partition:offset, such as a dead letter; repeatable."),
    ] = None,
    again: Annotated[
        bool,
        typer.Option("--again", help="After a restore: erase and withdraw once more what ops.erasures names."),
    ] = False,
    published: Annotated[
        bool,
        typer.Option("--published", help="Also withdraw the published versions that hold rows, and publish new ones."),
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what would be erased, and change nothing.")] = False,
) -> None:
    """Erase a person: rows in bronze, all that is built from them, and the snapshots and files that hold them.

    Erased rows keep their offsets, so nothing is landed again. After a kill, run the command again. No weekly job,
    export or maintenance runs meanwhile; the ingester may. Kafka keeps its records.

    Exit codes: 1 no row was found or erased before, or a step failed: run the command again; 3 readers were not
    notified; 4 everything is erased and withdrawn, but a new version is withheld, or a published version cannot be
    searched.
    """
    persons, records = tuple(map(_person, subject or ())), tuple(map(_record, offset or ()))
    if again == bool(persons or records):
        raise typer.BadParameter("name a --subject or an --offset, or give --again alone")
    env = environment()
    settings = from_environment(env)
    settings.needed("export_root")
    with step_within("erase"):
        project = Project(PROJECT_ROOT, env)
        if again:
            exported = job.again(settings, project, dry_run)
        else:
            exported = Erasure(settings, project, persons, records, published).run(dry_run)
    print_summary(exported)
    notifies = (again or published) and not dry_run
    undelivered = notify(settings, env, load_catalog(settings), exported.notices()) if notifies else []
    end(undelivered, exported.is_incomplete)


def _person(text: str) -> Person:
    kind, separator, identifier = text.partition("=")
    if not separator or not kind or not spelling(identifier):
        # Not quoted: it may be the id of a person.
        raise UserError("A --subject is not a kind and an id", "Write it as shop.customer=42")
    return Person(kind, identifier)


def _record(text: str) -> Record:
    topic, *position = text.split(":")
    if not topic or len(position) not in (2, 3) or not all(part.isascii() and part.isdigit() for part in position):
        # Not quoted either: it may be what was meant as --subject.
        raise UserError("An --offset does not name a record", "Write it as topic:partition:offset")
    return record_at(topic, position)
