"""Records an alarm of each due dataset whose last week is not published by LAKEHOUSE_EXPORT_EXPECTED_BY."""

from datetime import datetime

from pyiceberg.catalog import Catalog

from python_common.weeks import IsoWeek
from python_dbt.project import Project
from python_export.datasets import declared
from python_export.notify import outbox
from python_export.publishing import late
from python_export.publishing.target import Target
from python_export.variables import Channels


def record(catalog: Catalog, target: Target, project: Project, channels: Channels, now: datetime) -> None:
    """Record the alarms at an aware moment, with the reason why each dataset is withheld, once per week."""
    if channels.expected_by is None:
        return
    names = declared.load(project).keys()
    # Later in the next week it is still this one that was missed.
    week = IsoWeek.last_complete(now - channels.expected_by)
    # Published weeks are not compared with figures: `names` are as if they had one version per week.
    due, _ = late.weeks_to_export(catalog, target, {}, names, week, at_most=0, once=names)
    reasons = {notice.dataset: notice.text for notice in outbox.notices(catalog, target, str(week))}
    expected = f"{week.end + channels.expected_by:%Y-%m-%d %H:%M} UTC"
    texts = {
        name: f"{name} {week} was expected by {expected}: {reasons.get(name) or 'no run has published or withheld it'}"
        for name in due.get(week, ())
    }
    if texts:
        outbox.record_alarms(catalog, target, str(week), texts, channels)
