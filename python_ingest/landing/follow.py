"""Landing without end: one batch of each topic at an interval, until a signal asks to stop."""

import heapq
import signal
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from threading import Event, Thread
from types import FrameType

from python_ingest.declare.topics import Declaration
from python_ingest.landing.run import Ingester, TopicResult

SIGNALS = (signal.SIGINT, signal.SIGTERM)
RECENT_SECONDS = 3600.0
# When a batch ended, its records, and the dead letters among them.
Landing = tuple[float, int, int]


def follow_topics(
    ingester: Ingester, declarations: list[Declaration], every: float, after_turn: Callable[[TopicResult], None]
) -> list[TopicResult]:
    """Land a batch of every topic each `every` seconds; return what was done in all, when `ingester.stopping` is set.

    Each topic has a due time, and waits for no other one. A topic with more than a batch waiting is due again at once,
    behind those that were due before. `after_turn` gets the result of each batch; its `over_limit` is set when the
    dead letters of the last hour exceed the limit.
    """
    totals = {declaration.topic: TopicResult(declaration.topic) for declaration in declarations}
    recent: dict[str, deque[Landing]] = {topic: deque() for topic in totals}
    due = [(time.monotonic(), number) for number in range(len(declarations))]
    running: dict[Future[TopicResult], tuple[float, int]] = {}
    pool = ThreadPoolExecutor(ingester.topics_at_once)
    try:
        while running or not ingester.stopping.is_set():
            now = time.monotonic()
            while (
                due and due[0][0] <= now and len(running) < ingester.topics_at_once and not ingester.stopping.is_set()
            ):
                _, number = heapq.heappop(due)
                running[pool.submit(ingester.turn, declarations[number])] = now, number
            # Not longer: a signal that the system hands to another thread is seen when this one wakes.
            pause = min(max(due[0][0] - now, 0.01), 1.0) if due else 1.0
            if not running:
                ingester.stopping.wait(pause)
            for future in wait(running, pause, FIRST_COMPLETED).done:
                started, number = running.pop(future)
                result, now = future.result(), time.monotonic()
                is_behind = bool(result.lag) and not result.error
                heapq.heappush(due, (now if is_behind else max(now, started + every), number))
                _add(totals[result.topic], result, declarations[number], recent[result.topic])
                after_turn(result)
    except BaseException:
        ingester.stopping.set()
        raise
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
    return list(totals.values())


@contextmanager
def stopped_by_signals(stopping: Event) -> Iterator[None]:
    """Set `stopping` at Ctrl-C or SIGTERM inside the block; a second signal does what it did before."""
    before = {number: signal.getsignal(number) for number in SIGNALS}
    # Behind it, a thread ends a process that does not handle SIGTERM as before.
    wakeup_fd = signal.set_wakeup_fd(-1)

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(wakeup_fd)

    def stop(_: int, __: FrameType | None) -> None:
        # In a separate thread: the interrupted one may be inside the event, holding its lock.
        Thread(target=stopping.set).start()
        restore()

    for number in SIGNALS:
        signal.signal(number, stop)
    try:
        yield
    finally:
        restore()


def _add(total: TopicResult, turn: TopicResult, declaration: Declaration, recent: deque[Landing]) -> None:
    total.records += turn.records
    total.dead_letters += turn.dead_letters
    total.key_errors += turn.key_errors
    total.batches += turn.batches
    total.seconds += turn.seconds
    total.lag, total.error = turn.lag, turn.error
    now = time.monotonic()
    recent.append((now, turn.records, turn.dead_letters))
    while recent[0][0] < now - RECENT_SECONDS:
        recent.popleft()
    records, dead_letters = sum(landing[1] for landing in recent), sum(landing[2] for landing in recent)
    over_limit = declaration.max_dead_letters.exceeded(records, dead_letters)
    turn.over_limit, total.over_limit = over_limit and not total.over_limit, over_limit
