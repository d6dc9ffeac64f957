"""What commands print on stdout: lines, tables, and JSON for programs. Events are logged to stderr."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, is_dataclass
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]

console = Console(highlight=False, soft_wrap=True, markup=False, emoji=False)


def print_json(value: object) -> None:
    """Print a value as JSON: a dataclass as an object, what JSON does not know as text."""
    typer.echo(json.dumps(value, indent=2, default=_plain))


def print_table(headings: Sequence[str], rows: Iterable[Sequence[object]], as_json: bool = False) -> None:
    """Print rows under headings, numbers to the right, None as a dash; or as JSON, a list of an object per row.

    The table is as wide as its content: a path that is cut cannot be copied, a message that is cut helps little.
    """
    if as_json:
        names = [heading.replace(" ", "_") for heading in headings]
        print_json([dict(zip(names, row, strict=True)) for row in rows])
        return
    texts = [["-" if cell is None else str(cell) for cell in row] for row in rows]
    table = Table(box=None, pad_edge=False)
    for number, heading in enumerate(headings):
        is_numeric = all(_is_number(row[number]) for row in texts)
        table.add_column(heading, justify="right" if is_numeric else "left", no_wrap=True)
    for row in texts:
        table.add_row(*row)
    Console(width=10_000, markup=False, emoji=False).print(table)


def _plain(value: Any) -> object:
    return asdict(value) if is_dataclass(value) and not isinstance(value, type) else str(value)


def _is_number(text: str) -> bool:
    return text == "-" or text.replace(",", "").replace(".", "", 1).isdecimal()
