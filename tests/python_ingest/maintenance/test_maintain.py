"""Maintenance merges and deletes while others work, and no row, position or batch number is lost."""

from datetime import timedelta

import pytest

from python_common.catalog.catalog import load_catalog
from python_common.errors import UserError
from python_common.locks.lease import LeaseLostError
from python_ingest.maintenance.maintain import Retention, maintain_table
from tests.support.in_process import Lakehouse
from tests.support.topic_fixture import TopicFixture, produce

AT_ONCE = Retention(timedelta(0))


@pytest.mark.parametrize(
    ("retention", "words"),
    [
        (Retention(orphans=timedelta(hours=23)), "Orphan files younger than a day may belong to a running commit"),
        (Retention(timedelta(minutes=30)), "Snapshots younger than an hour may be in use by a reader"),
    ],
)
def test_what_would_harm_running_readers_or_writers_is_refused(retention: Retention, words: str) -> None:
    with pytest.raises(UserError, match=words):
        retention.check()


def test_a_missing_table_is_an_error_though_not_named(topic: TopicFixture, ingest: Lakehouse) -> None:
    load_catalog(topic.settings, create=True)
    name = topic.declaration.identifier
    result = ingest("maintain", topic.name, "--table", "no.such")
    assert (result.returncode, result.stdout) == (1, f"{name}: no table yet\n")
    assert result.stderr == "error: There is no table no.such. Name a table as schema.table.\n"


def test_a_lease_is_asked_for_before_each_procedure(topic: TopicFixture) -> None:
    produce(topic, 30)
    topic.land_well()
    asked: list[int] = []

    def require() -> None:
        asked.append(len(topic.table().snapshots()))
        if len(asked) == 3:
            raise LeaseLostError("Another run has the lease", "Run it again")

    with pytest.raises(LeaseLostError):
        maintain_table(topic.settings, lambda: topic.spark, topic.declaration.identifier, AT_ONCE, require)
    assert len(asked) == 3
    assert len(topic.table().snapshots()) == asked[-1] >= asked[0]
