"""When each topic that is followed gets its next batch, and what counts as too many dead letters meanwhile."""

import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest
from prometheus_client.parser import text_string_to_metric_families

from python_common.errors import UserError
from python_common.spark import session
from python_ingest.declare.topics import Declaration
from python_ingest.landing import follow
from python_ingest.landing.follow import follow_topics, stopped_by_signals
from python_ingest.landing.run import Ingester, TopicResult
from tests.support.commands import LAKEHOUSE
from tests.support.race import until
from tests.support.topic_fixture import TopicFixture, assert_exactly_once, declared_in, produce


class Turns:
    """Has the batches that a function makes of a topic and the number of its turn."""

    def __init__(self, batch: Callable[[str, int], TopicResult], topics_at_once: int = 3) -> None:
        self.stopping = threading.Event()
        self.topics_at_once = topics_at_once
        self.turns: Counter[str] = Counter()
        self._batch = batch

    def turn(self, declaration: Declaration) -> TopicResult:
        self.turns[declaration.topic] += 1
        return self._batch(declaration.topic, self.turns[declaration.topic])

    def follow(self, topics: str, every: float, after: Callable[[TopicResult], None]) -> list[TopicResult]:
        watchdog = threading.Timer(60, self.stopping.set)
        watchdog.start()
        try:
            declarations = [Declaration(topic, "bronze", topic) for topic in topics]
            return follow_topics(cast(Ingester, cast(Any, self)), declarations, every, after)
        finally:
            watchdog.cancel()


def test_a_topic_that_takes_long_holds_up_no_other() -> None:
    seen: list[str] = []
    released = threading.Event()

    def batch(topic: str, _: int) -> TopicResult:
        if topic == "a":
            assert released.wait(30), "the others waited for it"
        return TopicResult(topic, records=1, lag=0)

    def after(result: TopicResult) -> None:
        seen.append(result.topic)
        if seen.count("b") >= 3 and seen.count("c") >= 3:
            released.set()
        if "a" in seen:
            turns.stopping.set()

    turns = Turns(batch)
    totals = {total.topic: total for total in turns.follow("abc", 0.01, after)}
    assert seen.index("a") >= 6
    assert [totals[topic].records for topic in "abc"] == [turns.turns[topic] for topic in "abc"]


@pytest.mark.parametrize("topics_at_once", [1, 2, 3])
def test_a_topic_that_is_behind_starves_no_other(topics_at_once: int) -> None:
    seen: list[str] = []

    def after(result: TopicResult) -> None:
        seen.append(result.topic)
        if seen.count("b") >= 3 and seen.count("c") >= 3 and seen.count("a") > 20:
            turns.stopping.set()

    turns = Turns(lambda topic, _: TopicResult(topic, lag=int(topic == "a")), topics_at_once)
    turns.follow("abc", 0.01, after)
    assert turns.turns["a"] > 20


def test_a_failed_topic_waits_and_a_stop_lets_batches_end() -> None:
    failure = UserError("no leader", "wait")

    def batch(topic: str, turn: int) -> TopicResult:
        if topic == "b" and turn == 2:
            turns.stopping.set()
            return TopicResult("b", records=7, lag=5)
        return TopicResult(topic, lag=5, error=failure if topic == "a" else None)

    turns = Turns(batch)
    failing, other = turns.follow("ab", 1000, lambda _: None)
    assert (failing.error, other.records) == (failure, 7)
    assert turns.turns == {"a": 1, "b": 2}


def test_dead_letters_are_limited_by_the_last_hour(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(follow, "RECENT_SECONDS", 3600.0)
    monkeypatch.setattr(follow.time, "monotonic", lambda: now[0])
    # A hundred million good records, then an hour later nothing but dead letters, then good ones again.
    batches = [(100_000_000, 0), (3_000, 3_000), (3_000, 3_000), (1_000_000, 0), (30, 30), (30, 30)]
    warned: list[bool] = []

    def batch(topic: str, turn: int) -> TopicResult:
        records, dead_letters = batches[turn - 1]
        return TopicResult(topic, records, dead_letters, lag=1)

    def after(result: TopicResult) -> None:
        warned.append(result.over_limit)
        now[0] += 3601 if len(warned) in (1, 4) else 1
        if len(warned) == len(batches):
            turns.stopping.set()

    turns = Turns(batch)
    (total,) = turns.follow("a", 1, after)
    assert warned == [False, True, False, False, True, False]
    assert (total.records, total.over_limit) == (101_006_060, True)


def test_an_error_of_what_is_done_after_a_turn_ends_it() -> None:
    def after(_: TopicResult) -> None:
        raise UserError("Spark's Java process has ended", "run again")

    turns = Turns(lambda topic, _: TopicResult(topic, lag=1))
    with pytest.raises(UserError, match="has ended"):
        turns.follow("ab", 1, after)
    assert turns.stopping.is_set()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_only_the_first_signal_asks_to_stop(number: signal.Signals) -> None:
    stopping, received = threading.Event(), list[int]()
    before = signal.signal(number, lambda number, _: received.append(number))
    try:
        with stopped_by_signals(stopping):
            signal.raise_signal(number)
            assert stopping.wait(10)
            assert received == []
            signal.raise_signal(number)
        assert received == [number]
    finally:
        signal.signal(number, before)


@pytest.mark.parametrize("inside", [0.5, 0.0])
def test_a_batch_in_hand_is_left_the_time_it_needs(inside: float) -> None:
    """A thread ends a command that hangs, and may look at the signal when its handler is the former one again."""
    script = f"""
import os, signal, threading, time
from python_common import process
from python_ingest.landing.follow import stopped_by_signals

def read_late(*arguments, read=os.read):
    byte = read(*arguments)
    time.sleep(0.1)
    return byte

os.read = read_late
process.UNHANDLED_SECONDS = 0.1
process.end_at_sigterm()
with stopped_by_signals(threading.Event()):
    signal.raise_signal(signal.SIGTERM)
    time.sleep({inside})
time.sleep(0.5 - {inside})
try:
    signal.raise_signal(signal.SIGTERM)
except KeyboardInterrupt:
    print("as before")
"""
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stdout) == (0, "as before\n"), ended.stderr


def test_a_log_that_a_process_appends_to_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "LOG_BYTES", 10)
    log = tmp_path / "spark.log"
    session.rotate(log)
    with log.open("ab", buffering=0) as appended:
        for line in (b"first line\n", b"second\n", b"third\n", b"4\n"):
            appended.write(line)
            session.rotate(log)
    assert log.read_bytes() == b"4\n"
    assert (tmp_path / "spark.log.1").read_bytes() == b"second\nthird\n"


@pytest.mark.slow
def test_a_follower_lands_writes_metrics_and_ends_well(topic: TopicFixture, tmp_path: Path) -> None:
    other = topic.declaring(topic=f"{topic.name}.other", table=f"{topic.declaration.table}_other")
    other.make_topic()
    declared_in(tmp_path, topic.declaration, other.declaration)
    metrics = tmp_path / "ingest.prom"
    options = ["--every", "1s", "--max-records", "20", "--topics-at-once", "1", "--metrics-file", str(metrics)]
    command = [LAKEHOUSE, "--log-level=warning", "ingest", "run", "--follow", *options, "--models", str(tmp_path)]

    def has_landed(wanted: dict[str, float]) -> bool:
        text = metrics.read_text() if metrics.exists() else ""
        families = {family.name: family for family in text_string_to_metric_families(text)}
        rows = families.get("lakehouse_ingest_rows")
        return rows is not None and {sample.labels["topic"]: sample.value for sample in rows.samples} == wanted

    for _ in range(50):
        topic.produce(b"no schema")
    produce(topic, 50)
    follower = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        for count in (6, 12):
            produce(other, 6)
            until(partial(has_landed, {topic.name: 100, other.name: count}), seconds=120)
    finally:
        follower.send_signal(signal.SIGTERM)
        output, log = follower.communicate(timeout=120)
    assert follower.returncode == 0, output
    [warning] = log.splitlines()
    # How many the first batch has depends on the partitions.
    assert f"warning: {topic.name}: " in warning
    assert " of 20 records landed are dead letters, more than max_dead_letters allows" in warning
    assert_exactly_once(other, 12)
    assert topic.verify().issues == []
