"""What the commands that speak of published files share: wide tables, and exit codes."""

import typer
from rich.console import Console
from rich.table import Table

from lakehouse.errors import UserError
from python_export.run import Exported

errors = Console(stderr=True, highlight=False, soft_wrap=True, markup=False)
NOT_TOLD, WITHHELD = 3, 4


def end(exported: Exported | None, not_told: list[UserError]) -> None:
    """End the command: with exit code 4 if something failed or is withheld, else with 3 if not everybody is told."""
    for problem in not_told:
        errors.print(f"error: published, but not everybody is told: {problem}")
    if exported and (exported.withheld or exported.has_faults):
        raise typer.Exit(WITHHELD)
    if not_told:
        raise typer.Exit(NOT_TOLD)


def wide_table(*headings: str) -> Table:
    """Return a table for `print_wide`."""
    table = Table(box=None, pad_edge=False)
    for heading in headings:
        table.add_column(heading, justify="right" if heading in {"rows", "bytes"} else "left", no_wrap=True)
    return table


def print_wide(table: Table) -> None:
    """Print a table as wide as its content: a path that is cut cannot be copied, a message that is cut says little."""
    Console(width=10_000, markup=False).print(table)
