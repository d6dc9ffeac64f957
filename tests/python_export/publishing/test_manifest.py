"""The versions of a week that one run publishes name one delivery, and those of the next run the next one."""

from dataclasses import replace

from python_export.notify import index
from python_export.publishing.manifest import next_delivery, published
from python_export.publishing.publish import withdraw
from python_export.publishing.target import Target
from tests.support.hostile_rows import draft
from tests.support.versions import publish_file

WEEK, NEXT_WEEK = "2020-W53", "2021-W01"


def test_deliveries_of_a_week_are_numbered(target: Target) -> None:
    # A release before 0.7 named none.
    publish_file(target, "0", draft(WEEK))
    for number in range(1, 11):
        assert next_delivery(target, WEEK) == f"{WEEK}-{number}"
        publish_file(target, str(number), replace(draft(WEEK), delivery=f"{WEEK}-{number}"))
    withdraw(target, f"events/{WEEK}/v11", "a wrong price")
    assert next_delivery(target, WEEK) == f"{WEEK}-11"
    assert next_delivery(target, NEXT_WEEK) == f"{NEXT_WEEK}-1"


def test_files_of_deliveries_of_0_6_are_ignored(target: Target) -> None:
    publish_file(target, "0", draft(WEEK))
    target.put(f"deliveries/{WEEK}/1.json", b"{")
    assert [manifest.path for manifest in index.write(target)] == [f"events/{WEEK}/v1"]
    assert [check.issues for check in index.audit(target)] == [(), ()]
    assert [manifest.delivery for manifest in published(target)] == [None]
