"""Ingesters as processes that are killed, with their JVM: at a point of a batch, or when a test does it."""

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.commands import LAKEHOUSE, run_lakehouse
from tests.support.topic_fixture import TopicFixture, produce

# The files that a batch has written by then; None where it is committed.
POINTS = {
    "while data files are written": "data/**/*.parquet",
    "between data files and commit": "metadata/*-m*.avro",
    "as soon as it is committed": None,
}


@contextmanager
def ingester(topic: TopicFixture, models_dir: Path, *options: str) -> Iterator[subprocess.Popen[bytes]]:
    """Start an ingester, in a separate session so that a kill takes the JVM along, and kill it in the end."""
    command = [LAKEHOUSE, "ingest", "run", topic.name, "--models", str(models_dir), *options]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    try:
        yield process
    finally:
        kill(process)


def kill(process: subprocess.Popen[bytes]) -> None:
    """Kill an ingester, if it runs, and its JVM."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def killed_at(point: str, topic: TopicFixture, models_dir: Path) -> int:
    """Kill an ingester at a point of a batch, land what is left, and return how many records there are."""
    pattern = POINTS[point]
    produce(topic, 30)
    topic.land_well()
    files, metadata = set[Path](), ""

    def is_committed() -> bool:
        return topic.table().metadata_location != metadata

    def is_there() -> bool:
        return bool({*topic.directory.rglob(pattern)} - files) if pattern else is_committed()

    for total in range(330, 1_831, 300):
        produce(topic, 300, start=total - 300)
        files, metadata = {*topic.directory.rglob("*")}, topic.table().metadata_location
        with ingester(topic, models_dir) as process:
            while process.poll() is None and not is_there():
                time.sleep(0.001)
            hit = process.poll() is None
        if hit and is_committed() == (pattern is None):
            again = run_lakehouse("--log-level=warning", "ingest", "run", topic.name, "--models", str(models_dir))
            assert (again.returncode, again.stderr) == (0, "")
            return total
    raise AssertionError(f"no kill hit the moment {point}")
