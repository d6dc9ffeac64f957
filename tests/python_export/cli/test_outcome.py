"""Metrics of exports: the newest published week of each dataset, and what the last run withheld."""

import re
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
import typer
from prometheus_client.parser import text_string_to_metric_families

from python_common.errors import Issue
from python_common.weeks import IsoWeek
from python_export.cli.outcome import NOTIFICATION_FAILED, WITHHELD, end_run, write_metrics
from python_export.notify import index
from python_export.notify.exported import Exported
from python_export.publishing.publish import withdraw
from python_export.publishing.target import Target
from tests.support.notify import BEHIND
from tests.support.versions import publish_content


@pytest.mark.parametrize("published_to", ["local"], indirect=True)
def test_metrics_are_those_of_the_newest_published_week(target: Target, tmp_path: Path) -> None:
    for week, rows, content in (
        ("2020-W52", 9, "a"),
        ("2020-W53", 1, "a"),
        ("2020-W53", 2, "bb"),
        ("2021-W01", 3, "c"),
    ):
        publish_content(target, content, week, rows=rows, created_at="2021-01-04T06:00:00Z")
    publish_content(target, "a", dataset="orders")
    for path in ("events/2021-W01/v1", "orders/2020-W53/v1"):
        withdraw(target, path, "a wrong price")
    exported = Exported(IsoWeek(2021, 1), current=index.current(target))
    exported.withheld = [replace(BEHIND, week=week) for week in ("2020-W53", "2021-W01")]
    exported.held_weeks = 2

    write_metrics(tmp_path / "export.prom", exported)

    families = [*text_string_to_metric_families((tmp_path / "export.prom").read_text())]
    assert all(family.documentation and family.type == "gauge" for family in families)
    values = {family.name.removeprefix("lakehouse_export_"): family.samples for family in families}
    written_at = values.pop("status_timestamp_seconds")[0].value
    assert abs(datetime.now(UTC).timestamp() - written_at) < 600
    assert {
        name: [(*sample.labels.values(), sample.value) for sample in samples] for name, samples in values.items()
    } == {
        "newest_week_timestamp_seconds": [("events", datetime(2020, 12, 28, tzinfo=UTC).timestamp())],
        "rows": [("events", 2)],
        "bytes": [("events", 2)],
        "published_timestamp_seconds": [("events", datetime(2021, 1, 4, 6, tzinfo=UTC).timestamp())],
        "withheld_datasets": [(1,)],
        "held_weeks": [(2,)],
    }


@pytest.mark.parametrize(("withheld", "code"), [([], NOTIFICATION_FAILED), ([BEHIND], WITHHELD)])
def test_an_unwritable_metrics_file_hides_the_outcome(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, withheld: list[Issue], code: int
) -> None:
    exported = Exported(IsoWeek(2021, 1), withheld=withheld)
    with pytest.raises(typer.Exit) as ended:
        end_run(exported, tmp_path / "missing" / "export.prom")
    assert ended.value.exit_code == code
    assert re.search(r"export\.prom cannot be written \(FileNotFoundError\)", caplog.text)
