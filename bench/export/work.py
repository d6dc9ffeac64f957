"""The two that are measured, each in a separate process: the export of a week, and DuckDB's COPY."""

import multiprocessing
import resource
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from itertools import pairwise
from pathlib import Path

from pyiceberg.catalog import Catalog

from python_common.catalog.catalog import load_catalog
from python_common.config.settings import Settings
from python_common.weeks import IsoWeek
from python_export.csv.compare import verify
from python_export.csv.csv_file import connect
from python_export.csv.facts import measure
from python_export.csv.write import load_table, write
from python_export.datasets import snapshot
from python_export.datasets.declared import Dataset
from python_export.publishing.publish import build_manifest, publish
from python_export.publishing.target import open_target

WEEK = IsoWeek(2026, 46)
DATASET = Dataset(
    name="order_lines",
    model="exp_weekly__order_lines",
    table="exports.exp_weekly__order_lines",
    key=("order_line_key",),
    order_by=("ordered_at", "order_line_key"),
    topics=(),
)
Figures = dict[str, float]
"""Seconds by step, and `peak`: MiB of the process that did it."""


def in_process(work: Callable[[Settings, Path], Figures], settings: Settings, directory: Path) -> Figures:
    """Do some work in a separate process; return its figures with the peak of its memory."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(_measured, work, settings, directory).result()


def _measured(work: Callable[[Settings, Path], Figures], settings: Settings, directory: Path) -> Figures:
    directory.mkdir()
    figures = work(settings, directory)
    return {**figures, "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}


def export(settings: Settings, directory: Path) -> Figures:
    """Do what `lakehouse export run` does with a dataset once its table is built."""
    catalog = load_catalog(settings)
    target = open_target(settings.changed(export_root=str(directory)))
    steps = [time.monotonic()]
    table = _current(catalog)
    file = directory / "version" / "staged.csv"
    file.parent.mkdir()
    write(table, file, directory / "scratch")
    steps.append(time.monotonic())
    verify(file, table, directory / "scratch")
    steps.append(time.monotonic())
    facts = measure(table, directory / "scratch")
    publish(target, file, build_manifest(table, WEEK, facts), (), directory / "scratch")
    steps.append(time.monotonic())
    seconds = (after - before for before, after in pairwise(steps))
    return dict(zip(("write", "verify", "publish"), seconds, strict=True))


def _current(catalog: Catalog) -> snapshot.Source:
    table = catalog.load_table(DATASET.table)
    [newest] = table.history()[-1:]
    return snapshot.of_snapshot(DATASET, table, newest.snapshot_id)


def copy_with_duckdb(settings: Settings, directory: Path) -> Figures:
    """Copy the same rows in the same order to a CSV file, and do nothing else."""
    started = time.monotonic()
    table = _current(load_catalog(settings))
    order = ", ".join(DATASET.order_by)
    with connect(directory) as database:
        load_table(database, table)
        database.execute(f"copy (select * from snapshot_rows order by {order}) to '{directory / 'copy.csv'}' (header)")
    return {"copy": time.monotonic() - started}
