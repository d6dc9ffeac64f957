"""`python -m bench.ingest`: lands one topic with every peer, in turn, and prints what each needed."""

import statistics
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from bench import Goal, goals_of, run, table_of
from bench.ingest import commands, stages, topic, width
from bench.ingest.history import PER_DAY, plant
from bench.ingest.landings import Bench
from bench.ingest.peer import Job
from python_common.output import console
from python_dev.stack.temporary import running
from python_ingest.kafka.admin import Broker

TOPIC = "payments"
BATCHES = 10
AROUND = 10
CHECKS = 10
# Of what a batch or a check for new records costs after a long history, in what it costs after a short one.
GOAL = 1.5
# Seconds per topic of a run over all.
TOPIC_GOALS = {"no new records": 10 / 200, "new records": 60 / 200}
# Flink's checkpoints of a long topic, and what the ingester does with as many seconds or with so many records.
COMMIT_SECONDS, COMMIT_RECORDS = 10, 300_000


def main(
    records: Annotated[int, typer.Option(min=1_000, help="Records in the topic that every peer lands.")] = 3_000_000,
    rounds: Annotated[int, typer.Option(min=0, help="How often each peer takes its turn; 0 leaves them out.")] = 3,
    peers: Annotated[str, typer.Option(help="Which take part, in this order.")] = "ingester,flink,plain,floor",
    batches: Annotated[int, typer.Option(help="Land so many batches of 1,000 records; 0: do not.")] = 1_000,
    with_stages: Annotated[bool, typer.Option("--stages", help="Print where the time of one batch goes.")] = False,
    backlog: Annotated[int, typer.Option(help="Land so many records with many commits; 0: do not.")] = 0,
    history: Annotated[str, typer.Option(help="Land after the metadata of so many batches, as 10,1000.")] = "",
    topics: Annotated[int, typer.Option(help="Land so many topics, with and without new records; 0: do not.")] = 0,
    widths: Annotated[str, typer.Option("--width", help="Land records of so many columns, as 9,50,300,1000.")] = "",
    home: Annotated[Path | None, typer.Option(help="Keep the topics here for the next run.")] = None,
) -> None:
    """Measure the ingester against Flink SQL, a plain Python consumer and a consumer that lands nothing.

    Every table is counted after it was landed; a job with a wrong count has no figures.
    """
    names = peers.split(",")
    commands.require(names if rounds or backlog else ["ingester"])
    with (
        tempfile.TemporaryDirectory(prefix="bench-") as temporary,
        running(home or Path(temporary), "kafka", "registry") as (settings, _),
    ):
        bench = Bench(settings, Path(temporary))
        if rounds:
            compare(bench, records, rounds, names)
        if with_stages:
            stages.land_in_stages(bench, f"{TOPIC}-{records}", records)
        if batches:
            land_small_batches(bench, batches)
        if backlog:
            land_backlog(bench, backlog, "flink" in names)
        if history:
            land_after_history(bench, [int(batches) for batches in history.split(",")])
        if topics:
            land_topics(bench, topics)
        if widths:
            width.land_widths(bench, [int(columns) for columns in widths.split(",")])


def compare(bench: Bench, records: int, rounds: int, names: list[str]) -> None:
    """Land the topic with each peer in turn, round by round, and print the table of all."""
    name = f"{TOPIC}-{records}"
    bench.fill(name, records)
    measured: dict[tuple[str, str], list[Job]] = defaultdict(list)
    for number in range(1, rounds + 1):
        for peer_name in names:
            with bench.start(peer_name, name) as peer:
                for kind, batch_records in jobs(peer_name, records):
                    job = bench.land(peer, records, batch_records, peer_name != "floor")
                    if job is None:
                        continue
                    measured[peer_name, kind].append(job)
                    console.print(
                        f"round {number}, {peer_name}, {kind}: {records / job.seconds:,.0f} records/s,"
                        f" {job.cpu_seconds / records * 1e6:.1f} CPU s per million"
                    )
    console.print(comparison(measured, records))
    console.print(goals_of(goals_of_one_batch(measured)))


def jobs(peer: str, records: int) -> Iterator[tuple[str, int]]:
    """Yield what a peer does in a round: each job's kind, and the most records in one of its batches."""
    yield from [("cold", records), ("warm", records)]
    if peer in ("ingester", "flink"):
        yield "warm", records
    if peer == "ingester":
        yield "ten batches", records // BATCHES


def comparison(measured: dict[tuple[str, str], list[Job]], records: int) -> Table:
    """Return the table: medians of all rounds, against those of Flink's jobs of the same kind."""
    figures = "records/s\nmedian", "\nbest", "of\nFlink's", "CPU s per\nmillion", "of\nFlink's", "peak\nMiB"
    table = table_of("peer", *figures, second="job")
    for (peer, kind), jobs in measured.items():
        flink = measured.get(("flink", "cold" if kind == "cold" else "warm"))
        speed = [records / job.seconds for job in jobs]
        cpu = statistics.median(job.cpu_seconds / records * 1e6 for job in jobs)
        flink_speed = statistics.median(records / job.seconds for job in flink) if flink else None
        flink_cpu = statistics.median(job.cpu_seconds / records * 1e6 for job in flink) if flink else None
        table.add_row(
            peer,
            kind,
            f"{statistics.median(speed):,.0f}",
            f"{max(speed):,.0f}",
            f"{statistics.median(speed) / flink_speed:.2f}" if flink_speed else "-",
            f"{cpu:.1f}",
            f"{cpu / flink_cpu:.2f}" if flink_cpu else "-",
            f"{max(job.peak_bytes for job in jobs) / 2**20:,.0f}",
        )
    return table


def goals_of_one_batch(measured: dict[tuple[str, str], list[Job]]) -> Iterator[Goal]:
    """Yield the goals of one batch beside Flink, where both were measured."""
    for kind, at_least in (("warm", 1.5), ("cold", 1.3)):
        ours, flink = measured.get(("ingester", kind)), measured.get(("flink", kind))
        if ours and flink:
            speed = statistics.median(job.seconds for job in flink) / statistics.median(job.seconds for job in ours)
            yield Goal(f"one batch, {kind}: records/s of Flink's", speed, at_least, at_least=True)


def land_small_batches(bench: Bench, batches: int) -> None:
    """Land batches of 1,000 records in one table, and print what one costs early and late."""
    size = 1_000
    name = f"{TOPIC}-{batches * size}"
    bench.fill(name, batches * size)
    with bench.start("ingester", name) as peer:
        # First in larger batches, so that the small ones find the process warm.
        bench.land(peer, batches * size, 5 * size)
        job = bench.land(peer, batches * size, size)
    if job is None:
        return
    console.print("\nCPU seconds of one batch of 1,000 records (median of those around it)")
    for count in [count for count in (10, 100, 1_000) if count <= batches]:
        around = job.batch_cpu_seconds[max(0, count - AROUND) : count + AROUND]
        console.print(f"  with {count:,} batches in the table: {statistics.median(around):.2f}")


def land_backlog(bench: Bench, records: int, with_flink: bool) -> None:
    """Land a long topic in one batch and with many commits, each job in a new process, and print its goals.

    The ingester ends a batch by records. How many it lands in 10 seconds, its single batch shows.
    """
    name = f"{TOPIC}-{records}"
    bench.fill(name, records)
    table = table_of("job", "records/s", "CPU s per\nmillion", "commits", "s per\ncommit", "peak\nMiB")

    def landed(peer_name: str, what: str, batch_records: int) -> Job | None:
        with bench.start(peer_name, name) as peer:
            job = bench.land(peer, records, batch_records)
        if job is not None:
            figures = f"{records / job.seconds:,.0f}", f"{job.cpu_seconds / records * 1e6:.1f}"
            commits = len(job.batch_cpu_seconds)
            each = (f"{commits:,}", f"{job.seconds / commits:.1f}") if commits else ("-", "-")
            table.add_row(what, *figures, *each, f"{job.peak_bytes / 2**20:,.0f}")
            console.print(f"{what}: {job.seconds:.0f} s")
        return job

    flink = landed("flink", f"flink, a checkpoint each {COMMIT_SECONDS} s", records) if with_flink else None
    one = landed("ingester", "ingester, one batch", records)
    if one is None:
        return
    goals = []
    in_time = round(COMMIT_SECONDS * records / one.seconds)
    for what, batch_records in ((f"each {COMMIT_SECONDS} s", in_time), (f"each {COMMIT_RECORDS:,}", COMMIT_RECORDS)):
        if batch_records >= records:
            console.print(f"a commit {what}: that is the single batch of these records; no figures")
            continue
        job = landed("ingester", f"ingester, a commit {what}", batch_records)
        if job is None:
            continue
        if flink is not None:
            speed = flink.seconds / job.seconds
            goals.append(Goal(f"{what}: records/s of Flink's", speed, 1.3, at_least=True))
        further = (job.cpu_seconds - one.cpu_seconds) / (len(job.batch_cpu_seconds) - 1)
        goals.append(Goal(f"{what}: CPU s per further batch", further, 0.3))
        goals.append(Goal(f"{what}: peak of one batch's", job.peak_bytes / one.peak_bytes, 1))
    console.print(f"\n{records:,} records, from the start of the process")
    console.print(table)
    console.print(goals_of(goals))


def land_after_history(bench: Bench, sizes: list[int]) -> None:
    """Land small batches in tables with a short and a long history, and print what each costs.

    Tables have the snapshots of their last day; one more has those of the five days that Iceberg keeps by default.
    """
    records, size = 20_000, 1_000
    name = f"{TOPIC}-history"
    bench.fill(name, records)
    state = Broker(bench.settings, 30).describe(name)
    histories = [(batches, min(batches, PER_DAY)) for batches in sizes]
    histories += [(5 * PER_DAY, 5 * PER_DAY)]
    planted = {f"after_{batches}_with_{retained}": (batches, retained) for batches, retained in histories}
    for table, (batches, retained) in planted.items():
        console.print(f"{table}: writing the metadata of {batches:,} batches")
        plant(bench.settings, state, table, batches, retained)
    figures: dict[str, dict[str, float]] = {table: {} for table in planted}
    with bench.start("ingester", name) as peer:
        for table in ("warm_up", *planted):
            job = peer.land(table, size)
            if job.rows != records:
                raise SystemExit(f"error: {job.rows} of {records} rows landed in {table}")
            if table in planted:
                checks = [peer.land(table, size).cpu_seconds for _ in range(CHECKS)]
                figures[table] = {"a batch": statistics.median(job.batch_cpu_seconds[1:])}
                figures[table]["a check without new records"] = statistics.mean(checks)
    for table in planted:
        with bench.start("ingester", name) as peer:
            figures[table]["a process's first check"] = peer.land(table, size).cpu_seconds
    first = figures[next(iter(planted))]
    goals = []
    for what in first:
        console.print(f"\nCPU seconds of {what}")
        for table, (batches, retained) in planted.items():
            cost = figures[table][what]
            where = f"after {batches:,} batches, with {retained:,} snapshots"
            console.print(f"  {where}: {cost:.3f}")
            if figures[table] is not first:
                goals.append(Goal(f"{what} {where}: of the first", cost / first[what], GOAL))
    console.print(goals_of(goals))


def land_topics(bench: Bench, count: int) -> None:
    """Land many topics in runs of one process, with and without new records, and print what a run costs."""
    names = [f"{TOPIC}-{number:03}-of-{count}" for number in range(count)]
    goals = {}
    with bench.start("ingester", ",".join(names)) as peer:
        for what, records in (
            ("the first records", 10),
            *[("no new records", 0)] * 3,
            ("new records", 10),
            ("no new records", 0),
        ):
            if records:
                topic.add_to_each(bench.settings, names, records)
            job = peer.land("many", 1_000)
            if job.rows != records * count:
                raise SystemExit(f"error: {job.rows} of {records * count} rows landed")
            console.print(
                f"{count} topics, {what}: {job.seconds:.1f} s, {job.cpu_seconds:.1f} CPU s,"
                f" {job.cpu_seconds / count * 1e3:.0f} ms each"
            )
            if what in TOPIC_GOALS:
                goals[what] = Goal(f"{count} topics, {what}: s", job.seconds, TOPIC_GOALS[what] * count)
    console.print(goals_of(goals.values()))


if __name__ == "__main__":
    run(main)
