"""`python -m bench.settings`: runs with each tuning setting of Spark at its default, and prints ratios."""

import statistics
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from typing import Annotated

import typer

from bench import dbt, run, running_process, table_of
from bench.build import history, whole
from bench.build.__main__ import MODELS
from bench.ingest.landings import Bench
from bench.watch import cpu_seconds_of
from python_common.catalog.catalog import load_catalog
from python_common.catalog.catalog_properties import read_properties
from python_common.config.environment import changed_environment
from python_common.config.settings import Settings
from python_common.output import console
from python_common.spark import java, spark_conf, thrift
from python_dev.stack.temporary import running
from tests.support import bronze

SHIPPED = "shipped"
SPARK_CONF = Settings.variable("spark_conf")
RECORDS, ROWS, INCREMENT = 500_000, 16_000, 20_000
JAVA_OPTIONS = "spark.driver.defaultJavaOptions"

Measure = Callable[[dict[str, str]], dict[str, float]]
"""Returns CPU seconds by kind of run, with properties in place of the shipped ones."""
Workload = Callable[[Path], AbstractContextManager[Measure]]


@dataclass(frozen=True)
class Setting:
    """The workloads where a setting can have an effect, and properties with Spark's default in its place."""

    workloads: tuple[str, ...]
    properties: dict[str, str]


def settings_at_default() -> dict[str, Setting]:
    """Return the tuning settings by name; those of correctness and safety are not among them."""
    options = read_properties(spark_conf.DEFAULTS, SPARK_CONF)[JAVA_OPTIONS].split()
    # The archive that Java has of its own classes.
    archive = Path(java.executable()).resolve().parent.with_name("lib") / "server" / "classes.jsa"

    def without(prefix: str) -> dict[str, str]:
        return {JAVA_OPTIONS: " ".join(option for option in options if not option.startswith(prefix))}

    both, build, increment = ("batch", "build"), ("build",), ("increment",)
    batch = ("batch", "small-batch")
    return {
        "compiler": Setting(both, without("-XX:Tier4")),
        "collector": Setting(both, without("-XX:+UseParallelGC")),
        "archive": Setting(both, {"spark.driver.extraJavaOptions": f"-XX:SharedArchiveFile={archive}"}),
        "partitions": Setting(build, {"spark.sql.shuffle.partitions": "200"}),
        "isolation": Setting(build, {"spark.sql.artifact.isolation.enabled": "true"}),
        "call-sites": Setting(batch, {"spark.python.sql.dataFrameDebugging.enabled": "true"}),
        "kafka-reader": Setting(batch, {"spark.sql.sources.useV1SourceList": "avro,csv,json,kafka,orc,parquet,text"}),
        "grouping": Setting(increment, {"spark.sql.iceberg.planning.preserve-data-grouping": "false"}),
        "bucket-shuffle": Setting(increment, {"spark.sql.sources.v2.bucketing.shuffle.enabled": "false"}),
        "hash-join": Setting(("build", "increment"), {"spark.sql.join.preferSortMergeJoin": "true"}),
        "adaptive-hash-join": Setting(
            ("build", "increment"),
            {
                "spark.sql.adaptive.maxShuffledHashJoinLocalMapThreshold": "0",
                "spark.sql.adaptive.advisoryPartitionSizeInBytes": "64m",
            },
        ),
        "pruning": Setting(("build", "increment"), {"spark.sql.optimizer.dynamicPartitionPruning.enabled": "true"}),
    }


def main(
    names: Annotated[str, typer.Option("--settings", help="The settings, as compiler,collector; '': all.")] = "",
    workloads: Annotated[str, typer.Option(help="The workloads.")] = "batch,small-batch,build,increment",
    rounds: Annotated[int, typer.Option(min=1, help="How often each runs; the shipped configuration once more.")] = 1,
    history_rows: Annotated[
        int, typer.Option("--history", min=1, help="Rows of each table before the increments.")
    ] = 500_000,
) -> None:
    """Measure CPU seconds with each tuning setting at Spark's default, against the shipped configuration."""
    settings = settings_at_default()
    chosen = names.split(",") if names else [*settings]
    workload_of: dict[str, Workload] = {
        "batch": batches,
        "small-batch": small_batches,
        "build": builds,
        "increment": partial(increments, history_rows=history_rows),
    }
    for workload in workloads.split(","):
        tried = [name for name in chosen if workload in settings[name].workloads]
        if tried:
            with tempfile.TemporaryDirectory(prefix="bench-") as home:
                compare(workload_of[workload], Path(home), [*[SHIPPED, *tried] * rounds, SHIPPED], settings)


def compare(workload: Workload, home: Path, order: list[str], settings: dict[str, Setting]) -> None:
    """Run a workload with each configuration in turn; print medians, and their ratios to the shipped one's."""
    measured: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    with workload(home) as measure:
        for name in order:
            for what, cpu_seconds in measure(settings[name].properties if name in settings else {}).items():
                measured[what][name].append(cpu_seconds)
                console.print(f"{name}: {what}, {cpu_seconds:.2f} CPU s")
    for what, runs in measured.items():
        shipped = statistics.median(runs[SHIPPED])
        table = table_of(f"{what}, CPU s", "median", "least", "most", "of shipped")
        for name, seconds in runs.items():
            figures = statistics.median(seconds), min(seconds), max(seconds)
            table.add_row(name, *(f"{it:.2f}" for it in figures), f"{figures[0] / shipped:.2f}")
        console.print("", table)


def variables(home: Path, properties: dict[str, str]) -> dict[str, str]:
    """Return the variable that names a file of these properties."""
    file = home / "spark.conf"
    file.write_text("".join(f"{key} = {value}\n" for key, value in properties.items()))
    return {SPARK_CONF: str(file)}


@contextmanager
def batches(home: Path) -> Iterator[Measure]:
    """Land a topic three times by a new ingester: its first batch, and the mean of the next two."""
    with running(home, "kafka", "registry") as (settings, _):
        bench = Bench(settings, home)
        bench.fill("payments", RECORDS)

        def measure(properties: dict[str, str]) -> dict[str, float]:
            with changed_environment(variables(home, properties)), bench.start("ingester", "payments") as peer:
                cold, *warm = [job.cpu_seconds for _ in range(3) if (job := bench.land(peer, RECORDS, RECORDS))]
            return {"cold batch": cold, "warm batch": statistics.mean(warm)}

        yield measure


@contextmanager
def small_batches(home: Path) -> Iterator[Measure]:
    """Land batches of 1,000 records by a new ingester: the median of the later half."""
    records, size = 40_000, 1_000
    with running(home, "kafka", "registry") as (settings, _):
        bench = Bench(settings, home)
        bench.fill("payments", records)

        def measure(properties: dict[str, str]) -> dict[str, float]:
            with changed_environment(variables(home, properties)), bench.start("ingester", "payments") as peer:
                job = bench.land(peer, records, size)
            return {"small batch": statistics.median(job.batch_cpu_seconds[records // size // 2 :])} if job else {}

        yield measure


@contextmanager
def builds(home: Path) -> Iterator[Measure]:
    """Build and test everything twice by a new Thrift server: CPU seconds of it and of dbt, first with its start."""
    with running(home, "thrift") as (settings, _), thrift.connect(settings) as cursor:
        bronze.create(load_catalog(settings))
        history.add_history(cursor, ROWS, whole=True)

    def measure(properties: dict[str, str]) -> dict[str, float]:
        with running(home, "thrift", more=variables(home, properties)) as (_, started):
            server = running_process(started["thrift"])
            values = f"{{week: {whole.WEEK}, skip_unchanged: false}}"
            full = ("full", server, "--full-refresh", "--vars", values)
            cold_dbt = whole.build(*full).dbt
            return {"full build": cpu_seconds_of(server) + cold_dbt, "warm full build": whole.build(*full).cpu}

    yield measure


@contextmanager
def increments(home: Path, history_rows: int) -> Iterator[Measure]:
    """Build models after an increment of a long history by MERGE, on a server that is warm: its CPU seconds.

    All connections share a session, so that `set` is for dbt, too; a single thread, for a MERGE sets bucketing.
    """
    shipped = read_properties(spark_conf.DEFAULTS, SPARK_CONF)
    more = variables(home, {"spark.sql.hive.thriftServer.singleSession": "true"})
    with running(home, "thrift", more=more) as (settings, started), thrift.connect(settings) as cursor:
        server, batch = running_process(started["thrift"]), count(2)
        bronze.create(load_catalog(settings))
        history.add_history(cursor, history_rows)
        dbt("build", "--exclude-resource-type", "test", "unit_test", "snapshot", "--exclude", "exports", "ops")

        def measure(properties: dict[str, str]) -> dict[str, float]:
            for name, value in properties.items():
                thrift.rows(cursor, f"set `{name}` = {value}")
            number = next(batch)
            first = history_rows + (number - 2) * INCREMENT
            history.add_increment(cursor, history_rows, first, INCREMENT, number)
            before = cpu_seconds_of(server)
            dbt("run", "--threads", "1", "--vars", "{rebuild_below_rows: 0}", "--select", *MODELS)
            for name in properties:
                thrift.rows(cursor, f"set `{name}` = {shipped[name]}")
            return {"increment": cpu_seconds_of(server) - before}

        # The first compiles the MERGEs.
        measure({})
        yield measure


if __name__ == "__main__":
    run(main)
