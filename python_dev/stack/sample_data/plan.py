"""What a set of sample data is a pure function of, and the time it covers."""

from dataclasses import dataclass
from random import Random

from python_common.weeks import IsoWeek

SECOND, MINUTE, HOUR, DAY = 1_000, 60_000, 3_600_000, 86_400_000
WEEK = 7 * DAY

# Kafka refuses timestamps more than an hour ahead, and a load may run right after the week has ended.
_GRACE = 29 * MINUTE


@dataclass(frozen=True)
class Span:
    """Events in [start_ms, end_ms); no Kafka timestamp after limit_ms."""

    start_ms: int
    end_ms: int
    limit_ms: int

    def moment(self, rng: Random) -> int:
        """Return a random event time."""
        return rng.randrange(self.start_ms, self.end_ms)

    def capped(self, timestamp_ms: int, rng: Random) -> int:
        """Return a timestamp, drawn again from the last minutes when it would lie after the limit."""
        if timestamp_ms <= self.limit_ms:
            return timestamp_ms
        return rng.randint(self.limit_ms - 10 * MINUTE, self.limit_ms)


@dataclass(frozen=True)
class Plan:
    """The parameters of a load: web shop orders, random seed, and the ISO weeks up to `last_week`."""

    orders: int
    seed: int
    weeks: int
    last_week: IsoWeek

    @property
    def end_ms(self) -> int:
        """The Monday 00:00 UTC after the last week."""
        return int(self.last_week.end.timestamp()) * 1000

    @property
    def start_ms(self) -> int:
        """The first Monday 00:00 UTC."""
        return self.end_ms - self.weeks * WEEK

    @property
    def boundaries(self) -> list[int]:
        """Every Monday 00:00 UTC from the start to the end, both included."""
        return list(range(self.start_ms, self.end_ms + 1, WEEK))

    @property
    def first_wave(self) -> Span:
        """All weeks."""
        return Span(self.start_ms, self.end_ms, self.end_ms + _GRACE)

    @property
    def second_wave(self) -> Span:
        """Late changes of the last day, and the first minutes of the next week."""
        return Span(self.end_ms - DAY, self.end_ms + 5 * MINUTE, self.end_ms + _GRACE)

    def rng(self, name: str) -> Random:
        """Return the random stream of one part, so that a change in one part moves no other."""
        return Random(f"{self.seed}/{name}")
