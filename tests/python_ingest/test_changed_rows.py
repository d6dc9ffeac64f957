"""Rows changed in place: overtaken by a batch, killed, repaired later, restored; and the files of others."""

import os
import shutil
import sqlite3
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame

from python_common import pii_key
from python_common.catalog import property_keys
from python_common.catalog.catalog import load_catalog
from python_common.config.settings import Settings
from python_common.locks.lease import leased
from python_common.spark.spark_conf import session
from python_ingest.bronze import rewrite
from python_ingest.declare.persons import Subject
from python_ingest.declare.topics import Declaration
from python_ingest.maintenance import erase, receipts, replay
from python_ingest.maintenance.erase import Person
from python_ingest.maintenance.replay import Replayed
from tests.support.dead_letters import land_dead_letters, register_late, schema
from tests.support.erased_rows import PERSON, assert_verified, erased, files_of_person, produce, purged
from tests.support.in_process import Lakehouse
from tests.support.kills import POINTS, killed_at
from tests.support.race import until
from tests.support.services.spark_jvm import separate_session
from tests.support.topic_fixture import TopicFixture, assert_exactly_once, declared_in, record

pytestmark = pytest.mark.slow

ANNA, OTHER = Person("customer", "1"), Person("customer", "2")

# How many rows change, and the function that computes their content.
CHANGES = {"erase": (3, erase, "_emptied"), "replay": (6, replay, "_with_fewer_errors")}


@pytest.fixture
def declaration(declaration: Declaration) -> Declaration:
    return replace(declaration, persons=(Subject("customer", ("who.id", "kafka_key")),))


def prepared(topic: TopicFixture, change: str) -> Callable[[], int]:
    """Land rows that an erasure or a replay changes; return what changes them, and returns how many."""
    if change == "erase":
        produce(topic)
        topic.land_well()
        return lambda: sum(erased(topic))
    register_late(topic, land_dead_letters(topic))
    return lambda: replay.replay(topic.batch_writer(), None).decoded


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_that_a_batch_overtakes_starts_again(
    topic: TopicFixture, change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = prepared(topic, change)
    rows, module, step = CHANGES[change]
    original, overtaken = getattr(module, step), []

    def land_meanwhile(*arguments: Any) -> DataFrame:
        if not overtaken:
            topic.produce(b"later", 0)
            overtaken.append(topic.land_well().records)
        return original(*arguments)

    monkeypatch.setattr(module, step, land_meanwhile)
    assert (run(), overtaken) == (rows, [1])
    numbers = Counter(row["ingest_batch"] for row in topic.rows())
    assert (numbers[2], numbers[3]) == (1, rows)
    assert list(topic.table().refs()) == ["main"]
    assert topic.verify(decoded=True).issues == []


@pytest.mark.parametrize("change", CHANGES)
def test_an_ingester_pauses_while_rows_are_changed(
    topic: TopicFixture, change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a batch would overtake each attempt, where a topic is followed."""
    run = prepared(topic, change)
    rows, module, step = CHANGES[change]
    original = getattr(module, step)

    def paused(*arguments: Any) -> DataFrame:
        topic.produce(b"later", 0)
        topic.flush()
        assert topic.ingester().turn(topic.declaration).batches == 0
        return original(*arguments)

    monkeypatch.setattr(module, step, paused)
    with leased(load_catalog(topic.settings), "maintain", "test"):
        assert run() == rows
    assert topic.messages.notes[-1].startswith("paused: its table is held by ")
    assert topic.table().properties[property_keys.HOLDER] == ""
    assert topic.land_well().records == 1


def erase_row(settings: Settings, declaration: Declaration) -> None:
    """Erase the rows of a person, in a process with a separate Spark."""
    catalog = load_catalog(settings)
    [to_erase] = erase.find(catalog, [declaration], [ANNA])
    erase.erase(catalog, session(settings, "killed"), to_erase, "killed")


@pytest.mark.parametrize(("point", "rows"), [*zip(POINTS["rows erased"], ([3], []), strict=True)])
def test_an_erasure_killed_at_its_commit_is_not_finished(topic: TopicFixture, point: str, rows: list[int]) -> None:
    produce(topic)
    topic.land_well()
    killed_at("rows erased", point, erase_row, topic.settings, topic.declaration)
    [left] = [name for name in topic.table().refs() if name != "main"]
    assert left.startswith(f"{rewrite.ERASE}_")
    assert erased(topic) == rows
    purged(topic)
    assert list(topic.table().refs()) == ["main"]
    assert files_of_person(topic) == set()
    assert_verified(topic, 9, 3)


def test_files_of_a_dead_writer_stay_or_of_a_running_one_go(topic: TopicFixture) -> None:
    produce(topic)
    topic.land_well()
    data = topic.directory / "data"
    (data / "dead").write_bytes(PERSON.encode())
    topic.sql("alter table {table} create tag `before`")
    assert erased(topic) == [3]
    # The store's clock is ten minutes behind this machine's.
    for file in data.parent.rglob("*"):
        os.utime(file, (file.stat().st_atime, file.stat().st_mtime - 600))
    (data / "running").write_bytes(b"of a batch that was planned later")
    os.utime(data / "running", (time.time() - 599, time.time() - 599))
    outcome = purged(topic)
    assert (outcome.tags, outcome.orphans) == (["before"], 1)
    assert [file.name for file in data.iterdir() if file.is_file()] == ["running"]
    assert files_of_person(topic) == set()


def test_a_following_ingester_does_not_replay_registered_ids(topic: TopicFixture) -> None:
    missing = land_dead_letters(topic)
    recovery, batch_writer = replay.Recovery(), topic.batch_writer()
    recovery(batch_writer)
    assert [letters.rows for letters in replay.summary(topic.table())] == [6, 1]
    register_late(topic, missing)

    def is_replayed() -> bool:
        recovery(batch_writer)
        return [letters.rows for letters in replay.summary(topic.table())] == [1]

    until(is_replayed)


def test_an_undecoded_key_is_not_listed_or_repaired(topic: TopicFixture, models_dir: Path, ingest: Lakehouse) -> None:
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
    counted = replay.summary(topic.table())
    assert [(letters.reason, letters.schema_id, letters.rows, letters.part) for letters in counted] == [
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


def erase_with_receipt(topic: TopicFixture, person: Person) -> None:
    catalog = load_catalog(topic.settings)
    receipt = receipts.begin(topic.settings.needed("pii_key_file"), [person], [])
    receipt.save(catalog)
    assert erased(topic, person) == [3]
    receipt.end(catalog)


def test_a_restored_lake_goes_on_and_erases_again(services: Settings, declaration: Declaration, tmp_path: Path) -> None:
    lake, saved = tmp_path / "lake", tmp_path / "saved"
    settings = services.changed(
        warehouse=f"{lake}/warehouse", catalog_uri=f"jdbc:sqlite:{lake}/catalog.db", pii_key_file=tmp_path / "pii.key"
    )
    pii_key.create(settings.pii_key_file)
    load_catalog(settings, create=True)
    with separate_session(settings, "saved") as spark:
        topic = TopicFixture(settings, spark, declaration)
        topic.make_topic()
        produce(topic)
        topic.land_well()
        erase_with_receipt(topic, OTHER)
        saved.mkdir()
        with sqlite3.connect(lake / "catalog.db") as catalog:
            catalog.execute("vacuum into ?", (str(saved / "catalog.db"),))
        shutil.copytree(lake / "warehouse", saved / "warehouse")

        erase_with_receipt(topic, ANNA)
        produce(topic)
        topic.land_well()
        shutil.copytree(lake / "warehouse/ops/erasures", tmp_path / "erasures")

    shutil.rmtree(lake)
    shutil.copytree(saved, lake)
    shutil.copytree(tmp_path / "erasures", lake / "warehouse/ops/erasures", dirs_exist_ok=True)
    with separate_session(settings, "restored") as spark:
        newest = max((lake / "warehouse/ops/erasures/metadata").glob("*.metadata.json"))
        spark.sql("drop table lake.ops.erasures")
        spark.sql(f"call lake.system.register_table('ops.erasures', 'file:{newest}')")
        topic = replace(topic, spark=spark)
        assert_verified(topic, 9, 3)
        restored = load_catalog(settings)
        again, _ = receipts.named(restored, settings.pii_key_file, erase.everyone(restored, [declaration]))
        assert again == [ANNA]
        assert erased(topic, *again) == [3]
        topic.land_well()
        assert_verified(topic, 18, 6)
