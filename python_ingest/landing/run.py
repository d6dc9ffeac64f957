"""The loop: plan and land, batch after batch, until the table has what the broker had when the run began."""

import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial

from pyiceberg.table import Table
from pyspark.sql import SparkSession

from python_common.catalog.catalog import load_catalog
from python_common.catalog.commits import COMMIT_ATTEMPTS, CommitConflict
from python_common.config.settings import Settings
from python_common.errors import UserError
from python_common.failure import to_user_error
from python_common.log import log
from python_ingest.bronze import positions, rewrite, tables, topic_identity
from python_ingest.bronze.commit import Landed
from python_ingest.bronze.positions import Position, position_of
from python_ingest.declare.topics import Declaration
from python_ingest.kafka.admin import Broker, TopicState
from python_ingest.kafka.offset_range import OffsetRange
from python_ingest.landing import backfill
from python_ingest.landing.batch import BatchPlan, BatchWriter, NewSchemaId, SparkFailed

# The broker answers while Spark decodes another topic; more topics share the same cores.
TOPICS_AT_ONCE = 3
# A store that is busy, or a file that another process moves, may be over by then.
RETRY_SECONDS = 5.0
HOLDER_PAUSE_SECONDS = 10.0


@dataclass(frozen=True)
class Options:
    """How a run lands.

    `max_records` caps the offsets of one batch of a topic.
    `wait` bounds, in seconds, how long an unreachable broker or registry is waited for.
    `until` ends a run before the first record of a partition that is stamped at it or later.
    `from_earliest` also lands what the broker has and the table lacks before its position.
    `accept_gap` goes on behind records that the broker deleted before they were landed, or whose checksum is wrong.
    `topics_at_once` is how many topics are landed at the same time.
    """

    max_records: int = 1_000_000
    wait: float = 30.0
    until: datetime | None = None
    from_earliest: bool = False
    accept_gap: bool = False
    topics_at_once: int = TOPICS_AT_ONCE


@dataclass
class TopicResult:
    """What a run did for one topic.

    `lag` counts the offsets not yet landed, up to the end offsets read at start; None if unknown. `over_limit` is
    whether more of the records are dead letters than the topic's declaration allows. `notes` are about new schemas.
    """

    topic: str
    records: int = 0
    dead_letters: int = 0
    key_errors: int = 0
    batches: int = 0
    seconds: float = 0.0
    lag: int | None = None
    over_limit: bool = False
    notes: list[str] = field(default_factory=list)
    error: UserError | None = None


class Reporter:
    """Logs the progress of topics. Called from several threads, of a topic by one at a time."""

    def __init__(self) -> None:
        self._landed: Counter[str] = Counter()
        self._caught_up: set[str] = set()

    def waiting(self, topic: str, offsets_left: int) -> None:
        """Log that a topic has caught up, once until it has offsets to land again."""
        if offsets_left:
            self._caught_up.discard(topic)
        elif topic not in self._caught_up:
            self._caught_up.add(topic)
            log.info("%s: caught up", topic)

    def landed(self, topic: str, what: Landed) -> None:
        """Log a committed batch."""
        self._landed[topic] += what.rows
        done = self._landed[topic]
        log.info(f"{topic}: {done:,} records landed, {what.dead_letters:,} dead letters in the last batch")

    def note(self, topic: str, text: str) -> None:
        """Log an event that is no error."""
        log.info("%s: %s", topic, text)


@dataclass
class Ingester:
    """What all topics of a process share; reused by runs, for it knows schemas and positions."""

    settings: Settings
    spark: Callable[[], SparkSession]
    options: Options
    reporter: Reporter = field(default_factory=Reporter)
    writer: str = field(default_factory=lambda: str(uuid.uuid4()))
    after_turn: Callable[[BatchWriter], None] = lambda _: None

    def __post_init__(self) -> None:
        self.broker = Broker(self.settings, self.options.wait)
        # Before the catalog, which is created if need be: without a broker nothing is written.
        self.broker.check()
        load_catalog(self.settings, create=True)
        self._loops: dict[str, _TopicLoop] = {}
        self.topics_at_once = self.options.topics_at_once
        self.stopping = threading.Event()
        """Set to end the run after the batches in progress."""

    def catch_up(self, declarations: list[Declaration]) -> list[TopicResult]:
        """Land what the broker has of each topic at this moment.

        A topic that fails does not stop the others.
        """
        results = [TopicResult(declaration.topic) for declaration in declarations]
        loops = [self._loop(declaration) for declaration in declarations]
        pool = ThreadPoolExecutor(self.topics_at_once)
        try:
            # The ends of all topics first: a run ends, and the last topic has its turn, however fast the others grow.
            list(pool.map(lambda loop, result: self._try(result, loop.prepare), loops, results))
            states = self.broker.describe_all([result.topic for result in results if result.error is None])
            ends = [partial(loop.take_ends, states.get(loop.topic)) for loop in loops]
            list(pool.map(self._try, results, ends))
            list(pool.map(lambda loop, result: self._try(result, partial(loop.land, result, None)), loops, results))
        except BaseException:
            # A thread that is in a batch begins no other one.
            self.stopping.set()
            raise
        finally:
            # Waits for nothing: after Ctrl-C a thread may sit in a bounded wait for a broker.
            pool.shutdown(wait=False, cancel_futures=True)
        for declaration, result in zip(declarations, results, strict=True):
            result.over_limit = declaration.max_dead_letters.exceeded(result.records, result.dead_letters)
        return results

    def turn(self, declaration: Declaration) -> TopicResult:
        """Land one batch of what the broker has of a topic at this moment."""
        loop, result = self._loop(declaration), TopicResult(declaration.topic)
        self._try(result, loop.prepare)
        self._try(result, loop.take_ends)
        self._try(result, lambda: loop.land(result, 1))
        self._try(result, lambda: self.after_turn(loop.batch_writer))
        return result

    def _loop(self, declaration: Declaration) -> "_TopicLoop":
        if declaration.topic not in self._loops:
            self._loops[declaration.topic] = _TopicLoop(self, declaration)
        return self._loops[declaration.topic]

    def _try(self, result: TopicResult, step: Callable[[], None]) -> None:
        if result.error is not None:
            return
        started = time.monotonic()
        try:
            step()
        except Exception as error:  # of one topic; it must not take the others along
            result.error = to_user_error(error, self.settings, result.topic)
        result.seconds += time.monotonic() - started


class _TopicLoop:
    def __init__(self, ingester: Ingester, declaration: Declaration) -> None:
        self._broker = ingester.broker
        self._reporter = ingester.reporter
        self._note = partial(ingester.reporter.note, declaration.topic)
        self._options = ingester.options
        self._stopping = ingester.stopping
        self._declaration = declaration
        self.topic = declaration.topic
        self._ends: dict[int, int] = {}
        # The metadata file that was read last.
        self._position: tuple[str, Position] | None = None
        # The state of the topic after a metadata file was read, for one look.
        self._states: dict[str, TopicState] = {}
        # By the generation of the topic, and partition.
        self._searched: dict[int, dict[int, int]] = {}
        self.batch_writer = BatchWriter(
            ingester.settings, ingester.spark, declaration, ingester.options.wait, ingester.writer
        )

    def prepare(self) -> None:
        """Make the table, for others build on it whether or not there is a topic; a UserError if that fails."""
        self._prepared = tables.prepared(self.batch_writer.catalog, self._declaration).metadata_location

    def take_ends(self, state: TopicState | None = None) -> None:
        """Note the end of each partition as it is now: nothing behind it is landed before the next call.

        `state` is the topic's after `prepare`, if it is known; a UserError if the broker does not answer.
        """
        topic = state or self._broker.describe(self.topic)
        self._states = {self._prepared: topic}
        until = self._options.until
        self._ends = topic.end if until is None else self._broker.offsets_at(topic, until)

    def land(self, result: TopicResult, batches: int | None) -> None:
        """Land batches, at most so many, until nothing is left before the ends, counting them in `result`.

        Raises:
            UserError: the topic cannot be landed; batches before stay committed.
        """
        failures = spark_failures = 0
        planned_from: Position | None = None
        while not self._stopping.is_set():
            try:
                # The table first: the broker's ends are then never behind it, whatever others land meanwhile.
                table = tables.prepared(self.batch_writer.catalog, self._declaration)
                if holder := rewrite.holder(self.batch_writer.catalog, table):
                    self._note(f"paused: its table is held by {holder}")
                    if batches is not None:
                        return
                    self._stopping.wait(HOLDER_PAUSE_SECONDS)
                    continue
                state = self._states.pop(table.metadata_location, None)
                topic = state or self._broker.describe(self.topic)
                topic_identity.record_topic_id(table, topic)
                # Gaps are found by statistics, so a file without them, or of two partitions, must be named.
                from_files = spark_failures > 0 or self._options.from_earliest
                position = self._position_of(table, from_files)
                topic_identity.check(table, self._declaration, topic, position)
                gaps = positions.lost(position, topic)
                topic_identity.accept_gaps(table, topic.topic, gaps, self._options.accept_gap)
                if position != planned_from:
                    # Another writer's commit is progress: only failures at one position count.
                    failures, spark_failures, planned_from = 0, 0, position
                plan = self._plan(table, topic, position, result)
                if result.batches == batches or not plan.ranges:
                    return
                if state is not None:
                    continue  # The topic may have been recreated since: only a check without new records trusts it.
                landed = self.batch_writer.land(table, plan)
            except (CommitConflict, NewSchemaId) as refused:
                failures += 1
                reason = str(refused) or "a schema id appeared"
                if failures == COMMIT_ATTEMPTS:
                    raise UserError(
                        f"{self._declaration.topic}: {reason}, {failures} times in a row",
                        "See whether another ingester works on this table",
                    ) from None
                self._note(f"nothing was committed: {reason}; planning again")
            except SparkFailed as failure:
                if spark_failures:
                    raise
                spark_failures = 1
                self._note(f"nothing was committed: {failure.message}; planning again in some seconds")
                self._stopping.wait(RETRY_SECONDS)
            else:
                result.records += landed.rows
                result.dead_letters += landed.dead_letters
                result.key_errors += landed.key_errors
                result.batches += 1
                self._reporter.landed(topic.topic, landed)
                result.notes += landed.notes
                for note in landed.notes:
                    self._note(note)

    def _position_of(self, table: Table, from_files: bool) -> Position:
        """Return the position in a table; from its files after a failure of Spark, which names a damaged one."""
        if from_files or self._position is None or self._position[0] != table.metadata_location:
            self._position = table.metadata_location, position_of(table, from_files)
        return self._position[1]

    def _plan(self, table: Table, topic: TopicState, position: Position, result: TopicResult) -> BatchPlan:
        waiting = positions.before(positions.waiting(position, topic), self._ends)
        gaps: list[OffsetRange] = []
        if self._options.from_earliest:
            settings, searched = self.batch_writer.settings, self._searched.setdefault(position.generation, {})
            # One range per partition and batch: Spark's Kafka source takes no more.
            gaps = backfill.first_gaps(settings, table, topic, position, self._options.wait, searched)
            gaps = positions.before(gaps, self._ends)
        result.lag = positions.count(waiting) + positions.count(gaps)
        self._reporter.waiting(topic.topic, result.lag)
        ranges = positions.capped(gaps or waiting, self._options.max_records)
        return BatchPlan(topic, position, ranges, bool(gaps), self._options.accept_gap)
