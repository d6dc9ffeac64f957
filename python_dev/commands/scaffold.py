"""`lakehouse scaffold`: the models of a new topic, from its registered schema to a weekly CSV file."""

from typing import Annotated

import typer

from python_common.config.environment import PROJECT_ROOT
from python_common.config.settings import from_environment
from python_common.output import console, print_table
from python_dev.scaffold import columns, files, schema

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
    subject: Annotated[
        str | None, typer.Option(help="The registry's subject of the values. Default: as declared, else TOPIC-value.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show columns and classes, and write nothing.")] = False,
) -> None:
    """Write the models of a new topic, from its registered schema to a weekly CSV file, to be edited.

    A column without a class of personal data, which --pii gives, is in no mart, whatever its type.
    """
    entries = [entry.partition("=") for entry in pii or ()]
    if not all(name and pii_class for name, _, pii_class in entries):
        raise typer.BadParameter("--pii is written as COLUMN=CLASS, for instance sku=none")
    described = files.described(PROJECT_ROOT)
    registered = schema.read(from_environment(), topic, subject)
    payload = columns.columns(registered, {name: pii_class for name, _, pii_class in entries}, described)
    rows = [(one.name, one.type, one.pii, one.output and one.output.name) for one in payload]
    rows += [(path, "", reason, None) for path, reason in {**columns.unused(registered), **registered.omitted}.items()]
    print_table(("column", "type in staging", "class", "in the mart"), rows)
    if unclassified := [one for one in payload if one.pii == columns.UNCLASSIFIED]:
        console.print("In no mart until classified; `none` if it is no personal data, which any type may be:")
        for landed in dict.fromkeys(one.leaf.type for one in unclassified):
            console.print(f"  {landed}: {', '.join(columns.offered(landed))}")
        console.print(f"  {' '.join(f'--pii {one.name}=CLASS' for one in unclassified)}")
    new = files.new_topic(registered, source, entity, payload, key, at)
    console.print(f"one row per {new.key}, in the week of {new.at}")
    if shared := [name for name, text in new.descriptions.items() if described.get(name, text) != text]:
        console.print(f"Check that {files.DOCS} describes these: {', '.join(shared)}")
    if dry_run:
        return
    for file in files.write(PROJECT_ROOT, new):
        console.print(f"wrote {file}")
    console.print(f"Now: make lint; lakehouse ingest run {topic}; dbt build --select +{new.models['export']}")
