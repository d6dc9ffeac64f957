"""Whole builds of a history with tests: in full, without new batches, after some, with nothing skipped; in DuckDB."""

import resource
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
from rich.table import Table

from bench import Goal, dbt, running_process, table_of
from bench.build import duckdb_peer, history
from bench.export.work import in_process
from bench.watch import cpu_seconds_of
from python_common.catalog.catalog import load_catalog
from python_common.output import console
from python_common.spark import thrift
from python_dev.stack.temporary import running
from tests.support import bronze
from tests.support.services.interpreted import INTERPRETED

# New rows, and the tables that get so many each. The last has a goal, and finds a server that has compiled its MERGEs.
FEW = "100 new payments"
INCREMENTS = {
    "20,000 new rows": (20_000, history.ALL_GROWING),
    "100 new rows": (100, history.ALL_GROWING),
    FEW: (100, ("payments",)),
}
# Builds of so many rows take half an hour each: none that shows what another shows.
LONG = 20_000_000
LONG_INCREMENTS = ("20,000 new rows", FEW)
# The exported week: that in which histories end and most new rows follow.
WEEK = "2026-W40"
WALL_GOAL, CPU_GOAL, SHARE_GOAL = 15, 20, 0.5
# The rows of `make demo`, with whose Spark they are built; a first build took 84 s before builds were state-aware.
FIRST_SIZE, FIRST_GOAL = 16_000, 0.6 * 84


@dataclass(frozen=True)
class Build:
    """What one `dbt build` took: seconds, and CPU seconds of the engine and of dbt."""

    name: str
    wall: float
    engine: float
    dbt: float

    @property
    def cpu(self) -> float:
        """CPU seconds of both."""
        return self.engine + self.dbt


def measure(home: Path, size: int) -> list[Build]:
    """Build a history, again, with each increment, with nothing skipped, and in full; then in DuckDB.

    Of a LONG history some increments, and neither of the last two.
    """
    increments = INCREMENTS if size < LONG else {name: INCREMENTS[name] for name in LONG_INCREMENTS}
    with running(home, "thrift", more=INTERPRETED if size <= FIRST_SIZE else None) as (settings, started):
        server = running_process(started["thrift"])
        bronze.create(load_catalog(settings))
        builds = []

        def measured(name: str, *arguments: str, skip: str = "true") -> None:
            variables = f"{{week: {WEEK}, skip_unchanged: {skip}}}"
            builds.append(build(name, server, "--vars", variables, *arguments))
            console.print(f"{size:,} rows: {name}, {builds[-1].wall:.0f} s")

        with thrift.connect(settings) as cursor:
            console.print(f"{size:,} rows: history")
            history.add_history(cursor, size, whole=True)
            measured("full, cold server")
            measured("no new batches")
            first = size
            for batch, (name, (rows, tables)) in enumerate(increments.items(), start=2):
                history.add_increment(cursor, size, first, rows, batch, tables)
                first += rows
                measured(name)
            if size < LONG:
                measured("nothing skipped", skip="false")
                measured("full", "--full-refresh", skip="false")
        peer = in_process(duckdb_peer.build, settings, home / "peer")
    return [*builds, Build("full, DuckDB", peer["wall"], peer["cpu"], 0)] if "wall" in peer else builds


def build(name: str, server: psutil.Process, *arguments: str) -> Build:
    """Run `dbt build` and measure it."""
    started, server_before, dbt_before = time.monotonic(), cpu_seconds_of(server), _children()
    dbt("build", "--exclude-resource-type", "unit_test", *arguments)
    return Build(name, time.monotonic() - started, cpu_seconds_of(server) - server_before, _children() - dbt_before)


def _children() -> float:
    """Return the CPU seconds of all ended children of this process."""
    return sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2])


def figures(builds: list[Build]) -> Table:
    """Return the table of the builds, against the full one."""
    table = table_of("\nbuild", "\nwall s", "engine\nCPU s", "dbt\nCPU s", "wall\nof full", "CPU\nof full")
    full = _full(builds)
    for done in builds:
        ratios = f"{done.wall / full.wall:.2f}", f"{done.cpu / full.cpu:.2f}"
        table.add_row(done.name, f"{done.wall:.1f}", f"{done.engine:.1f}", f"{done.dbt:.1f}", *ratios)
    return table


def goals(builds: list[Build], size: int) -> Iterator[Goal]:
    """Yield the goals of the first build, of one without new batches, and of one with few new rows."""
    first, idle, few = (_named(builds, name) for name in ("full, cold server", "no new batches", FEW))
    full = _full(builds)
    if size == FIRST_SIZE:
        yield Goal(f"{first.name}: wall s", first.wall, FIRST_GOAL)
    yield Goal(f"{idle.name}: wall s", idle.wall, WALL_GOAL)
    yield Goal(f"{idle.name}: CPU s", idle.cpu, CPU_GOAL)
    yield Goal(f"{few.name}: wall of full", few.wall / full.wall, SHARE_GOAL)
    yield Goal(f"{few.name}: CPU of full", few.cpu / full.cpu, SHARE_GOAL)


def _full(builds: list[Build]) -> Build:
    """Return the full build on a warm server; of a LONG history the first, which is long enough to warm it."""
    return next((build for build in builds if build.name == "full"), builds[0])


def _named(builds: list[Build], name: str) -> Build:
    [build] = [build for build in builds if build.name == name]
    return build
