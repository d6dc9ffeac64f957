"""`lakehouse scaffold`: the models of a new topic, from its registered schema to a weekly CSV file."""

from typing import Annotated

import typer

from python_common.config.environment import PROJECT_ROOT
from python_common.config.settings import from_environment
from python_common.output import console, print_table
from python_dbt.scaffold import columns, files

# An option may follow the topic.
app = typer.Typer(
    invoke_without_command=True, subcommand_metavar="", context_settings={"allow_interspersed_args": True}
)


@app.callback()
def scaffold(
    topic: Annotated[str, typer.Argument(help="The Kafka topic, whose schema is registered as TOPIC-value.")],
    source: Annotated[str, typer.Option(help="The system that writes it: a dbt source, new or known.")],
    entity: Annotated[str, typer.Option(help="What a row is, in the plural: returns makes fct_returns.")],
    key: Annotated[
        str | None, typer.Option(help="The column that identifies a row. Default: each record is one.")
    ] = None,
    at: Annotated[
        str | None, typer.Option(help="The column of the event time. Default: the first timestamp, else the record's.")
    ] = None,
    pii: Annotated[
        list[str] | None,
        typer.Option(help="The class of a column, sku=none for instance; repeatable.", metavar="COLUMN=CLASS"),
    ] = None,
    up_to: Annotated[files.UpTo, typer.Option(help="The last model to write.")] = files.UpTo.EXPORT,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show columns and classes, and write nothing.")] = False,
) -> None:
    """Write the models of a new topic, from its registered schema to a weekly CSV file, to be edited.

    Classes of personal data that --pii does not give are guessed; text without a known name is excluded from marts.
    """
    entries = [entry.partition("=") for entry in pii or ()]
    if not all(name and pii_class for name, _, pii_class in entries):
        raise typer.BadParameter("--pii is written as COLUMN=CLASS, for instance sku=none")
    classes = {name: pii_class for name, _, pii_class in entries}
    new = files.new_topic(topic, source, entity, columns.read(from_environment(), topic, classes), key, at)
    rows = (
        (one.name, one.type, f"{one.pii}{' (guessed)' if one.is_guessed else ''}", one.output and one.output.name)
        for one in new.columns
    )
    print_table(("column", "type in staging", "class", "in the mart"), rows)
    console.print(f"one row per {new.key}, in the week of {new.at}")
    if dry_run:
        return
    for file in files.write(PROJECT_ROOT, new, up_to):
        console.print(f"wrote {file}")
    console.print(f"Now: make lint; lakehouse ingest run {topic}; dbt build --select +{new.models[up_to]}")
