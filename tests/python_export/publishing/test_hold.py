"""What is far off the weeks before is held, until just that content is approved."""

import hashlib
from dataclasses import replace
from decimal import Decimal
from functools import partial

import pytest
from pyiceberg.catalog import Catalog

from python_common.config.settings import Settings
from python_common.errors import UserError
from python_common.weeks import IsoWeek
from python_export.publishing import hold
from python_export.publishing.hold import FEWEST, HeldError, far_off
from python_export.publishing.manifest import Manifest
from python_export.publishing.publish import Published, WithdrawnContentError, withdraw
from python_export.publishing.target import Target
from tests.support.hostile_rows import draft
from tests.support.in_process import Command
from tests.support.versions import publish_file

WEEK = IsoWeek(2020, 53)
FACTORS = {"rows": Decimal(3)}


def figures(rows: int, week: IsoWeek = WEEK, **totals: str) -> Manifest:
    return replace(draft(str(week)), rows=rows, control_totals=totals)


def is_far_off(value: int, before: list[int]) -> bool:
    """Return whether a number of rows is far off; a total of the same numbers must agree."""
    weeks = [figures(rows, amount=f"{rows}.00") for rows in before]
    reason = far_off(figures(value, amount=f"{value}.00"), weeks, dict.fromkeys(("rows", "amount"), Decimal(3)))
    assert reason.count("is not within") in (0, 2)
    return bool(reason)


@pytest.mark.parametrize(
    ("value", "before", "is_far"),
    [
        (1000, [1] * (FEWEST - 1), False),
        (1000, [1] * FEWEST, True),
        # The range has both ends. A week that is far off itself moves the median little.
        (10, [30] * 4, False),
        (9, [30] * 4, True),
        (90, [99, 1, 30, 2, 30, 3, 99], False),
        (91, [99, 1, 30, 2, 30, 3, 99], True),
        # The median of an even number of weeks is the mean of two.
        (31, [1, 10, 11, 99], False),
        (32, [1, 10, 11, 99], True),
        # An empty week, and one after empty ones.
        (0, [5] * 4, True),
        (5, [0] * 4, False),
        (-6, [-2] * 4, False),
        (-7, [-2] * 4, True),
        (2, [-2] * 4, True),
        (0, [-2] * 4, True),
    ],
)
def test_edges_of_what_is_far_off(value: int, before: list[int], is_far: bool) -> None:
    assert is_far_off(value, before) == is_far


def test_a_reason_names_figure_value_range_and_median() -> None:
    weeks = [figures(10, amount="1000.50") for _ in range(5)]
    reason = far_off(figures(31, amount="12345.67"), weeks, {"rows": Decimal("3"), "amount": Decimal("1.5")})
    assert reason == (
        "rows 31 is not within 3.33 to 30 (median 10 of 5 weeks, factor 3); "
        "amount 12,345.67 is not within 667 to 1,500.75 (median 1,000.5 of 5 weeks, factor 1.5)"
    )


def test_a_column_that_is_new_or_unknown() -> None:
    weeks = [figures(10) for _ in range(8)]
    assert far_off(figures(10, order_value="1"), weeks, {"order_value": Decimal(2)}) == ""
    with pytest.raises(UserError, match="The hold of events names order_valu, not a numeric column"):
        far_off(figures(10, order_value="1"), [], {"order_valu": Decimal(2)})


def publishing(
    catalog: Catalog, target: Target, week: IsoWeek, rows: int, content: str = "a", restated: str | None = None
) -> Published:
    """Publish a week that has so many rows, according to its manifest."""
    manifest = replace(draft(str(week)), rows=rows, restated=restated)
    review = partial(hold.review, catalog, target, FACTORS)
    return publish_file(target, f"note\n{content}\n", manifest, review=review)


def history(catalog: Catalog, target: Target, *rows: int) -> None:
    """Publish the weeks before WEEK, the last one last."""
    for back, number in enumerate(reversed(rows), start=1):
        publishing(catalog, target, WEEK.minus(back), number)


def sha256(content: str = "a") -> str:
    """Return how the SHA-256 of a file with a content begins."""
    return hashlib.sha256(f"note\n{content}\n".encode()).hexdigest()[:12]


def test_a_held_file_is_published_without_its_approval(
    catalog: Catalog, offline_settings: Settings, local: Target, export: Command
) -> None:
    approve = partial(export, offline_settings, "approve", "--week", str(WEEK), "--reason", "a sale")
    history(catalog, local, 10, 10, 10, 10)
    for _ in range(2):
        with pytest.raises(HeldError, match="its figures are far off the weeks before") as error:
            publishing(catalog, local, WEEK, 31)
    [row] = hold.TABLE.rows(catalog).values()
    assert (row.address, row.approved) == (local.address(f"events/{WEEK}"), None)
    assert row.reason == "rows 31 is not within 3.33 to 30 (median 10 of 4 weeks, factor 3)"
    # Mail and report have no figure of a file that is not published.
    assert "31" not in error.value.message
    command = f"`lakehouse export approve events --week 2020-W53 --sha256 {sha256()} --reason ...`"
    assert error.value.message.endswith(command)

    for wrong, issue in (
        (("order", "--sha256", sha256()), "order 2020-W53 is not held"),
        (("events", "--sha256", ""), "'' is not how a SHA-256 begins"),
        (("events", "--sha256", sha256()[:11]), f"'{sha256()[:11]}' is not how a SHA-256 begins"),
        (("events", "--sha256", sha256("b")), f"events 2020-W53 is held with another file, {sha256()}: "),
    ):
        refused = approve(*wrong)
        assert isinstance(refused.exception, UserError)
        assert refused.exception.message.startswith(issue)
    done = approve("events", "--sha256", sha256())
    assert (done.exit_code, done.output.startswith(f"events 2020-W53 is approved: {row.reason[:20]}")) == (0, True)

    with pytest.raises(HeldError):
        publishing(catalog, local, WEEK, 31, "other content")
    # The first content has lost its approval with this.
    with pytest.raises(HeldError):
        publishing(catalog, local, WEEK, 31)
    assert approve("events", "--sha256", sha256()).exit_code == 0
    version = publishing(catalog, local, WEEK, 31)
    assert (version.manifest.version, version.unchanged) == (1, False)
    # No figure of the file: a withdrawal must not leave one.
    assert version.manifest.warnings == ["held for review, then approved: a sale"]

    hold.drop(catalog, {row.address})
    refused = approve("events", "--sha256", sha256())
    assert isinstance(refused.exception, UserError)
    # What is published is not held, whatever its figures are.
    assert publishing(catalog, local, WEEK, 31).unchanged


def test_a_hold_compares_with_other_than_eight_weeks_before(catalog: Catalog, local: Target) -> None:
    history(catalog, local, 1000, 1000, *[10] * 7)
    # Nor with its first version, which late data may replace.
    for week in (WEEK, WEEK.minus(-1)):
        publishing(catalog, local, week, 10)
    for week, content, rows in ((WEEK.minus(1), "b", 12), (WEEK.minus(2), "b", 14)):
        publishing(catalog, local, week, rows, content)
    withdraw(local, f"events/{WEEK.minus(2)}/v2", "a wrong price")
    weeks = hold._weeks_before(local, draft(str(WEEK)))
    assert [(manifest.version, manifest.rows) for manifest in weeks] == [(2, 12), *[(1, 10)] * 6, (1, 1000)]
    assert hold._weeks_before(local, draft(str(WEEK.minus(9)))) == []


def test_withdrawn_or_restated_content_escapes_a_hold(catalog: Catalog, local: Target) -> None:
    history(catalog, local, 10, 10, 10)
    publishing(catalog, local, WEEK, 31)
    withdraw(local, f"events/{WEEK}/v1", "a wrong price")
    publishing(catalog, local, WEEK.minus(4), 10)
    with pytest.raises(WithdrawnContentError):
        publishing(catalog, local, WEEK, 31)
    with pytest.raises(HeldError):
        publishing(catalog, local, WEEK, 31, restated="it was right")
