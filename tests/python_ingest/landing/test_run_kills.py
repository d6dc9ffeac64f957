"""kill -9 at each step of a batch, and at random times with two ingesters at once: always exactly once.

TEST_ROUNDS is how often `make test-slow` runs the random part; a seed that failed runs again with TEST_SEED.
"""

import random
import time
from pathlib import Path

import pytest

from python_ingest.landing.run import Options
from tests.support.kills import POINTS, ingester, kill, killed_at
from tests.support.race import until
from tests.support.seeds import ROUNDS, SEED
from tests.support.topic_fixture import TopicFixture, assert_exactly_once, produce

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("point", POINTS)
def test_a_batch_killed_at_any_step_is_landed_once(topic: TopicFixture, models_dir: Path, point: str) -> None:
    assert_exactly_once(topic, killed_at(point, topic, models_dir))


@pytest.mark.parametrize("seed", range(SEED, SEED + max(1, ROUNDS)))
def test_two_ingesters_killed_at_random_land_each_offset_once(topic: TopicFixture, models_dir: Path, seed: int) -> None:
    chance = random.Random(seed)
    produce(topic, 3)
    topic.land_well()
    produce(topic, 400, start=3)
    small, large = ("--max-records", "20"), ("--max-records", "30")
    with ingester(topic, models_dir, *small) as one, ingester(topic, models_dir, *large) as other:

        def have_ended() -> bool:
            return None not in (one.poll(), other.poll())

        until(lambda: len(topic.rows()) > 3 or have_ended(), seconds=60)
        for process in chance.sample([one, other], 2):
            time.sleep(chance.uniform(0, 2))
            kill(process)
    topic.land_well(Options(wait=10))
    assert_exactly_once(topic, 403)
