"""The week rule in Python: labels, edges, and weeks that do not exist."""

from datetime import UTC, datetime, timedelta, timezone

import pytest

from python_common.errors import UserError
from python_common.weeks import IsoWeek, weeks_between, weeks_label


@pytest.mark.parametrize(
    ("moment", "label"),
    [
        (datetime(2026, 11, 15, 23, 59, 59, 999999, UTC), "2026-W46"),
        (datetime(2026, 11, 16, tzinfo=UTC), "2026-W47"),
        (datetime(2024, 2, 29, 23, 59, tzinfo=UTC), "2024-W09"),
        (datetime(2024, 12, 30, tzinfo=UTC), "2025-W01"),
        (datetime(2021, 1, 3, tzinfo=UTC), "2020-W53"),
        (datetime(2026, 11, 16, 0, 30, tzinfo=timezone(timedelta(hours=1))), "2026-W46"),
    ],
)
def test_a_moment_falls_in_its_utc_week(moment: datetime, label: str) -> None:
    assert str(IsoWeek.of(moment)) == label


def test_a_week_is_closed_open_across_a_year_end() -> None:
    week = IsoWeek.parse("2026-W53")
    assert week.start == datetime(2026, 12, 28, tzinfo=UTC)
    assert week.end == datetime(2027, 1, 4, tzinfo=UTC)
    assert str(week.minus(-1)) == "2027-W01"


@pytest.mark.parametrize("label", ["2025-W53", "2026-W00", "2026-W7", "week 47", "", "0000-W01", "9999-W52"])
def test_a_week_that_does_not_exist_is_refused_by_name(label: str) -> None:
    with pytest.raises(UserError, match=label or "''"):
        IsoWeek.parse(label)


def test_the_last_complete_week_ends_at_or_before_now() -> None:
    assert str(IsoWeek.last_complete(datetime(2026, 11, 16, tzinfo=UTC))) == "2026-W46"
    assert str(IsoWeek.last_complete(datetime(2026, 11, 15, 23, 59, tzinfo=UTC))) == "2026-W45"


def test_a_range_of_weeks_has_both_ends_and_crosses_a_long_year() -> None:
    weeks = weeks_between("2020-W52..2021-W01")
    assert [str(week) for week in weeks] == ["2020-W52", "2020-W53", "2021-W01"]
    assert weeks_label(weeks) == "2020-W52..2021-W01"
    assert weeks_label(weeks_between("2020-W53..2020-W53")) == "2020-W53"
    for wrong, message in {"2020-W52": "is not a range", "2021-W01..2020-W53": "ends before it begins"}.items():
        with pytest.raises(UserError, match=message):
            weeks_between(wrong)
