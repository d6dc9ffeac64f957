"""Dead letters: counted without payload, decoded again in place, once, and found by readers downstream."""

import json
from typing import Any

import pytest
from pyiceberg.catalog import Catalog

from python_common.errors import UserError
from python_ingest.bronze import tables
from python_ingest.cli import ingest as cli
from python_ingest.declare.topics import Declaration
from python_ingest.maintenance import replay
from python_ingest.maintenance.replay import Replayed
from tests.support.dead_letters import land_dead_letters, register_late
from tests.support.in_process import Lakehouse
from tests.support.topic_fixture import TopicFixture

CHANGED_BY_REPLAY = ("ingest_batch", "ingested_at", "decode_error", "value_schema_id", "id")


def test_counts_of_dead_letters_lack_a_reason_or_show_payload(
    topic: TopicFixture, ingest: Lakehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    missing = land_dead_letters(topic)
    monkeypatch.setenv("COLUMNS", "200")
    as_table = ingest("dead-letters", topic.name)
    assert (as_table.returncode, as_table.stderr) == (0, "")
    assert [line.split()[:3] for line in as_table.stdout.splitlines()[1:]] == [
        ["unknown_schema_id", str(missing), "6"],
        ["not_registry_avro", "-", "1"],
    ]
    assert b"foreign".hex() not in as_table.stdout
    listed = ingest("dead-letters", topic.name, "--show-raw", "--json")
    values = [row["kafka_raw_value"] for row in json.loads(listed.stdout)]
    assert len(values) == 7
    assert b"foreign bytes".hex() in values


def test_a_replay_decodes_twice_or_under_the_old_batch_number(topic: TopicFixture) -> None:
    missing = land_dead_letters(topic)
    before, untouched = topic.rows(), topic.table().current_snapshot()
    assert replay.replay(topic.batch_writer(), None) == Replayed(7, 0)
    assert topic.table().current_snapshot() == untouched
    register_late(topic, missing)
    assert replay.replay(topic.batch_writer(), "decode_failed") == Replayed(0, 0)
    assert replay.replay(topic.batch_writer(), "unknown_schema_id") == Replayed(6, 6)
    after = topic.rows()
    assert sorted(row["id"] for row in after if row["ingest_batch"] == 2) == list(range(3, 9))
    assert [row["kafka_raw_value"] for row in after if row["decode_error"]] == [b"foreign bytes"]

    def unchanged_columns(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [{name: value for name, value in row.items() if name not in CHANGED_BY_REPLAY} for row in rows]

    assert unchanged_columns(after) == unchanged_columns(before)
    replayed = topic.table().current_snapshot()
    assert replayed.summary["lakehouse.batch"] == "2"
    assert replay.replay(topic.batch_writer(), None) == Replayed(1, 0)
    assert topic.table().current_snapshot() == replayed
    assert list(topic.table().refs()) == ["main"]
    assert topic.verify().issues == []
    assert topic.land_well().batches == 0
    topic.produce(topic.encode(missing, {"id": 9}))
    assert topic.land_well().records == 1
    assert max(row["ingest_batch"] for row in topic.rows()) == 3


def test_a_reason_or_table_that_does_not_exist_is_refused(catalog: Catalog, declaration: Declaration) -> None:
    with pytest.raises(UserError, match=r"There is no reason 'bad luck'. Choose from not_registry_avro, "):
        cli.replay_letters(declaration.topic, reason="bad luck")
    with pytest.raises(UserError, match=f"There is no table {declaration.identifier}"):
        tables.existing(catalog, declaration)
