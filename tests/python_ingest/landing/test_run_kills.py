"""kill -9 at every step of a batch, and at random times with two ingesters at once: always exactly once.

TEST_ROUNDS is how often `make test-slow` runs the random part; a seed that failed runs again with TEST_SEED.
"""

import os
import random
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from python_ingest.landing.run import Options
from tests.support.commands import LAKEHOUSE, run_lakehouse
from tests.support.seeds import SEED
from tests.support.topic_fixture import TopicFixture, assert_exactly_once, produce

pytestmark = pytest.mark.stack

ROUNDS = int(os.environ.get("TEST_ROUNDS", "1"))


@dataclass
class Progress:
    """How far a running ingester has come: what it has written since it was started, and whether it has committed."""

    topic: TopicFixture
    location: Path
    files: frozenset[Path]
    metadata: str

    @classmethod
    def of(cls, topic: TopicFixture) -> "Progress":
        table = topic.table()
        location = Path(table.location().removeprefix("file:"))
        return cls(topic, location, frozenset(location.rglob("*")), table.metadata_location)

    def wrote(self, pattern: str) -> bool:
        return bool(set(self.location.rglob(pattern)) - self.files)

    def committed(self) -> bool:
        return self.topic.table().metadata_location != self.metadata


POINTS: dict[str, Callable[[Progress], bool]] = {
    "between data files and commit": lambda progress: progress.wrote("metadata/*-m*.avro"),
    "while data files are written": lambda progress: progress.wrote("data/**/*.parquet"),
    "as soon as it is committed": Progress.committed,
}


@pytest.fixture
def start(topic: TopicFixture, models_dir: Path) -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """Start ingesters in separate sessions, so that a kill takes the JVM along."""
    started = []

    def run(*options: str) -> subprocess.Popen[bytes]:
        command = [LAKEHOUSE, "ingest", "run", topic.name, "--models", str(models_dir), *options]
        process = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
        )
        started.append(process)
        return process

    yield run
    for process in started:
        kill(process)


def kill(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def killed_at(point: str, topic: TopicFixture, models_dir: Path, start: Callable[..., subprocess.Popen[bytes]]) -> int:
    """Kill an ingester at a point of a batch, land what is left, and return how many records there are."""
    produce(topic, 30)
    topic.land_well()
    total = 30
    for _ in range(5):
        produce(topic, 300, start=total)
        total += 300
        progress = Progress.of(topic)
        process = start()
        while process.poll() is None and not POINTS[point](progress):
            time.sleep(0.001)
        hit = process.poll() is None
        kill(process)
        if hit and progress.committed() == (POINTS[point] is Progress.committed):
            break
    else:
        raise AssertionError(f"no kill hit the moment {point}")
    again = run_lakehouse("--log-level=warning", "ingest", "run", topic.name, "--models", str(models_dir))
    assert (again.returncode, again.stderr) == (0, "")
    return total


# One is in `make test`: the data files of a batch are there, and it is not committed.
@pytest.mark.parametrize(
    "point", [pytest.param(point, marks=() if "between" in point else pytest.mark.slow) for point in POINTS]
)
def test_a_batch_killed_at_any_step_is_landed_once(
    topic: TopicFixture, models_dir: Path, start: Callable[..., subprocess.Popen[bytes]], point: str
) -> None:
    assert_exactly_once(topic, killed_at(point, topic, models_dir, start))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(SEED, SEED + ROUNDS))
def test_two_ingesters_killed_at_random_land_each_offset_once(
    topic: TopicFixture, start: Callable[..., subprocess.Popen[bytes]], seed: int
) -> None:
    chance = random.Random(seed)
    produce(topic, 3)
    topic.land_well()
    total = 3
    produce(topic, 400, start=total)
    total += 400
    both = [start("--max-records", "20"), start("--max-records", "30")]
    landing = time.monotonic() + 60
    while len(topic.rows()) == 3 and any(process.poll() is None for process in both) and time.monotonic() < landing:
        time.sleep(0.1)
    assert len(topic.rows()) > 3 or all(process.poll() is None for process in both), (
        "no ingester was there to be killed"
    )
    for process in chance.sample(both, 2):
        time.sleep(chance.uniform(0, 2))
        kill(process)
    topic.land_well(Options(wait=10))
    assert_exactly_once(topic, total)
