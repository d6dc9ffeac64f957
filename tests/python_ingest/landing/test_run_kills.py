"""kill -9 at each step of a batch, and at random times with two ingesters at once: always exactly once.

TEST_ROUNDS is how often `make test-slow` runs the random part; a seed that failed runs again with TEST_SEED.
"""

import random
import time
from pathlib import Path

import pytest

from python_ingest.landing.run import Options
from tests.support.commands import run_lakehouse
from tests.support.kills import COMMIT, FILE, POINTS, kill, running
from tests.support.race import until
from tests.support.seeds import ROUNDS, SEED
from tests.support.topic_fixture import TopicFixture, assert_exactly_once, produce

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("point", POINTS["ingester"])
def test_a_batch_killed_at_any_step_is_landed_once(topic: TopicFixture, models_dir: Path, point: str) -> None:
    """A kill from outside may miss the moment: it is tried again with more records."""
    moment, pattern, _ = POINTS["ingester"][point]
    command = ("ingest", "run", topic.name, "--models", str(models_dir))
    produce(topic, 30)
    topic.land_well()
    for total in range(330, 1_831, 300):
        produce(topic, 300, start=total - 300)
        files, metadata = {*topic.directory.rglob("*")}, topic.table().metadata_location

        def is_committed(before: str = metadata) -> bool:
            return topic.table().metadata_location != before

        def is_there(before: set[Path] = files) -> bool:
            return bool({*topic.directory.rglob(pattern)} - before) if moment == FILE else is_committed()

        with running(*command) as process:
            while process.poll() is None and not is_there():
                time.sleep(0.001)
            is_hit = process.poll() is None
        if is_hit and is_committed() == (moment == COMMIT):
            break
    else:
        pytest.fail(f"no kill hit the moment {point}")
    again = run_lakehouse("--log-level=warning", *command)
    assert (again.returncode, again.stderr) == (0, "")
    assert_exactly_once(topic, total)


@pytest.mark.parametrize("seed", range(SEED, SEED + max(1, ROUNDS)))
def test_two_ingesters_killed_at_random_land_each_offset_once(topic: TopicFixture, models_dir: Path, seed: int) -> None:
    chance = random.Random(seed)
    produce(topic, 3)
    topic.land_well()
    produce(topic, 400, start=3)
    command = ("ingest", "run", topic.name, "--models", str(models_dir), "--max-records")
    with running(*command, "20") as one, running(*command, "30") as other:

        def have_ended() -> bool:
            return None not in (one.poll(), other.poll())

        until(lambda: len(topic.rows()) > 3 or have_ended(), seconds=60)
        for process in chance.sample([one, other], 2):
            time.sleep(chance.uniform(0, 2))
            kill(process)
    topic.land_well(Options(wait=10))
    assert_exactly_once(topic, 403)
