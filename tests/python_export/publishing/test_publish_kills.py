"""kill -9 at every step of a publication, and writers at once: a reader always sees complete versions only."""

import json
import signal
from collections.abc import Callable, Iterator
from datetime import timedelta
from itertools import pairwise
from pathlib import Path

import pytest

from python_common.config.settings import Settings
from python_export.notify import index
from python_export.publishing.manifest import published
from python_export.publishing.target import LocalTarget, open_target, staging
from tests.support.publishing import FORKS, POINTS, publish_and_die, publish_and_report, read_all_the_while, start
from tests.support.versions import publish_content

pytestmark = pytest.mark.slow

Stop = Callable[[], tuple[int, list[str]]]


@pytest.fixture
def reader(published_to: Settings) -> Iterator[Stop]:
    """A process that reads; called, it stops and returns how many versions it saw and what was wrong with them."""
    stop = FORKS.Event()
    mine, theirs = FORKS.Pipe()
    process = start(read_all_the_while, published_to, stop, theirs)
    # Only the reader holds this end: if it dies, recv() fails instead of waiting.
    theirs.close()
    assert mine.recv() == "reading"

    def result() -> tuple[int, list[str]]:
        stop.set()
        return mine.recv()

    yield result
    stop.set()
    process.join()


def test_a_publication_killed_at_any_step_is_complete_or_missing(published_to: Settings, reader: Stop) -> None:
    target = open_target(published_to)
    kind = "local" if isinstance(target, LocalTarget) else "s3"
    for number, point in enumerate(POINTS[kind], start=1):
        content = f"note\n{point}\n"
        child = start(publish_and_die, published_to, content, kind, point)
        child.join()
        assert child.exitcode == -signal.SIGKILL, point
        is_there = not point.startswith("before")
        assert len(published(target)) == number - (not is_there), point
        # The next run needs no help: same content, one version, and the pointer is right.
        with staging(target.staging):
            target.clean(["events"])
        version = publish_content(target, content)
        assert (version.manifest.version, version.unchanged) == (number, is_there), point
        pointer = json.loads(target.read("events/latest.json"))
        assert pointer["version"] == published(target)[-1].version == number, point
        index.write(target)
        [listed] = json.loads(target.read("versions.json"))["datasets"]["events"]
        assert listed["version"] == number, point
    target.clean(["events"], abandoned_after=timedelta(0))
    assert not [*Path(published_to.export_root).glob("*/**/.*")]
    assert reader() == (len(POINTS[kind]), [])


def test_exports_of_one_week_at_once_agree_or_are_refused(published_to: Settings, reader: Stop) -> None:
    contents = ["note\na\n", "note\na\n", "note\nb\n", "note\nb\n"]
    begin = FORKS.Event()
    pipes = [FORKS.Pipe() for _ in contents]
    children = [
        start(publish_and_report, published_to, content, begin, theirs)
        for content, (_, theirs) in zip(contents, pipes, strict=True)
    ]
    for _, theirs in pipes:
        theirs.close()
    begin.set()
    outcomes = [mine.recv() for mine, _ in pipes]
    for child in children:
        child.join()
    versions = published(open_target(published_to))
    new = [outcome[0] for outcome in outcomes if isinstance(outcome, tuple) and outcome[1]]
    assert sorted(new) == [manifest.version for manifest in versions] == list(range(1, len(versions) + 1))
    assert all(manifest.sha256 != other.sha256 for manifest, other in pairwise(versions))
    assert all("with other content" in outcome for outcome in outcomes if isinstance(outcome, str))
    assert reader()[1] == []
