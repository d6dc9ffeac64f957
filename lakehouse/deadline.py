"""How long a thing may take before it counts as hanging: it then ends with an error that says so."""

import math
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import FrameType

from lakehouse.durations import seconds
from lakehouse.errors import UserError

DEFAULTS = {
    "LAKEHOUSE_LOCK_TIMEOUT": "1h",
    "LAKEHOUSE_STATEMENT_TIMEOUT": "1h",
    "LAKEHOUSE_BUILD_TIMEOUT": "6h",
    "LAKEHOUSE_STEP_TIMEOUT": "8h",
}
# What is being cleaned up when the time is over may hang as well, so the alarm comes back.
AGAIN_SECONDS = 30.0


class DeadlineError(UserError):
    """Something took longer than it may."""

    def __init__(self, what: str, variable: str, limit: float) -> None:
        super().__init__(
            f"{what} has not ended within {math.ceil(limit)} s",
            f"Find out what it waits for, or raise {variable}, and run it again",
        )


def limit(variable: str, env: Mapping[str, str]) -> float:
    """Return the seconds that a variable, or its default, allows.

    Raises:
        UserError: it is no duration, or none at all.
    """
    text = env.get(variable) or DEFAULTS[variable]
    try:
        found = seconds(text)
    except UserError as error:
        raise UserError(f"{variable}: {error.message}", error.remedy) from None
    if not found:
        raise UserError(f"{variable} is {text}", "Give it some time")
    return found


@contextmanager
def step_within(env: Mapping[str, str], what: str) -> Iterator[None]:
    """End the block when LAKEHOUSE_STEP_TIMEOUT is over, whatever it waits for. For the main thread, and not nested.

    Raises:
        DeadlineError: it was over.
    """

    class _OverError(BaseException):
        """No handler of errors on its way is to take it for one of its own."""

    def ring(number: int, frame: FrameType | None) -> None:
        raise _OverError

    allowed = limit("LAKEHOUSE_STEP_TIMEOUT", env)
    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, allowed, AGAIN_SECONDS)
    try:
        yield
    except _OverError:
        raise DeadlineError(what, "LAKEHOUSE_STEP_TIMEOUT", allowed) from None
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
