"""The options that the commands of `lakehouse ingest` share."""

from pathlib import Path
from typing import Annotated

import typer

from python_common.config.settings import Settings, from_environment
from python_common.errors import UserError
from python_ingest.declare.topics import Declaration, read_declarations, select

Topics = Annotated[list[str] | None, typer.Argument(help="Topic names; without any, every declared topic.")]
Topic = Annotated[str, typer.Argument(help="A topic's name.")]
Models = Annotated[
    Path, typer.Option(help="Where the dbt source files are, that declare the topics.", show_default="models/")
]
Wait = Annotated[str, typer.Option(help="How long to wait for a broker or registry that does not answer.")]
MetricsFile = Annotated[
    Path | None, typer.Option(help="Also write the status of the topics here, for Prometheus' node exporter.")
]


def prepare(models: Path, topics: list[str] | None) -> tuple[Settings, list[Declaration]]:
    """Return the settings and the declarations of the named topics, or of all; a UserError if nothing is declared."""
    chosen = select(read_declarations(models), topics or ())
    if not chosen:
        raise UserError("No dbt source declares a topic", "Add config.meta.kafka to a source table")
    return from_environment(), chosen
