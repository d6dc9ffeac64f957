"""Dead letters: counted without payload, decoded again in place, once, and found by readers downstream."""

import json
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog import Catalog
from pyspark.sql import DataFrame

from python_common.errors import UserError
from python_ingest.bronze import tables
from python_ingest.cli import ingest as cli
from python_ingest.declare.topics import Declaration
from python_ingest.maintenance import replay
from python_ingest.maintenance.replay import Replayed
from tests.support.dead_letters import land_dead_letters, register_late, schema
from tests.support.in_process import Lakehouse
from tests.support.race import until
from tests.support.topic_fixture import TopicFixture, assert_exactly_once, declared_in, record

CHANGED_BY_REPLAY = ("ingest_batch", "ingested_at", "decode_error", "value_schema_id", "id")


def test_dead_letters_are_counted_by_reason_and_schema_id_without_payload(
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


def test_a_replay_decodes_in_place_once_and_under_a_new_batch_number(topic: TopicFixture) -> None:
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


@pytest.mark.slow
def test_a_following_ingester_replays_once_a_schema_is_registered(topic: TopicFixture) -> None:
    missing = land_dead_letters(topic)
    recovery, batch_writer = replay.Recovery(), topic.batch_writer()
    recovery(batch_writer)
    assert [letters.rows for letters in replay.summary(topic.table())] == [6, 1]
    register_late(topic, missing)

    def is_replayed() -> bool:
        recovery(batch_writer)
        return [letters.rows for letters in replay.summary(topic.table())] == [1]

    until(is_replayed)


@pytest.mark.slow
def test_a_replay_that_another_commit_overtakes_starts_again_under_another_number(
    topic: TopicFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    missing = land_dead_letters(topic)
    register_late(topic, missing)
    planned = replay._as_records
    overtaken = []

    def land_meanwhile(dead: DataFrame) -> DataFrame:
        if not overtaken:
            topic.produce(topic.encode(missing, {"id": 9}))
            overtaken.append(topic.land_well().records)
        return planned(dead)

    monkeypatch.setattr(replay, "_as_records", land_meanwhile)
    assert replay.replay(topic.batch_writer(), None) == Replayed(7, 6)
    assert overtaken == [1]
    numbers = {row["id"]: row["ingest_batch"] for row in topic.rows() if row["decode_error"] is None}
    assert numbers == {0: 1, 1: 1, 2: 1, 9: 2} | dict.fromkeys(range(3, 9), 3)
    assert list(topic.table().refs()) == ["main"]
    assert topic.verify().issues == []


def test_a_reason_or_table_that_does_not_exist_is_refused(catalog: Catalog, declaration: Declaration) -> None:
    with pytest.raises(UserError, match=r"There is no reason 'bad luck'. Choose from not_registry_avro, "):
        cli.replay(declaration.topic, reason="bad luck")
    with pytest.raises(UserError, match=f"There is no table {declaration.identifier}"):
        tables.existing(catalog, declaration)


@pytest.mark.slow
def test_a_key_that_could_not_be_decoded_is_listed_and_repaired_with_its_value(
    topic: TopicFixture, models_dir: Path, ingest: Lakehouse
) -> None:
    topic = topic.declaring(key="avro")
    declared_in(models_dir, topic.declaration)
    value_id = topic.register(schema(topic, "good"))
    subject = f"{topic.name}-moved-key"
    moved = topic.register_under(subject, record(f"k_{topic.declaration.table}", id="int"))
    good, key = topic.encode(value_id, {"id": 1}), topic.encode(moved, {"id": 7})
    unknown = b"\x00\x7f\xff\xff\xff" + good[5:]
    # Good value, poison next to a key that can be repaired, a tombstone, and a key that never can.
    for value, part in ((good, key), (unknown, key), (None, key), (good, b"plain"), (good, None)):
        topic.produce(value, key=part)
    result = topic.land_well()
    assert (result.records, result.dead_letters, result.key_errors) == (5, 1, 4)
    foreign = f"foreign_schema: schema id {moved} belongs to {subject}"
    assert [row["key_error"] for row in topic.rows()][:3] == [foreign] * 3
    counted = ingest("dead-letters", topic.name, "--json")
    assert [(row["reason"], row["schema_id"], row["rows"], row["part"]) for row in json.loads(counted.stdout)] == [
        ("foreign_schema", moved, 3, "key"),
        ("unknown_schema_id", 0x7FFFFFFF, 1, "value"),
        ("not_registry_avro", None, 1, "key"),
    ]
    listed = ingest("dead-letters", topic.name, "--show-raw")
    text = " ".join(listed.stdout.split())
    assert f"{topic.name}:0:2: key: {foreign} " in text
    assert f"{topic.name}:0:1: unknown_schema_id: schema id {0x7FFFFFFF}, key: {foreign} " in text
    status = ingest("status")
    note = f"note: {topic.name}: 4 keys could not be decoded: see `lakehouse ingest dead-letters`"
    assert note in status.stdout
    subjects = (f"{topic.name}-value", f"{topic.name}-key", subject)
    corrected = topic.declaring(subject=subjects)
    assert replay.replay(corrected.batch_writer(), "not_registry_avro") == Replayed(1, 0)
    assert replay.replay(corrected.batch_writer(), "foreign_schema") == Replayed(3, 3)
    assert replay.replay(corrected.batch_writer(), None) == Replayed(2, 0)
    rows = topic.rows()
    assert [row["kafka_key"] for row in rows] == [{"id": 7}] * 3 + [None, None]
    assert [row["key_error"] for row in rows] == [None] * 3 + ["not_registry_avro: the first byte is not 0", None]
    assert [row["decode_error"] is None for row in rows] == [True, False, True, True, True]
    assert [row["ingest_batch"] for row in rows] == [2, 2, 2, 1, 1]
    assert_exactly_once(topic, 5)
