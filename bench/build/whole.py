"""Whole builds of the sample data with tests: the first, without new batches, with some, and with nothing skipped."""

import resource
import subprocess
import sys
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import psutil
from rich.table import Table

from bench import dbt, running_process, table_of
from local_stack.sample_data import load
from local_stack.temporary import running
from python_common.catalog.catalog import load_catalog
from python_common.config.environment import PROJECT_ROOT
from python_common.config.settings import Settings

produce = partial(load, orders=2_000, seed=1, weeks=4)


@dataclass(frozen=True)
class Build:
    """What one `dbt build` took: seconds, and CPU seconds of the Thrift server and of dbt."""

    name: str
    wall: float
    server: float
    dbt: float

    @property
    def cpu(self) -> float:
        """CPU seconds of both."""
        return self.server + self.dbt


def measure(home: Path) -> list[Build]:
    """Build what is in Kafka but for the last day of payments, again, with these, and with nothing skipped."""
    with running(home, "kafka", "registry", "thrift") as (settings, started):
        server = running_process(started["thrift"])
        produce(settings, behind="payments")
        known = land(settings)
        builds = [build("first, cold server", server), build("no new batches", server)]
        produce(settings)
        new_payments = land(settings) - known
        builds.append(build(f"{new_payments} new payments", server))
        builds.append(build("nothing skipped", server, "--vars", "skip_unchanged: false"))
    return builds


def land(settings: Settings) -> int:
    """Land what is in Kafka; return the rows of payments."""
    command = [str(Path(sys.executable).with_name("lakehouse")), "ingest", "run"]
    subprocess.run(command, cwd=PROJECT_ROOT, check=True, stdout=subprocess.DEVNULL)
    return int(load_catalog(settings).load_table("bronze.payments").scan().count())


def build(name: str, server: psutil.Process, *arguments: str) -> Build:
    """Run `dbt build` and measure it."""
    started, server_before, dbt_before = time.monotonic(), sum(server.cpu_times()[:2]), _children()
    dbt("build", "--exclude-resource-type", "unit_test", *arguments)
    return Build(
        name, time.monotonic() - started, sum(server.cpu_times()[:2]) - server_before, _children() - dbt_before
    )


def _children() -> float:
    """Return the CPU seconds of all ended children of this process."""
    return sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2])


def figures(builds: list[Build]) -> Table:
    """Return the table of the builds, the last of which is what the others are compared with."""
    table = table_of("build", "wall s", "Thrift CPU s", "dbt CPU s", "wall of all", "CPU of all")
    everything = builds[-1]
    for done in builds:
        ratios = f"{done.wall / everything.wall:.2f}", f"{done.cpu / everything.cpu:.2f}"
        table.add_row(done.name, f"{done.wall:.1f}", f"{done.server:.1f}", f"{done.dbt:.1f}", *ratios)
    return table
