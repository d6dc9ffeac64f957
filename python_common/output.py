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
    """Print a line per row under headings, numbers to the right; or as JSON, a list of an object per row."""
    rows = [*rows]
    if as_json:
        names = [heading.replace(" ", "_") for heading in headings]
        print_json([dict(zip(names, row, strict=True)) for row in rows])
        return
    table = Table(box=None, pad_edge=False)
    for heading, *cells in zip(headings, *rows, strict=True):
        is_numeric = all(cell is None or isinstance(cell, int | float) for cell in cells)
        table.add_column(heading, justify="right" if is_numeric else "left")
    for row in rows:
        table.add_row(*map(_text, headings, row))
    # A line is never folded: a path that is cut cannot be copied.
    Console(width=10_000, markup=False, emoji=False).print(table)


def _text(heading: str, cell: object) -> str:
    # An id is no quantity.
    is_count = type(cell) is int and not heading.endswith(" id")
    return "-" if cell is None else f"{cell:,}" if is_count else str(cell)


def _plain(value: Any) -> object:
    return asdict(value) if is_dataclass(value) and not isinstance(value, type) else str(value)
