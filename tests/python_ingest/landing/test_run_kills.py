"""kill -9 between data files and commit: exactly once; test_run_kills_slow.py has the other points of a batch."""

from pathlib import Path

import pytest

from tests.support.kills import killed_at
from tests.support.topic_fixture import TopicFixture, assert_exactly_once

pytestmark = pytest.mark.stack


def test_a_batch_killed_before_its_commit_is_landed_once(topic: TopicFixture, models_dir: Path) -> None:
    assert_exactly_once(topic, killed_at("between data files and commit", topic, models_dir))
