"""Sample data for every topic: deterministic, with every awkward record the rules speak of, and what is expected of it.

    load(settings, orders=2_000, seed=1, weeks=4, last_week=None)

puts the first wave into Kafka, `wave=2` the second one after it, each as far as the topics do not hold it.
`produced_log` gives the same records in memory, and `expected` what should become of them.

python_dev/stack/, the tests and the benchmarks may import it; it is not in the wheel.
"""

import json
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from python_common.config.environment import home
from python_common.config.settings import Settings
from python_common.errors import UserError
from python_common.weeks import IsoWeek
from python_dev.stack.sample_data import produce
from python_dev.stack.sample_data.expected.summary import summarise
from python_dev.stack.sample_data.first_wave import first_wave
from python_dev.stack.sample_data.log import TOPICS, Log, Record
from python_dev.stack.sample_data.plan import DAY, Plan
from python_dev.stack.sample_data.second_wave import FIRST_NUMBER, second_wave

__all__ = ["LoadReport", "load", "produced_log"]


@dataclass(frozen=True)
class LoadReport:
    """What a load did: `records` counts what each topic has now, `produced` is False if it had that before."""

    produced: bool
    records: dict[str, int]
    expected_path: Path


def _plan(orders: int, seed: int, weeks: int, last_week: IsoWeek | None, wave: int) -> Plan:
    newest = IsoWeek.last_complete(datetime.now(UTC))
    if not 1 <= orders < FIRST_NUMBER:
        raise UserError("The number of orders is out of range", f"Give 1 to {FIRST_NUMBER - 1}")
    if not 1 <= weeks <= 520:
        raise UserError("The number of weeks is out of range", "Give 1 to 520")
    if wave not in (1, 2):
        raise UserError(f"There is no wave {wave}", "Give 1 or 2")
    if last_week and last_week > newest:
        raise UserError(f"{last_week} has not ended", f"Give {newest} or an earlier week")
    return Plan(orders, seed, weeks, last_week or newest)


def _with_second(plan: Plan, first: Log, wave: int) -> Log:
    return first if wave == 1 else first + second_wave(plan, first)


def produced_log(*, orders: int, seed: int, weeks: int, last_week: IsoWeek | None = None, wave: int = 1) -> Log:
    """Return all records up to a wave in order of arrival: the same for the same arguments, without a broker.

    Raises:
        UserError: an argument is out of range, or the last week has not ended.
    """
    plan = _plan(orders, seed, weeks, last_week, wave)
    return _with_second(plan, first_wave(plan), wave)


def load(
    settings: Settings,
    *,
    orders: int,
    seed: int,
    weeks: int,
    last_week: IsoWeek | None = None,
    wave: int = 1,
    topics: Collection[str] = (),
    behind: str | None = None,
) -> LoadReport:
    """Produce what `topics` (default: all) lack up to a wave, and write the expected results to `expected.json`.

    `orders` counts web shop orders, other sources follow from it. The weeks end with `last_week`, by default that of
    the load before, else the last complete one: a load that is repeated adds nothing, also in a later week or after
    the second wave. The topic `behind` is left without its last day, as if its producer were late: the next load of
    the topic adds that.

    Raises:
        UserError: an argument is out of range, a service does not answer, or the topics hold other records.
    """
    for topic in (*topics, *filter(None, [behind])):
        if topic not in TOPICS:
            raise UserError(f"There is no topic {topic}", f"Choose from {', '.join(TOPICS)}")
    if behind and behind not in (topics or TOPICS):
        raise UserError(f"Topic {behind} is not among the topics to produce", "Add it to them")
    path, newest_wave = home() / "expected.json", wave
    if last_week is None and path.exists():
        loaded = json.loads(path.read_text())["parameters"]
        last_week, newest_wave = IsoWeek.parse(loaded["last_week"]), max(wave, loaded["wave"])
    plan = _plan(orders, seed, weeks, last_week, wave)
    first = first_wave(plan)
    log = _with_second(plan, first, newest_wave)
    complete = _without_last_day(first if wave == 1 else log, plan, behind)
    due = Counter((record.topic, record.partition) for record in complete if record.topic in (topics or TOPICS))

    with produce.connection(settings):
        produce.create_topics(settings)
        ids = produce.register(log, settings)
        end_offsets = produce.record_counts(log, ids, settings)
        lacking = [
            record for record in log if end_offsets[_partition_of(record)] <= record.offset < due[_partition_of(record)]
        ]
        produce.send(lacking, ids, settings)

    holding = [
        record for record in log if record.offset < max(end_offsets[_partition_of(record)], due[_partition_of(record)])
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(summarise(holding, plan, newest_wave), indent=2) + "\n")
    counts = Counter(record.topic for record in holding)
    return LoadReport(bool(lacking), {topic: counts[topic] for topic in TOPICS}, path)


def _partition_of(record: Record) -> tuple[str, int]:
    return record.topic, record.partition


def _without_last_day(log: Log, plan: Plan, topic: str | None) -> Log:
    """Return a log in which each partition of a topic ends before its first record of the last day."""
    ended = set()
    before = []
    for record in log:
        if record.topic == topic and record.timestamp_ms >= plan.end_ms - DAY:
            ended.add(record.partition)
        if record.topic != topic or record.partition not in ended:
            before.append(record)
    return before
