"""Landing without end: one batch of each topic per turn, at an interval, until a signal asks to stop."""

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, Thread
from types import FrameType

from python_ingest.landing.run import Ingester, TopicResult
from python_ingest.topics import Declaration

SIGNALS = (signal.SIGINT, signal.SIGTERM)


def follow(
    ingester: Ingester, declarations: list[Declaration], every: float, after_turn: Callable[[list[TopicResult]], None]
) -> list[TopicResult]:
    """Land a batch of every topic each `every` seconds; return what was done in all, when `ingester.stopping` is set.

    A topic with more than a batch waiting gets its next one at once, in turns of such topics alone, until it is every
    topic's turn again. `after_turn` gets the results of a turn; of these `over_limit` is set when all that was landed
    so far has come to be over the limit.
    """
    totals = {declaration.topic: TopicResult(declaration.topic) for declaration in declarations}
    behind: list[Declaration] = []
    due = time.monotonic()
    while not ingester.stopping.is_set():
        started = time.monotonic()
        if started < due and not behind:
            # Not longer: a signal that the system hands to another thread is seen when this one wakes.
            ingester.stopping.wait(min(due - started, 1.0))
            continue
        chosen = behind if started < due else declarations
        due = due if started < due else started + every
        results = ingester.catch_up(chosen, batches=1)
        behind = [
            declaration for declaration, result in zip(chosen, results, strict=True) if result.lag and not result.error
        ]
        for declaration, result in zip(chosen, results, strict=True):
            _add(totals[result.topic], result, declaration)
        after_turn(results)
    return list(totals.values())


@contextmanager
def stopped_by_signals(stopping: Event) -> Iterator[None]:
    """Set `stopping` at Ctrl-C or SIGTERM inside the block; a second signal does what it did before."""
    before = {number: signal.getsignal(number) for number in SIGNALS}

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    def stop(_: int, __: FrameType | None) -> None:
        # In a thread of its own: the interrupted one may be inside the event, holding its lock.
        Thread(target=stopping.set).start()
        restore()

    for number in SIGNALS:
        signal.signal(number, stop)
    try:
        yield
    finally:
        restore()


def _add(total: TopicResult, turn: TopicResult, declaration: Declaration) -> None:
    total.records += turn.records
    total.dead_letters += turn.dead_letters
    total.key_errors += turn.key_errors
    total.batches += turn.batches
    total.seconds += turn.seconds
    total.lag, total.error = turn.lag, turn.error
    over_limit = declaration.max_dead_letters.exceeded(total.records, total.dead_letters)
    turn.over_limit, total.over_limit = over_limit and not total.over_limit, over_limit
