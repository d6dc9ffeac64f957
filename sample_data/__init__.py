"""Sample data for every topic: deterministic, with every awkward record the rules speak of, and its truth.

    load(settings, orders=2_000, seed=1, weeks=4, last_week=None)

puts the first wave into Kafka, `wave=2` the second one after it. `produced_log` gives the same records in memory, and
`truth` what should become of them.

local_stack/, the tests and the benchmarks may import it; it is not in the wheel.
"""

import json
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from lakehouse.environment import home
from lakehouse.errors import UserError
from lakehouse.settings import Settings
from lakehouse.weeks import IsoWeek
from sample_data import produce
from sample_data.first_wave import first_wave
from sample_data.log import TOPICS, Log
from sample_data.pii import pii_values
from sample_data.plan import Plan
from sample_data.second_wave import FIRST_NUMBER, second_wave
from sample_data.truth.summary import summarise

__all__ = ["LoadReport", "load", "pii_values", "produced_log"]

_NOT_READY = {
    1: "holds records that are not those of this load",
    2: "does not hold the first wave of this load",
}


@dataclass(frozen=True)
class LoadReport:
    """What a load did: `records` counts what each topic holds now, `produced` is False when it held that before."""

    produced: bool
    records: dict[str, int]
    truth_path: Path


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


def _waves(plan: Plan, wave: int) -> list[Log]:
    first = first_wave(plan)
    return [first] if wave == 1 else [first, second_wave(plan, first)]


def produced_log(*, orders: int, seed: int, weeks: int, last_week: IsoWeek | None = None, wave: int = 1) -> Log:
    """Return all records up to a wave in order of arrival: the same for the same arguments, without a broker.

    Raises:
        UserError: an argument is out of range, or the last week has not ended.
    """
    waves = _waves(_plan(orders, seed, weeks, last_week, wave), wave)
    return [record for records in waves for record in records]


def load(
    settings: Settings,
    *,
    orders: int,
    seed: int,
    weeks: int,
    last_week: IsoWeek | None = None,
    wave: int = 1,
) -> LoadReport:
    """Produce a wave unless the topics hold it already, and write the truth to `truth.json` in the home directory.

    `orders` counts web shop orders, other sources follow from it. The weeks end with `last_week`, by default that of
    the load before, else the last complete one: a load that is repeated in a later week adds nothing.

    Raises:
        UserError: an argument is out of range, a service does not answer, or the topics hold other records.
    """
    path = home() / "truth.json"
    if last_week is None and path.exists():
        last_week = IsoWeek.parse(json.loads(path.read_text())["parameters"]["last_week"])
    plan = _plan(orders, seed, weeks, last_week, wave)
    waves = _waves(plan, wave)
    log = [record for records in waves for record in records]

    with produce.connection(settings):
        produce.create_topics(settings)
        ids = produce.register(log, settings)
        incomplete = produce.differing_topics(log, ids, settings)
        if incomplete:
            before = [record for records in waves[:-1] for record in records]
            unready = produce.differing_topics(before, ids, settings)
            if unready:
                # A topic that fits neither state is the one to name.
                topic = next((topic for topic in unready if topic in incomplete), unready[0])
                raise UserError(f"Topic {topic} {_NOT_READY[wave]}", produce.WIPE)
            produce.send(waves[-1], ids, settings)

    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(summarise(log, plan, wave), indent=2) + "\n")
    counts = Counter(record.topic for record in log)
    return LoadReport(bool(incomplete), {topic: counts[topic] for topic in TOPICS}, path)
