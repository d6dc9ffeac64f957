"""Tables on the console, as wide as their content."""

from rich.console import Console
from rich.table import Table


def wide_table(*headings: str) -> Table:
    """Return a table for `print_wide`."""
    table = Table(box=None, pad_edge=False)
    for heading in headings:
        table.add_column(heading, justify="right" if heading in {"rows", "bytes"} else "left", no_wrap=True)
    return table


def print_wide(table: Table) -> None:
    """Print a table as wide as its content: a path that is cut cannot be copied, a message that is cut says little."""
    Console(width=10_000, markup=False).print(table)
