"""`python -m bench.cluster`: lands payments and deduplicates them, in one process and on workers of a cluster."""

import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from bench import dbt, run, running_process, table_of
from bench.ingest import commands, topic
from bench.ingest.peer import Peer
from bench.watch import Watch
from python_common.config.settings import Settings
from python_common.output import console
from python_common.process import Service
from python_common.spark import thrift
from python_dev.stack.temporary import running
from tests.support.services.spark_cluster import running_cluster

TOPIC = "payments"
BATCH_RECORDS = 1_000_000
STAGED, DEDUPLICATED = "stg_payments__payments", "int_payments_deduplicated"
# Every tenth record is a copy of an earlier one.
COPIES = 10


@dataclass(frozen=True)
class Figures:
    """What one step needed: wall and CPU seconds, and the peak resident bytes of all its processes together."""

    seconds: float
    cpu_seconds: float
    peak_bytes: int


def main(
    records: Annotated[int, typer.Option(min=1_000, help="Records in the topic.")] = 10_000_000,
    workers: Annotated[
        str, typer.Option(help="Clusters of 1 or 2 workers; 0 is without a cluster. The first is the baseline.")
    ] = "0,1,2",
) -> None:
    """Measure landing and deduplication of the same topic on two cores: without a cluster, on one worker, on two.

    Rows are counted afterwards; a wrong count ends the benchmark.
    """
    if not set(workers.split(",")) <= {"0", "1", "2"}:
        raise typer.BadParameter("two cores make two workers at most", param_hint="--workers")
    measured: dict[int, tuple[Figures, Figures]] = {}
    for size in map(int, workers.split(",")):
        with ExitStack() as stack:
            home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-")))
            variables, pids = {}, []
            if size:
                cluster = stack.enter_context(running_cluster(home / "cluster", {}, size))
                variables = {"LAKEHOUSE_SPARK_CONF": str(cluster.user_file())}
                pids = [running_process(service).pid for service in (cluster.master, *cluster.workers)]
            settings, services = stack.enter_context(running(home, "kafka", "registry", more=variables))
            console.print(f"{name_of(size)}: producing {records:,} payments")
            topic.fill(settings, TOPIC, records, original)
            measured[size] = land(settings, home, pids), deduplicate(settings, services["thrift"], records, pids)
    console.print(comparison(records, measured))


def original(number: int) -> int:
    """Return the number of the record that this one is a copy of, or of this one."""
    while number % COPIES == COPIES - 1:
        number //= 2
    return number


def land(settings: Settings, home: Path, cluster: list[int]) -> Figures:
    """Land the topic in bronze by an ingester that is started for it."""
    with Peer("ingester", commands.command("ingester", TOPIC, settings), home / "ingester.log", *cluster) as peer:
        job = peer.land(TOPIC, BATCH_RECORDS)
    return Figures(job.seconds, job.cpu_seconds, job.peak_bytes)


def deduplicate(settings: Settings, server: Service, records: int, cluster: list[int]) -> Figures:
    """Build the deduplicated payments on a Thrift server that has just started; its figures are those of the server.

    Raises:
        SystemExit: a table has not the rows that it should have.
    """
    server.start()
    try:
        watch = Watch(running_process(server).pid, *cluster)
        cpu, started = watch.cpu_seconds(), time.monotonic()
        dbt("run", "--select", STAGED, DEDUPLICATED)
        figures = Figures(time.monotonic() - started, watch.cpu_seconds() - cpu, watch.peak_bytes())
        watch.end()
        with thrift.connect(settings) as cursor:
            for table, expected in ((f"bronze.{TOPIC}", records), (f"deduplicated.{DEDUPLICATED}", distinct(records))):
                [(rows,)] = thrift.rows(cursor, f"select count(*) from {table}")
                if rows != expected:
                    raise SystemExit(f"error: {table} has {rows:,} rows, not {expected:,}")
    finally:
        server.stop()
    return figures


def distinct(records: int) -> int:
    """Return how many of the records are no copies."""
    return records - records // COPIES


def name_of(size: int) -> str:
    """Return what a cluster of so many workers is called in the table."""
    return f"{size} worker{'s'[: size > 1]}" if size else "no cluster"


def comparison(records: int, measured: dict[int, tuple[Figures, Figures]]) -> Table:
    """Return the figures of each cluster, against those of the first."""
    figures_of_step = "records/s", "of the\nfirst", "CPU s per\nmillion", "of the\nfirst", "peak\nMiB"
    table = table_of("", *figures_of_step, second="step")
    first = next(iter(measured.values()))
    for size, steps in measured.items():
        for step, figures, peer in zip(("landed", "deduplicated"), steps, first, strict=True):
            table.add_row(
                name_of(size),
                step,
                f"{records / figures.seconds:,.0f}",
                f"{peer.seconds / figures.seconds:.2f}",
                f"{figures.cpu_seconds / records * 1e6:.1f}",
                f"{figures.cpu_seconds / peer.cpu_seconds:.2f}",
                f"{figures.peak_bytes / 2**20:,.0f}",
            )
    return table


if __name__ == "__main__":
    run(main)
