"""The week rule in Python: ISO 8601 weeks, [Monday 00:00, next Monday 00:00) UTC. macros/weeks.sql is its SQL twin."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Self

from python_common.errors import UserError


@dataclass(frozen=True, order=True)
class IsoWeek:
    """One ISO week; `str()` gives the label, for instance `2026-W53`."""

    year: int
    number: int

    @classmethod
    def parse(cls, label: str) -> Self:
        """Return the week a label names.

        Raises:
            UserError: the label is malformed, or its year has no such week.
        """
        match = re.fullmatch(r"(\d{4})-W(\d{2})", label)
        # The last week of 9999 ends after Python's calendar does.
        if not match or match[1] == "9999":
            raise UserError(f"'{label}' is not a week", "Write it as year and ISO week, for instance 2026-W47")
        week = cls(int(match[1]), int(match[2]))
        try:
            date.fromisocalendar(week.year, week.number, 1)
        except ValueError:
            last = date(week.year, 12, 28).isocalendar().week if week.year else 0
            raise UserError(f"{label} does not exist", f"{match[1]} has ISO weeks W01 to W{last:02}") from None
        return week

    @classmethod
    def of(cls, moment: datetime) -> Self:
        """Return the week an aware moment falls in."""
        calendar = moment.astimezone(UTC).isocalendar()
        return cls(calendar.year, calendar.week)

    @classmethod
    def last_complete(cls, now: datetime) -> Self:
        """Return the newest week that ended at or before an aware moment."""
        return cls.of(now - timedelta(days=7))

    @property
    def start(self) -> datetime:
        """Monday 00:00 UTC, included."""
        return datetime.combine(date.fromisocalendar(self.year, self.number, 1), datetime.min.time(), UTC)

    @property
    def end(self) -> datetime:
        """The next Monday 00:00 UTC, excluded."""
        return self.start + timedelta(days=7)

    def minus(self, weeks: int) -> Self:
        """Return the week that many weeks earlier."""
        return type(self).of(self.start - timedelta(weeks=weeks))

    def __str__(self) -> str:
        return f"{self.year:04}-W{self.number:02}"


def weeks_between(text: str) -> list[IsoWeek]:
    """Return the weeks of a range such as `2026-W40..2026-W46`, both ends included; a UserError for another text."""
    first, dots, last = text.partition("..")
    if not dots:
        raise UserError(f"'{text}' is not a range of weeks", "Write it as 2026-W40..2026-W46")
    week, end = IsoWeek.parse(first), IsoWeek.parse(last)
    if end < week:
        raise UserError(f"{text} ends before it begins", "Name the older week first")
    return [end.minus(weeks) for weeks in reversed(range((end.start - week.start).days // 7 + 1))]


def weeks_label(weeks: Sequence[IsoWeek]) -> str:
    """Return a week, or the first and the last of several, as `weeks_between` reads it."""
    return str(weeks[0]) if len(weeks) == 1 else f"{weeks[0]}..{weeks[-1]}"
