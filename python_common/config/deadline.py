"""Limits: how long a thing may take before it ends with an error, and how often a change is tried."""

import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import FrameType

from python_common.config.environment import environment
from python_common.config.variables import Count, Limit, Variables, for_exports, variable
from python_common.errors import DeadlineError

# The clean-up after a timeout may hang as well, so the alarm repeats.
AGAIN_SECONDS = 30.0


class Limits(Variables):
    """How long each thing may take, and how often a change is tried."""

    lock: Limit = variable(
        "LAKEHOUSE_LOCK_TIMEOUT",
        "how long another run is waited for",
        "1h",
        read_by="weekly, export, erase, ingest, fork, review",
    )
    executor: Limit = variable(
        "LAKEHOUSE_EXECUTOR_TIMEOUT",
        "how long the ingester waits for the first executor of a Spark cluster",
        "10m",
        read_by="weekly, erase, ingest",
    )
    registry: Limit = variable("LAKEHOUSE_REGISTRY_TIMEOUT", "how long an answer of the schema registry may take", "5s")
    statement: Limit = for_exports(
        "LAKEHOUSE_STATEMENT_TIMEOUT",
        "how long a statement on the Thrift server may take before that counts as a failure",
        "1h",
    )
    build: Limit = for_exports("LAKEHOUSE_BUILD_TIMEOUT", "the same for a `dbt build`", "6h")
    step: Limit = for_exports("LAKEHOUSE_STEP_TIMEOUT", "the same for a step of the weekly job", "8h")
    commit_attempts: Count = variable(
        "LAKEHOUSE_COMMIT_ATTEMPTS",
        "how often a change of a table is tried, and a batch planned, that the commits of others come before",
        "5",
    )


def limits() -> Limits:
    """Return the limits of this process's environment; raises as `Variables.of`."""
    return Limits.of(environment())


@contextmanager
def step_within(env: Mapping[str, str], what: str) -> Iterator[None]:
    """End the block by a DeadlineError when LAKEHOUSE_STEP_TIMEOUT is over. For the main thread, and not nested."""

    class _OverError(BaseException):
        """Not an Exception, so that no handler on the way catches it."""

    def ring(number: int, frame: FrameType | None) -> None:
        raise _OverError

    allowed = Limits.of(env).step.total_seconds()
    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, allowed, AGAIN_SECONDS)
    try:
        yield
    except _OverError:
        raise DeadlineError(what, "LAKEHOUSE_STEP_TIMEOUT", allowed) from None
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
