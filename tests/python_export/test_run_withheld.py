"""Runs that withhold or hold datasets, and datasets that are published once per week."""

from contextlib import suppress
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import typer
from pyiceberg.exceptions import NoSuchTableError
from typer.testing import CliRunner

from python_common.errors import Issue, UserError
from python_dbt.run import build
from python_export.cli import versions
from python_export.cli.outcome import WITHHELD, end_run
from python_export.cli.run import app
from python_export.datasets import declared
from python_export.notify.exported import Exported
from python_export.publishing import hold, late, publish
from python_export.publishing.target import open_target
from python_export.readiness import decision
from tests.support.export_run import EMPTY_WEEK, EVENTS_SQL, EVENTS_YML, SCHEMA_NAME, WEEK, Shop, in_next_week, run_dbt
from tests.support.hostile_rows import MONDAY, hostile_rows
from tests.support.versions import publish_content

pytestmark = pytest.mark.slow


def test_a_week_far_off_is_published_before_it_is_approved(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    for back in range(1, 5):
        week, totals = str(WEEK.minus(back)), {"amount": "10.00"}
        publish_content(open_target(shop.settings), "note\na\n", week, control_totals=totals)
    figures = "amount 30.01 is not within 3.33 to 30 (median 10 of 4 weeks, factor 3)"
    export = "        export:\n"
    with shop.edited(EVENTS_YML, export, f"{export}          hold: {{rows: 3, amount: 3}}\n"):
        far = [(number, MONDAY, "x", Decimal(amount), *[None] * 4) for number, amount in ((1, 10), (10, "20.01"))]
        shop.land(*far, in_next_week(1000))
        exported = shop.run()
        assert (exported.published, exported.has_issues, exported.held_weeks) == ([], False, 1)
        [row] = hold.TABLE.rows(shop.catalog).values()
        assert row.reason == figures
        [notice] = exported.notices()
        assert notice.message.startswith("events 2020-W53 is withheld: its figures are far off the weeks before")
        with pytest.raises(typer.Exit) as ended:
            end_run(exported, None)
        assert ended.value.exit_code == WITHHELD
        assert shop.previewed() == ("never published", f"held by the last run, {row.sha256[:12]}: {figures}")

        monkeypatch.setattr(versions, "from_environment", lambda: shop.settings)
        approval = ["approve", "events", "--week", "2020-W53", "--sha256", row.sha256, "--reason", "a sale"]
        assert CliRunner().invoke(app, approval).exit_code == 0
        assert shop.previewed() == ("never published", "")
        manifest = shop.export(with_build=False).manifest
        assert (manifest.version, manifest.warnings) == (1, ["held for review, then approved: a sale"])
        assert hold.TABLE.rows(shop.catalog) == {}


def test_another_command_publishes_what_verify_refused(shop: Shop) -> None:
    shop.land(*hostile_rows(), in_next_week(1000))
    [topic] = declared.load(shop.project)["events"].topics
    issue = Issue("it differs from the broker", object=topic.topic, kind="verify")
    decision.record_issues(shop.catalog, [issue], {}, ())
    for with_build in (True, False):
        assert shop.withheld(with_build) == issue.message
    decision.record_issues(shop.catalog, [], {"verify": None}, ())
    assert shop.export().manifest.version == 1
    logged = [
        row.outcome for row in decision.LOG.rows(shop.catalog).values() if row.address.endswith("events/2020-W53")
    ]
    assert logged[-2:] == [issue.message, "published v1"]


def test_a_week_whose_records_were_rolled_back_is_published(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """After they were counted, and before the build read them."""
    for notes in ("a", "b"):
        shop.land((1, MONDAY, notes, *[None] * 5), in_next_week(1000))

    def build_after_rollback(*arguments: Any, **options: Any) -> list[Issue]:
        table = shop.catalog.load_table((SCHEMA_NAME, "events"))
        with table.manage_snapshots() as change:
            change.rollback_to_snapshot(table.current_snapshot().parent_snapshot_id)
        return build(*arguments, **options)

    monkeypatch.setattr("python_export.run.build", build_after_rollback)
    assert (
        shop.withheld() == f"behind: {SCHEMA_NAME}.events was rolled back, or created again, since shop.events was read"
    )


def test_a_week_that_other_sql_built_is_published(shop: Shop) -> None:
    shop.land(*hostile_rows(), in_next_week(1000))
    shop.export()
    assert shop.export(with_build=False).unchanged
    # What dbt has compiled since is proven, and it is not what made the rows.
    with shop.edited(EVENTS_SQL, "select", "-- it's \\ corrected\nselect"):
        run_dbt(shop.project, "compile")
        refused = shop.withheld(with_build=False, has_issues=False)
    assert "exp_weekly__events was not built for 2020-W53 from the SQL in" in refused
    run_dbt(shop.project, "compile")
    assert shop.export(with_build=False).unchanged


def forget_groups(shop: Shop) -> None:
    """Leave the dataset of small groups as one that was never built and never published."""
    for table in (late.TABLE.identifier, (SCHEMA_NAME, "exp_weekly__groups")):
        with suppress(NoSuchTableError):
            shop.catalog.drop_table(table)


def test_small_groups_are_published_twice_per_week(shop: Shop, tmp_path: Path) -> None:
    """A trial and a failed upload do not count; late data changes nothing, and neither does a withdrawal."""
    forget_groups(shop)
    announcing = shop.with_env(LAKEHOUSE_NOTIFY_ROOT=shop.settings.export_root)

    def groups(customers: int, restated: str | None = None, **settings: str) -> Exported:
        rows = [(number, MONDAY, "a", Decimal(1), None, number, None, None) for number in range(customers)]
        shop.land(*rows, in_next_week(1000))
        exported = announcing.changed(**settings).run(names=("groups",), restated=restated)
        assert exported.withheld == []
        return exported

    assert not groups(20, export_root=str(tmp_path / "trial")).published[0].unchanged
    folder = Path(shop.settings.export_root) / "groups" / str(WEEK)
    folder.parent.mkdir(parents=True)
    folder.write_text("a file")
    with pytest.raises(UserError, match="The export stopped: Not a directory"):
        groups(21)
    folder.unlink()
    [first] = groups(22).published
    assert (first.manifest.path, first.manifest.control_totals["customers"]) == ("groups/2020-W53/v1", "22")
    files = shop.files()
    again = groups(23)
    assert ([version.unchanged for version in again.published], again.warnings) == ([True], [])
    assert shop.files() == files

    publish.withdraw(open_target(shop.settings), first.manifest.path, "a person was erased")
    withdrawn = groups(23)
    needed = "another version needs `lakehouse export run groups --restate --week 2020-W53 --reason ...`"
    assert (withdrawn.published, [warning.endswith(needed) for warning in withdrawn.warnings]) == ([], [True])
    [second] = groups(23, restated="prices were wrong").published
    assert (second.manifest.version, second.manifest.control_totals["customers"]) == (2, "23")
    assert groups(24).published[0].manifest.version == 2
    [third] = groups(24, restated="one more").published
    assert third.manifest.reason == "restated, late or corrected data: one more"


def test_a_dataset_or_week_that_fails_costs_another(shop: Shop) -> None:
    forget_groups(shop)
    shop.land((1, MONDAY, "a", *[None] * 5), in_next_week(1000))
    folder = Path(shop.settings.export_root) / "events" / str(WEEK)
    folder.parent.mkdir(parents=True)
    folder.write_text("a file")
    exported = shop.run(names=())
    assert [version.manifest.path for version in exported.published] == ["groups/2020-W53/v1"]
    [issue] = exported.withheld
    assert (issue.object, issue.message[:34]) == ("events", "The export stopped: Not a director"), issue
    # A run that writes no file of `events` leaves it.
    assert {row.kind for row in decision.ISSUES.rows(shop.catalog).values() if row.origin == "events"} == {"file"}
    exported = shop.run(EMPTY_WEEK, WEEK)
    assert [version.manifest.path for version in exported.published] == ["events/2020-W52/v1"]
    assert [(issue.object, issue.week) for issue in exported.withheld] == [("events", "2020-W53")]
    # Where nothing at all can be published, it is no matter of a dataset.
    with pytest.raises(UserError, match="The export stopped: Not a directory"):
        shop.run()
