"""Ends a block that takes too long, whatever it waits for."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from python_common.errors import DeadlineError

# The weekly job runs daily: a step ends before the next run begins.
STEP_SECONDS = 16 * 3600.0
# The clean-up after a timeout may hang as well, so the alarm repeats.
AGAIN_SECONDS = 30.0


@contextmanager
def step_within(what: str, allowed: float = STEP_SECONDS) -> Iterator[None]:
    """End the block by a DeadlineError after some seconds. For the main thread, and not nested."""

    class _OverError(BaseException):
        """Not an Exception, so that no handler on the way catches it."""

    def ring(number: int, frame: FrameType | None) -> None:
        raise _OverError

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, allowed, AGAIN_SECONDS)
    try:
        yield
    except _OverError:
        raise DeadlineError(what, allowed) from None
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
