"""A week that is not over is refused before anything else happens."""

from datetime import UTC, datetime, timedelta

import pytest

from lakehouse.errors import UserError
from lakehouse.weeks import IsoWeek
from python_export.completeness import require_past

WEEK = IsoWeek(2020, 53)
END = datetime(2021, 1, 4, tzinfo=UTC)


def test_a_week_is_over_at_its_end() -> None:
    require_past(WEEK, END)
    with pytest.raises(UserError, match=r"2020-W53 is not over: .* 2021-01-04 .* last complete week is 2020-W52"):
        require_past(WEEK, END - timedelta(microseconds=1))
