"""What commands print on stdout: lines, tables, and JSON for programs. Events are logged to stderr."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, is_dataclass
from shutil import get_terminal_size
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

    A table that is wider than the terminal (80 columns without one) is a record per row, a line per value: a path that
    is cut cannot be copied.
    """
    if as_json:
        names = [heading.replace(" ", "_") for heading in headings]
        print_json([dict(zip(names, row, strict=True)) for row in rows])
        return
    texts = [[_text(*cell) for cell in zip(headings, row, strict=True)] for row in rows]
    table = Table(box=None, pad_edge=False)
    for number, heading in enumerate(headings):
        is_numeric = all(_is_number(row[number]) for row in texts)
        table.add_column(heading, justify="right" if is_numeric else "left", no_wrap=True)
    for row in texts:
        table.add_row(*row)
    whole = Console(width=10_000, markup=False, emoji=False)
    if not texts or whole.measure(table).maximum <= get_terminal_size().columns:
        whole.print(table)
        return
    width = max(map(len, headings))
    for row in texts:
        for heading, text in zip(headings, row, strict=True):
            console.print(f"{heading:{width}}  {text}")
        console.print()


def _text(heading: str, cell: object) -> str:
    # An id is no quantity.
    is_count = type(cell) is int and not heading.endswith(" id")
    return "-" if cell is None else f"{cell:,}" if is_count else str(cell)


def _plain(value: Any) -> object:
    return asdict(value) if is_dataclass(value) and not isinstance(value, type) else str(value)


def _is_number(text: str) -> bool:
    return text == "-" or text.replace(",", "").replace(".", "", 1).isdecimal()
