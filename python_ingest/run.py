"""The loop: plan and land, batch after batch, until the table has what the broker has."""

import time
import traceback
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

from pyiceberg.table import Table
from pyspark.sql import SparkSession
from sqlalchemy.exc import OperationalError

from lakehouse.catalog import load_catalog, make_namespace, unavailable
from lakehouse.errors import UserError
from lakehouse.settings import Settings
from python_ingest import backfill, identity, offsets, tables
from python_ingest.batch import Lander, NewSchemaId, Plan
from python_ingest.broker import Broker, TopicState
from python_ingest.commit import Landed, Refused
from python_ingest.evolve import TopicSchemas
from python_ingest.offsets import OffsetRange, Position, PositionReader
from python_ingest.registry import Registry
from python_ingest.session import log_file
from python_ingest.topics import Declaration

TOPICS_AT_ONCE = 3
ATTEMPTS = 5


@dataclass(frozen=True)
class Options:
    """`max_records` caps the offsets of one batch of a topic; `wait` bounds, in seconds, how long
    an unreachable broker or registry is waited for.

    `until` ends a run before the first record of a partition that is stamped at it or later.
    `from_earliest` also lands what the broker has and the table lacks before its position.
    `accept_gap` goes on behind records that the broker deleted before they were landed.
    """

    max_records: int = 1_000_000
    wait: float = 30.0
    until: datetime | None = None
    from_earliest: bool = False
    accept_gap: bool = False


@dataclass
class TopicResult:
    """What a run did for one topic. `lag` counts the offsets that are left; None if unknown."""

    topic: str
    records: int = 0
    dead_letters: int = 0
    batches: int = 0
    seconds: float = 0.0
    lag: int | None = None
    error: UserError | None = None


class Reporter(Protocol):
    """Whoever tells a person how far a topic is. Called from several threads."""

    def waiting(self, topic: str, offsets_left: int) -> None:
        """So many offsets are still to be landed."""

    def landed(self, topic: str, what: Landed) -> None:
        """A batch is committed."""

    def note(self, topic: str, text: str) -> None:
        """Something happened that is no error."""


@dataclass
class Ingester:
    """What all topics of a process share; kept between runs, for it knows schemas and manifests."""

    settings: Settings
    spark: Callable[[], SparkSession]
    options: Options
    reporter: Reporter
    writer: str = field(default_factory=lambda: str(uuid.uuid4()))

    def __post_init__(self) -> None:
        self.broker = Broker(self.settings, self.options.wait)
        # Before the catalog, which is created if need be: without a broker nothing is written.
        self.broker.check()
        self._catalog = load_catalog(self.settings, create=True)
        self._registry = Registry(self.settings, self.options.wait)
        self._loops: dict[str, _TopicLoop] = {}

    def catch_up(self, declarations: list[Declaration]) -> list[TopicResult]:
        """Land what the broker has of each topic; a topic that fails does not stop the others."""
        for schema in sorted({each.schema for each in declarations}):
            make_namespace(self._catalog, schema)
        for each in declarations:
            self._loops.setdefault(each.topic, _TopicLoop(self, each, self._registry))
        pool = ThreadPoolExecutor(TOPICS_AT_ONCE)
        try:
            return list(pool.map(self._result, declarations))
        finally:
            # Waits for nothing: after Ctrl-C a thread may sit in a bounded wait for a broker.
            pool.shutdown(wait=False, cancel_futures=True)

    def _result(self, declaration: Declaration) -> TopicResult:
        result = TopicResult(declaration.topic)
        started = time.monotonic()
        try:
            self._loops[declaration.topic].catch_up(result)
        except UserError as error:
            result.error = error
        except OperationalError:
            result.error = unavailable(self.settings)
        except Exception as error:  # of one topic; it must not take the others along
            result.error = _unexpected(declaration.topic, error)
        result.seconds = time.monotonic() - started
        return result


def _unexpected(topic: str, error: Exception) -> UserError:
    """Return what to say of an error that nothing above knows; its message may quote a record, its place may not."""
    with suppress(OSError):
        log_file().parent.mkdir(parents=True, exist_ok=True)
        with log_file().open("a") as log:
            log.write(f"{topic}: {type(error).__name__}\n")
            traceback.print_tb(error.__traceback__, file=log)
    return UserError(f"{topic}: failed unexpectedly ({type(error).__name__})", f"See the end of {log_file()}")


class _TopicLoop:
    def __init__(self, ingester: Ingester, declaration: Declaration, registry: Registry) -> None:
        self._broker = ingester.broker
        self._reporter = ingester.reporter
        self._options = ingester.options
        self._declaration = declaration
        self._positions = PositionReader()
        self._empty: set[OffsetRange] = set()
        self._lander = Lander(
            settings=ingester.settings,
            spark=ingester.spark,
            catalog=load_catalog(ingester.settings),
            declaration=declaration,
            schemas=TopicSchemas(registry),
            writer=ingester.writer,
            wait=ingester.options.wait,
        )

    def catch_up(self, result: TopicResult) -> None:
        """Land batches until nothing is left, counting them in `result`.

        Raises:
            UserError: the topic cannot be landed; batches before stay committed.
        """
        failures = 0
        planned_from: Position | None = None
        while True:
            # The table first: the broker's ends are then never behind it, whatever others land meanwhile.
            table = tables.load(self._lander.catalog, self._declaration)
            topic = self._broker.describe(self._declaration.topic)
            position = Position()
            if table is not None:
                position = self._positions.read(table)
                identity.check(table, self._declaration, topic, position)
                gaps = offsets.lost(position, topic)
                identity.accept_gaps(table, topic.topic, gaps, self._options.accept_gap)
            if position != planned_from:
                # Whoever came first, the topic got on: only standing still counts as failing.
                failures, planned_from = 0, position
            waiting = offsets.waiting(position, topic)
            holes = self._holes(table, topic, position)
            if self._options.until is not None:
                ends = self._broker.offsets_at(topic, self._options.until)
                waiting, holes = offsets.before(waiting, ends), offsets.before(holes, ends)
            result.lag = offsets.count(waiting) + offsets.count(holes)
            self._reporter.waiting(topic.topic, result.lag)
            if not waiting and not holes:
                return
            # One range per partition and batch: Spark's Kafka source takes no more.
            first_holes = list({hole.partition: hole for hole in reversed(holes)}.values())
            ranges = offsets.capped(first_holes or waiting, self._options.max_records)
            try:
                landed = self._lander.land(table, Plan(topic, position, ranges, filling_holes=bool(holes)))
            except (Refused, NewSchemaId) as refused:
                failures += 1
                reason = str(refused) or "a schema id appeared"
                if failures == ATTEMPTS:
                    raise UserError(
                        f"{topic.topic}: {reason}, {ATTEMPTS} times in a row",
                        f"See whether another ingester works on this table, and {log_file()}",
                    ) from None
                self._reporter.note(topic.topic, f"nothing was committed: {reason}; planning again")
            else:
                result.records += landed.rows
                result.dead_letters += landed.dead_letters
                result.batches += 1
                self._reporter.landed(topic.topic, landed)

    def _holes(self, table: Table | None, topic: TopicState, position: Position) -> list[OffsetRange]:
        if table is None or not self._options.from_earliest:
            return []
        return backfill.holes(self._lander.settings, table, topic, position, self._options.wait, self._empty)
