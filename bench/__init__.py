"""Benchmarks: each runs the same work side by side, and prints ratios."""

import sys
from collections.abc import Callable

import typer

from lakehouse.errors import UserError


def run(main: Callable[..., None]) -> None:
    """Run a benchmark's command line; a UserError ends it with one line on stderr and exit code 1."""
    try:
        typer.run(main)
    except UserError as error:
        sys.exit(f"error: {error}")
