"""`python -m bench.build`: whole builds, and models, on histories of several sizes."""

import tempfile
from pathlib import Path
from typing import Annotated

import psutil
import typer
from rich.table import Table

from bench import dbt, goals_of, run, running_process, table_of
from bench.build import history, whole
from local_stack.temporary import running
from python_common.catalog.catalog import load_catalog
from python_common.config.settings import Settings
from python_common.output import console
from python_common.spark import thrift
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

Figures = dict[tuple[str, str], float]
"""CPU seconds by model and kind of run: increment, no new batches, rebuild."""


def main(
    whole_sizes: Annotated[
        str, typer.Option("--whole", help="Rows of each topic's history in whole builds, one lake for each; '': none.")
    ] = "16000,2000000,20000000",
    sizes: Annotated[
        str, typer.Option(help="Rows of history in each table, one lake for each; '' measures whole builds alone.")
    ] = "2000000,20000000",
    increment: Annotated[int, typer.Option(min=100, help="Rows of an increment, in each table.")] = 20_000,
) -> None:
    """Measure whole builds beside DuckDB, and increments of models against a run without new batches and a rebuild."""
    for size in map(int, filter(None, whole_sizes.split(","))):
        with tempfile.TemporaryDirectory(prefix="bench-") as home:
            builds = whole.measure(Path(home), size)
        console.print(f"\nWhole builds with {size:,} rows of each topic")
        console.print(whole.figures(builds))
        console.print(goals_of(whole.goals(builds)))
    measured = {}
    for size in map(int, filter(None, sizes.split(","))):
        with (
            tempfile.TemporaryDirectory(prefix="bench-") as home,
            running(Path(home), "thrift") as (settings, started),
        ):
            measured[size] = measure(settings, running_process(started["thrift"]), size, increment)
            console.print(figures_of(size, measured[size]))
    if len(measured) > 1:
        console.print(ratios(measured))


def measure(settings: Settings, server: psutil.Process, size: int, increment: int) -> Figures:
    """Build on a history, then on two increments: the second, which is measured, finds the server warm."""
    bronze.create(load_catalog(settings))
    with thrift.connect(settings) as cursor:
        console.print(f"{size:,} rows: history")
        history.add_history(cursor, size)
        dbt("build", "--exclude-resource-type", "test", "unit_test", "snapshot", "--exclude", "exports", "ops")
        history.add_increment(cursor, size, size, increment, batch=2)
        dbt("run", "--select", *MODELS)
        history.add_increment(cursor, size, size + increment, increment, batch=3)
        figures = {(model, "increment"): cpu_seconds(server, model) for model in MODELS}
        figures |= {(model, "no new batches"): cpu_seconds(server, model) for model in MODELS}
        figures |= {(model, "rebuild"): cpu_seconds(server, model, "--full-refresh") for model in MODELS}
    return figures


def cpu_seconds(server: psutil.Process, model: str, *arguments: str) -> float:
    """Run one model; return the CPU seconds of the Thrift server."""
    before = sum(server.cpu_times()[:2])
    dbt("run", "--select", model, *arguments)
    return sum(server.cpu_times()[:2]) - before


def figures_of(size: int, figures: Figures) -> Table:
    """Return the table of one size: what an increment costs beyond a run without new batches, and of a rebuild."""
    table = table_of("model", "increment", "no new batches", "rebuild", "increment\nof rebuild")
    for model in MODELS:
        increment, idle, rebuild = (figures[model, kind] for kind in ("increment", "no new batches", "rebuild"))
        table.add_row(model, f"{increment:.1f}", f"{idle:.1f}", f"{rebuild:.1f}", f"{increment / rebuild:.2f}")
    console.print(f"\nCPU seconds with {size:,} rows of history")
    return table


def ratios(measured: dict[int, Figures]) -> Table:
    """Return the table of ratios: the longest history to the shortest."""
    short, long = min(measured), max(measured)
    table = table_of("model", "increment", "rebuild")
    for model in MODELS:
        ratio = {kind: measured[long][model, kind] / measured[short][model, kind] for kind in ("increment", "rebuild")}
        table.add_row(model, f"{ratio['increment']:.2f}", f"{ratio['rebuild']:.2f}")
    console.print(f"\nCPU seconds with {long:,} rows of history, of those with {short:,}")
    return table


if __name__ == "__main__":
    run(main)
