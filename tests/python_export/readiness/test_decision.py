"""What a run records of issues and outcomes, in the place of which earlier facts."""

from itertools import product

from pyiceberg.catalog import Catalog

from python_common.errors import Issue
from python_common.weeks import IsoWeek
from python_export.readiness import decision

WEEK, BEFORE = IsoWeek(2026, 47), IsoWeek(2026, 46)


def recorded(catalog: Catalog) -> set[tuple[str, str | None, str]]:
    return {(row.message, row.week_label, row.origin) for row in decision.ISSUES.rows(catalog).values()}


def test_an_issue_stays_until_its_check_asks_about_it_again(catalog: Catalog) -> None:
    kinds, objects, weeks = ("verify", "build"), ("payments", "orders"), (None, str(WEEK), str(BEFORE))
    every = [Issue("old", object=name, kind=kind, week=week) for kind, name, week in product(kinds, objects, weeks)]
    for asked in ((), ("orders",), ("payments", "orders"), None):
        decision.ISSUES.change(catalog, lambda _: {})
        decision.record_issues(catalog, every, {}, ())
        found = [Issue("new", object="orders", kind="build")]
        always = decision.record_issues(catalog, found, {"build": asked}, [WEEK])
        stays = {
            (kind, name, week)
            for kind, name, week in product(kinds, objects, weeks)
            if kind == "verify" or (asked is not None and name not in asked) or week == str(BEFORE)
        }
        rows = [row for row in decision.ISSUES.rows(catalog).values() if row.message == "old"]
        assert {(row.kind, row.origin, row.week_label) for row in rows} == stays
        assert len(rows) == len(stays)
        assert ("new", None, "orders") in recorded(catalog)
        assert always == {"old", "new"}


def test_a_check_that_finds_nothing_more_ends_its_issues(catalog: Catalog) -> None:
    decision.record_issues(catalog, [Issue("lost rows", object="payments", kind="verify")], {}, ())
    assert decision.record_issues(catalog, [], {"build": None, "file": {"payments"}}, [WEEK]) == {"lost rows"}
    assert decision.record_issues(catalog, [], {"verify": None}, []) == set()


def test_the_log_has_a_row_per_change_of_an_outcome(catalog: Catalog) -> None:
    address = "s3://shop/exports/orders/2026-W47"
    for outcome in ("behind", "behind", "published v1", "published v1", "behind", "published v1"):
        decision.log_outcomes(catalog, {address: outcome, "/srv/trial/orders/2026-W47": "behind"})
    rows = decision.LOG.rows(catalog).values()
    assert [row.outcome for row in rows if row.address == address] == [
        "behind",
        "published v1",
        "behind",
        "published v1",
    ]
    assert [row.outcome for row in rows if row.address.startswith("/srv/")] == ["behind"]
