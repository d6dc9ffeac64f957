"""`python -m bench.export`: rows/s of write, verify and publish, against DuckDB's COPY of the same table."""

import tempfile
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from bench import Goal, goals_of, run
from bench.export.work import Figures, copy_with_duckdb, export, in_process
from python_common.output import console
from python_common.spark import thrift
from python_dev.stack.temporary import running

# Of the time of DuckDB's COPY.
GOAL = 2
# The columns and types of the model, two thirds of the lines from stores; the rows are in no order.
TABLE = """
create table exports.exp_weekly__order_lines using iceberg as
select
    '2026-W46' as ordered_week,
    timestamp_millis(1762646400000 + pmod(hash(id), 604800000)) as ordered_at,
    concat(if(id % 3 < 2, 'store-', 'shop-'), id % 10, '-', id div 3, '-', id % 3) as order_line_key,
    concat(if(id % 3 < 2, 'store-', 'shop-'), id % 10, '-', id div 3) as order_key,
    if(id % 3 < 2, cast(id % 3 + 1 as int), null) as line_number,
    if(id % 3 < 2, 'store', 'online') as channel,
    if(id % 3 < 2, 'Physical', 'Digital') as channel_group,
    if(id % 3 < 2, cast(id % 10 + 1 as int), null) as store_id,
    if(id % 3 < 2, concat('Region_', id % 9), null) as region_id,
    if(id % 3 < 2, cast(1000 + id % 1000 as int), null) as coupon_code,
    concat(if(id % 3 < 2, 'store-', 'shop-'), id % 5000) as product_key,
    cast(id % 5000 as int) as product_id,
    concat('category "', id % 40, '", and more') as category,
    cast(id % 5 + 1 as int) as quantity,
    cast(id % 9000 / 100 as decimal(12, 2)) as unit_price,
    cast(id % 9000 / 100 * (id % 5 + 1) as decimal(12, 2)) as line_amount,
    concat(if(id % 3 < 2, 'store-', 'shop-'), sha2(cast(id % 100000 as string), 256)) as customer_key,
    'v1' as key_version
from range({rows})
"""


def main(
    rows: Annotated[int, typer.Option(min=1000, help="Order lines in the table.")] = 5_000_000,
    rounds: Annotated[int, typer.Option(min=1, help="Both take turns so often.")] = 2,
) -> None:
    """Measure an export of one week's order lines against DuckDB's COPY of the same rows in the same order."""
    with (
        tempfile.TemporaryDirectory(prefix="bench-") as home,
        running(Path(home), "thrift") as (settings, _),
    ):
        console.print(f"{rows:,} rows")
        with thrift.connect(settings) as cursor:
            thrift.rows(cursor, "create schema exports")
            thrift.rows(cursor, TABLE.format(rows=rows))
        measured: dict[str, list[Figures]] = {"export": [], "duckdb": []}
        for number in range(rounds):
            measured["export"].append(in_process(export, settings, Path(home) / f"exports-{number}"))
            measured["duckdb"].append(in_process(copy_with_duckdb, settings, Path(home) / f"copy-{number}"))
        console.print(table_of(rows, measured))
        best = [min(map(seconds, measured[name])) for name in ("export", "duckdb")]
        console.print(goals_of([Goal("export: of DuckDB's time", best[0] / best[1], GOAL)]))


def seconds(figures: Figures) -> float:
    """Return the seconds of all steps."""
    return sum(figure for step, figure in figures.items() if step != "peak")


def table_of(rows: int, measured: dict[str, list[Figures]]) -> Table:
    """Return the figures of each round, and their ratio."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for heading in ("round", "", "rows/s", "seconds", "by step", "peak MiB", "of DuckDB's time"):
        table.add_column(heading, justify="left" if heading in {"", "by step"} else "right")
    for number, (ours, theirs) in enumerate(zip(measured["export"], measured["duckdb"], strict=True), start=1):
        peer = theirs["copy"]
        for name, figures in (("export", ours), ("duckdb", theirs)):
            total = seconds(figures)
            listed = ", ".join(f"{step} {figure:.1f}" for step, figure in figures.items() if step != "peak")
            row = str(number), name, f"{rows / total:,.0f}", f"{total:.1f}", listed, f"{figures['peak']:,.0f}"
            table.add_row(*row, f"{total / peer:.2f}")
    return table


if __name__ == "__main__":
    run(main)
