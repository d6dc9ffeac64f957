"""Benchmarks: each runs the same work side by side, and prints ratios.

Nothing outside imports it; one may import another.
"""

import subprocess
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import psutil
import typer
from rich.table import Table

from python_common.config.environment import PROJECT_ROOT
from python_common.errors import UserError
from python_common.process import Service


def run(main: Callable[..., None]) -> None:
    """Run a benchmark's command line; a UserError ends it with one line on stderr and exit code 1."""
    try:
        typer.run(main)
    except UserError as error:
        sys.exit(f"error: {error}")


def dbt(*arguments: str) -> None:
    """Run dbt; a failure ends the benchmark with dbt's output."""
    command = [str(Path(sys.executable).with_name("dbt")), "--no-use-colors", "--quiet", *arguments]
    subprocess.run(command, cwd=PROJECT_ROOT, check=True)


def running_process(service: Service) -> psutil.Process:
    """Return the process of a service that runs."""
    process = service.process()
    if process is None:
        raise SystemExit(f"error: {service.name} does not run")
    return process


def table_of(name: str, *figures: str, second: str | None = None) -> Table:
    """Return an empty table: a column of names, or two, and one for each kind of figure."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(name)
    if second is not None:
        table.add_column(second)
    for figure in figures:
        table.add_column(figure, justify="right", vertical="bottom")
    return table


@dataclass(frozen=True)
class Goal:
    """A figure, and the limit that it has to keep: at most, or at least, so much."""

    name: str
    figure: float
    limit: float
    at_least: bool = False


def goals_of(goals: Iterable[Goal]) -> Table:
    """Return the table of goals, each with its figure, and the ratio of the figure to the limit."""
    table = table_of("\ngoal", "limit", "figure", "of the limit", "")
    for goal in goals:
        is_met = goal.figure >= goal.limit if goal.at_least else goal.figure <= goal.limit
        limit = f"{'>=' if goal.at_least else '<='} {goal.limit:g}"
        ratio = f"{goal.figure / goal.limit:.2f}"
        table.add_row(goal.name, limit, f"{goal.figure:,.2f}", ratio, "met" if is_met else "missed")
    return table
