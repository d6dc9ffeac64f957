"""kill -9 at every step of a publication: a reader always sees complete versions only."""

import json
from datetime import timedelta

import pytest

from python_common.config.settings import Settings
from python_export.publishing.manifest import published
from python_export.publishing.target import open_target, staging
from tests.support.kills import POINTS, killed_at
from tests.support.publishing import publish, reading
from tests.support.versions import publish_content, tree

pytestmark = pytest.mark.slow


def test_a_publication_killed_at_any_step_is_complete_or_missing(published_to: Settings) -> None:
    target = open_target(published_to)
    process = f"version published, {type(target.store).__name__.lower()}"
    with reading(target) as (seen, wrong):
        for number, point in enumerate(POINTS[process], start=1):
            content = f"note\n{point}\n"
            killed_at(process, point, publish, published_to, content)
            is_there = not point.startswith("before")
            assert len(published(target)) == number - (not is_there), point
            # The next run needs no help: same content, one version, and the pointer is right.
            with staging(target.staging):
                target.clean(["events"])
            version = publish_content(target, content)
            assert (version.manifest.version, version.unchanged) == (number, is_there), point
            pointer = json.loads(target.read("events/latest.json"))
            assert pointer["version"] == published(target)[-1].version == number, point
    assert (len(seen), wrong) == (number, set())
    target.clean(["events"], abandoned_after=timedelta(0))
    # Of each version its manifest, file and dictionary; and the pointer.
    assert len(tree(target)) == 3 * number + 1
