"""`python -m bench.build`: whole builds, and models, on histories of several sizes."""

import os
import subprocess
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Annotated

import psutil
import typer
from rich.table import Table

from bench import Goal, dbt, goals_of, run, running_process, table_of
from bench.build import history, whole
from bench.watch import cpu_seconds_of
from python_common.catalog.catalog import load_catalog
from python_common.config.environment import PROJECT_ROOT
from python_common.config.settings import Settings
from python_common.output import console
from python_common.spark import thrift
from python_dev.stack.temporary import running
from tests.support import bronze

MODELS = (
    "int_payments_deduplicated",
    "int_orders_deduplicated",
    "int_order_items_deduplicated",
    "fct_completed_orders",
    "int_order_items_priced",
    "fct_product_sales",
    "fct_order_lines",
)

# The event week of a row, in marts that have one.
WEEK = "2026-W10"
WEEKS = {"fct_completed_orders": "paid_week", "fct_product_sales": "ordered_week", "fct_order_lines": "ordered_week"}
DEMO_GOAL, FILES_GOAL = 120, 0.05
# Also of marts that have so few rows that builds make them again.
MERGES = ("--vars", "rebuild_below_rows: 0")
RUNS = ("recent increment", "increment", "no new batches", "rebuild")
Figures = dict[tuple[str, str], float]
"""CPU seconds by model and run, and the share of a mart's files that a query of one week reads."""


def main(
    whole_sizes: Annotated[
        str, typer.Option("--whole", help="Rows of each topic's history in whole builds, one lake for each; '': none.")
    ] = "16000,2000000,20000000",
    sizes: Annotated[
        str, typer.Option(help="Rows of history in each table, one lake for each; '' measures whole builds alone.")
    ] = "2000000,20000000",
    increment: Annotated[int, typer.Option(min=100, help="Rows of an increment, in each table.")] = 20_000,
    demo: Annotated[bool, typer.Option("--demo", help="Also time `make demo`, in a separate home.")] = False,
) -> None:
    """Measure whole builds beside DuckDB, and increments of models against a run without new batches and a rebuild."""
    if demo:
        console.print(goals_of([Goal("make demo: s", demo_seconds(), DEMO_GOAL)]))
    for size in map(int, filter(None, whole_sizes.split(","))):
        with tempfile.TemporaryDirectory(prefix="bench-") as home:
            builds = whole.measure(Path(home), size)
        console.print(f"\nWhole builds with {size:,} rows of each topic")
        console.print(whole.figures(builds))
        console.print(goals_of(whole.goals(builds, size)))
    measured = {}
    for size in map(int, filter(None, sizes.split(","))):
        with (
            tempfile.TemporaryDirectory(prefix="bench-") as home,
            running(Path(home), "thrift") as (settings, started),
        ):
            measured[size] = measure(settings, running_process(started["thrift"]), size, increment)
            console.print(figures_of(size, measured[size]))
    if len(measured) > 1:
        console.print(goals_of(goals(measured)))


def demo_seconds() -> float:
    """Return the seconds of `make demo` from a prepared checkout, with an empty lake."""
    with tempfile.TemporaryDirectory(prefix="bench-") as home:
        make = partial(subprocess.run, cwd=PROJECT_ROOT, env={**os.environ, "LAKEHOUSE_HOME": home}, check=True)
        started = time.monotonic()
        try:
            make(["make", "demo"])
            return time.monotonic() - started
        finally:
            make(["make", "down"])


def measure(settings: Settings, server: psutil.Process, size: int, increment: int) -> Figures:
    """Build on a history, then on three increments: the first, which is not measured, makes the server warm."""
    bronze.create(load_catalog(settings))
    with thrift.connect(settings) as cursor:
        console.print(f"{size:,} rows: history")
        history.add_history(cursor, size)
        dbt("build", "--exclude-resource-type", "test", "unit_test", "snapshot", "--exclude", "exports", "ops")
        history.add_increment(cursor, size, size, increment, batch=2)
        dbt("run", "--select", *MODELS, *MERGES)
        last_week = size - size * 7 // history.DAYS
        history.add_increment(cursor, size, size + increment, increment, batch=3, oldest=last_week)
        figures = {(model, "recent increment"): cpu_seconds(server, model) for model in MODELS}
        history.add_increment(cursor, size, size + 2 * increment, increment, batch=4)
        figures |= {(model, "increment"): cpu_seconds(server, model) for model in MODELS}
        figures |= {(model, "no new batches"): cpu_seconds(server, model) for model in MODELS}
        figures |= {(mart, "files"): share_of_files(settings, mart, week) for mart, week in WEEKS.items()}
        figures |= {(model, "rebuild"): cpu_seconds(server, model, "--full-refresh") for model in MODELS}
    return figures


def share_of_files(settings: Settings, mart: str, week: str) -> float:
    """Return the share of a mart's files that a query of one week reads, by the statistics of the files."""
    table = load_catalog(settings).load_table(f"marts.{mart}")
    files, of_week = (len([*table.scan(row_filter).plan_files()]) for row_filter in ("true", f"{week} = '{WEEK}'"))
    return of_week / files


def cpu_seconds(server: psutil.Process, model: str, *arguments: str) -> float:
    """Run one model; return the CPU seconds of the Thrift server."""
    before = cpu_seconds_of(server)
    dbt("run", "--select", model, *MERGES, *arguments)
    return cpu_seconds_of(server) - before


def figures_of(size: int, figures: Figures) -> Table:
    """Return the table of one size: what an increment costs beyond a run without new batches, and of a rebuild."""
    table = table_of("model", *RUNS, "increment\nof rebuild")
    for model in MODELS:
        of_rebuild = figures[model, "increment"] / figures[model, "rebuild"]
        table.add_row(model, *(f"{figures[model, name]:.1f}" for name in RUNS), f"{of_rebuild:.2f}")
    console.print(f"\nCPU seconds with {size:,} rows of history")
    return table


def goals(measured: dict[int, Figures]) -> Iterator[Goal]:
    """Yield the goals of increments, the longest history to the shortest, and of queries of a week."""
    short, long = measured[min(measured)], measured[max(measured)]
    for model in MODELS:
        name, limit = ("increment", 3) if model.endswith("_deduplicated") else ("recent increment", 1.3)
        yield Goal(f"{model}, {name}: long of short history", long[model, name] / short[model, name], limit)
    for mart in WEEKS:
        yield Goal(f"{mart}: share of files that a week's query reads", long[mart, "files"], FILES_GOAL)


if __name__ == "__main__":
    run(main)
