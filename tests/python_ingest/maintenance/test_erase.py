"""Erased rows: emptied in place, once, gone from every file, and respected by all that reads or fills bronze."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from threading import Thread
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import Catalog
from pyspark.sql import DataFrame, SparkSession

from python_common.catalog import property_keys
from python_common.catalog.catalog import load_catalog, make_namespace
from python_common.config.environment import PROJECT_ROOT
from python_common.errors import UserError
from python_common.locks.lease import leased
from python_ingest.bronze import rewrite
from python_ingest.declare.persons import Subject
from python_ingest.declare.topics import DeadLetterLimit, Declaration
from python_ingest.landing.follow import follow
from python_ingest.landing.run import Options
from python_ingest.maintenance import erase, replay
from python_ingest.maintenance.erase import Person, RowsToErase
from python_ingest.maintenance.purge import Purged, erased_at, purge_table
from python_ingest.maintenance.replay import Replayed
from python_ingest.maintenance.status import topic_statuses
from tests.support.dead_letters import land_dead_letters, register_late
from tests.support.erased_rows import PERSON, assert_verified, erased, produce
from tests.support.topic_fixture import Messages, TopicFixture

LEFT = ("kafka_topic", "kafka_partition", "kafka_offset", "kafka_timestamp", "kafka_timestamp_type", "ingested_at")


@pytest.fixture
def declaration(declaration: Declaration) -> Declaration:
    return replace(declaration, persons=(Subject("customer", ("who.id", "kafka_key")),))


def purged(topic: TopicFixture) -> Purged:
    name = topic.declaration.identifier
    at = erased_at(load_catalog(topic.settings), topic.spark, name)
    return purge_table(load_catalog(topic.settings), topic.spark, name, at)


def files_of_person(topic: TopicFixture) -> set[str]:
    """Return the files of the table in which the person is, by their values and by their bytes."""
    files = set()
    for file in topic.directory.rglob("*"):
        if file.is_file():
            content = file.read_bytes()
            if file.suffix == ".parquet":
                content += repr(pq.ParquetFile(file).read().to_pydict()).encode()
            files |= {str(file)} if PERSON.encode() in content else set()
    return files


def without(rows: list[dict[str, Any]], *names: str) -> list[dict[str, Any]]:
    return [{name: value for name, value in row.items() if name not in names} for row in rows]


def test_a_persons_rows_are_emptied_once_and_everything_goes_on_around_them(topic: TopicFixture) -> None:
    produce(topic)
    topic.produce(b"foreign bytes", 0)
    topic.land_well(Options(max_records=3, wait=10))
    before = topic.rows()
    assert files_of_person(topic)
    assert erased(topic) == [3]
    rows = topic.rows()
    emptied = [row for row in rows if (row["decode_error"] or "").startswith("erased: ")]
    assert {row["decode_error"] for row in emptied} == {f"erased: {datetime.now(UTC):%Y-%m-%d}"}
    last = max(row["ingest_batch"] for row in before)
    for row in emptied:
        there = {name for name, value in row.items() if value not in (None, [])}
        assert there == {*LEFT, "decode_error", "ingest_batch"}
        assert row["ingest_batch"] == last + 1
    at = {(row["kafka_partition"], row["kafka_offset"]) for row in emptied}
    assert without(rows, *(rows[0].keys() - set(LEFT))) == without(before, *(rows[0].keys() - set(LEFT)))
    others = [row for row in before if (row["kafka_partition"], row["kafka_offset"]) not in at]
    assert [row for row in rows if (row["kafka_partition"], row["kafka_offset"]) not in at] == others

    # Gone from every file, with the snapshots that still held it.
    assert files_of_person(topic)
    outcome = purged(topic)
    assert outcome.snapshots > 0
    assert files_of_person(topic) == set()
    assert topic.rows() == rows

    # Nothing takes it for missing, for a dead letter, or for an issue.
    assert topic.land_well(Options(from_earliest=True, wait=10)).records == 0
    [letters] = replay.summary(topic.table())
    assert (letters.reason, letters.rows) == ("not_registry_avro", 1)
    assert len(replay.raw(topic.table(), 20)) == 1
    assert replay.replay(topic.batch_writer(), None) == Replayed(1, 0)
    few = replace(topic.declaration, max_dead_letters=DeadLetterLimit(0.1, 1))
    [status] = topic_statuses(topic.settings, [few], 10)
    assert (status.rows, status.dead_letters, status.recent_dead_letters, status.erased) == (10, 1, 1, 3)
    assert status.over_limit is False
    assert erased(topic) == []
    assert_verified(topic, 10, 3)


def test_what_is_left_of_an_erased_row_is_an_issue(topic: TopicFixture) -> None:
    produce(topic)
    topic.land_well()
    erased(topic)
    topic.sql("update {table} set kafka_raw_value = x'00' where decode_error like 'erased%' and kafka_partition = 0")
    topic.sql("update {table} set kafka_key = 'anna' where decode_error like 'erased%' and kafka_partition = 1")
    topic.sql("update {table} set kafka_timestamp = now() where decode_error like 'erased%' and kafka_partition = 2")
    assert topic.verify(decoded=True).issues == [
        "partition 0: offset 1: is erased, and still holds bytes",
        "partition 2: offset 1: another kafka_timestamp than in the topic",
        "partition 1: offset 1: another kafka_key than in its bytes",
    ]


@pytest.mark.slow
def test_an_erasure_that_a_batch_overtakes_starts_again_and_nothing_is_lost(
    topic: TopicFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    produce(topic)
    topic.land_well()
    emptied, overtaken = erase._emptied, []

    def land_meanwhile(*arguments: Any) -> DataFrame:
        if not overtaken:
            produce(topic)
            overtaken.append(topic.land_well().records)
        return emptied(*arguments)

    monkeypatch.setattr(erase, "_emptied", land_meanwhile)
    assert (erased(topic), overtaken) == ([3], [9])
    assert erased(topic) == [3]
    assert list(topic.table().refs()) == ["main"]
    assert_verified(topic, 18, 6)


@contextmanager
def followed(topic: TopicFixture) -> Iterator[Callable[[], None]]:
    """Follow the topic, and yield what has a batch land, or the ingester pause, before it returns."""
    messages = Messages()
    ingester = topic.ingester(messages=messages)
    thread = Thread(target=follow, args=(ingester, [topic.declaration], 0.1, lambda _: None))
    thread.start()

    def overtake() -> None:
        before, noted = topic.table().current_snapshot(), len(messages.notes)
        topic.produce(b"later", 0)
        topic.flush()
        while topic.table().current_snapshot() == before and not any(
            "paused" in note for note in messages.notes[noted:]
        ):
            ingester.stopping.wait(0.1)

    try:
        yield overtake
    finally:
        ingester.stopping.set()
        thread.join()


@pytest.mark.slow
@pytest.mark.parametrize("change", ["erase", "replay"])
def test_rows_are_changed_on_a_topic_that_is_followed(
    topic: TopicFixture, change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if change == "erase":
        produce(topic)
        topic.land_well()
    else:
        register_late(topic, land_dead_letters(topic))
    module, step = (erase, "_emptied") if change == "erase" else (replay, "_with_fewer_errors")
    original = getattr(module, step)
    with followed(topic) as overtake, leased(load_catalog(topic.settings), "maintain", "test"):

        def overtaken(*arguments: Any) -> DataFrame:
            overtake()
            return original(*arguments)

        monkeypatch.setattr(module, step, overtaken)
        if change == "erase":
            assert erased(topic) == [3]
        else:
            assert replay.replay(topic.batch_writer(), None).decoded == 6
        assert topic.table().properties[property_keys.HELD_BY] == ""
    assert topic.land_well().lag == 0


def test_a_table_is_not_held_by_a_lease_that_has_ended(topic: TopicFixture) -> None:
    produce(topic)
    topic.land_well()
    catalog = load_catalog(topic.settings)
    with leased(catalog, "maintain", "test") as lease, rewrite.hold(catalog, topic.declaration.identifier):
        table = topic.table()
        assert f"(test, since {lease._since:%Y-%m-%d}" in rewrite.holder(catalog, table)
        # Killed here: the property stays.
    assert rewrite.holder(catalog, table) is None
    with leased(catalog, "maintain", "of another"):
        assert rewrite.holder(catalog, table) is None


KILLED = """
import os, signal, sys
from python_common.catalog.catalog import load_catalog, make_namespace
from python_common.config.settings import from_environment
from python_common.spark.spark_conf import session
from pathlib import Path
from pyspark.sql import SparkSession
from dataclasses import replace
from python_ingest.maintenance import erase
from python_ingest.declare.topics import read_declarations

settings = from_environment()
[declaration] = read_declarations(Path(sys.argv[1]))
sql = SparkSession.sql

def until_the_statement(self, statement, *more):
    if sys.argv[2] in statement:
        os.kill(os.getpid(), signal.SIGKILL)
    return sql(self, statement, *more)

SparkSession.sql = until_the_statement
catalog = load_catalog(settings)
[to_erase] = erase.find(catalog, [declaration], [erase.Person("tests.customer", "1")])
erase.erase(catalog, session(settings, "killed"), to_erase, "killed")
"""


@pytest.mark.slow
@pytest.mark.parametrize(("statement", "rows"), [("fast_forward", [3]), ("drop branch", [])])
def test_an_erasure_killed_around_its_commit_is_done_by_the_next_and_leaves_nothing(
    topic: TopicFixture, models_dir: Path, statement: str, rows: list[int]
) -> None:
    produce(topic)
    topic.land_well()
    killed = subprocess.run(
        [sys.executable, "-c", KILLED, models_dir, statement],
        cwd=PROJECT_ROOT,
        env=os.environ,
        capture_output=True,
        check=False,
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    [left] = [name for name in topic.table().refs() if name != "main"]
    assert left.startswith(f"{rewrite.ERASE}_")
    assert erased(topic) == rows
    purged(topic)
    assert list(topic.table().refs()) == ["main"]
    assert files_of_person(topic) == set()
    assert_verified(topic, 9, 3)


@pytest.mark.slow
def test_files_of_a_dead_writer_go_and_those_of_a_running_one_stay(topic: TopicFixture) -> None:
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


def test_records_are_named_by_topic_generation_partition_and_offset(topic: TopicFixture) -> None:
    produce(topic)
    topic.produce(f"bytes of {PERSON}".encode(), 2)
    topic.land_well()
    catalog = load_catalog(topic.settings)
    [to_erase] = erase.named(catalog, [topic.declaration], [(topic.name, 0, 2, 3)])
    assert to_erase == RowsToErase(topic.declaration, frozenset({(0, 2, 3)}))
    assert erase.erase(catalog, topic.spark, to_erase, "test") == 1
    assert erase.named(catalog, [topic.declaration], [(topic.name, 0, 2, 3)]) == []
    assert replay.summary(topic.table()) == []
    assert_verified(topic, 10, 1)
    with pytest.raises(UserError, match=f"has no row of {topic.name}:0:2:99"):
        erase.named(catalog, [topic.declaration], [(topic.name, 0, 2, 99)])
    with pytest.raises(UserError, match="No dbt source declares the topic 'elsewhere'"):
        erase.named(catalog, [topic.declaration], [("elsewhere", 0, 2, 99)])


def test_what_another_tables_rows_name_is_found_through_them_unless_others_name_it_too(
    topic: TopicFixture, spark: SparkSession
) -> None:
    """The addresses of a customer, in a table made by hand: their column has the customer's name for them."""
    produce(topic)
    topic.land_well()
    homes = replace(
        topic.declaration,
        topic=f"{topic.name}.homes",
        table=f"{topic.declaration.table}_homes",
        persons=(Subject("customer", ("home",), ((topic.declaration.table, "who.mail"),)),),
    )
    topic.sql(
        f"create table lake.{homes.identifier} using iceberg as select cast(0 as int) as kafka_partition,"
        f" kafka_offset, who.mail as home, cast(null as string) as decode_error"
        " from {table} where kafka_partition = 0"
    )
    catalog = load_catalog(topic.settings)
    everything = [topic.declaration, homes]
    first, second = erase.find(catalog, everything, [Person("customer", " 1 ")])
    assert (first, second.declaration) == (RowsToErase(homes, frozenset({(0, 0, 1)})), topic.declaration)
    topic.sql(f"update {{table}} set who.mail = '{PERSON}' where kafka_partition = 1 and kafka_offset = 2")
    first, _ = erase.find(catalog, everything, [Person("customer", "1")])
    assert first == RowsToErase(homes, frozenset(), shared=1)
    assert erase.find(catalog, everything, [Person("customer", "77")]) == []


@pytest.mark.parametrize("column", ["who.id", "id"])
def test_a_column_in_a_list_is_named(catalog: Catalog, declaration: Declaration, column: str) -> None:
    people = pa.list_(pa.struct({"id": pa.int32()}))
    schema = pa.schema({"kafka_partition": pa.int32(), "kafka_offset": pa.int64(), "who": people, "id": people})
    make_namespace(catalog, declaration.schema)
    catalog.create_table(declaration.identifier, schema).append(
        pa.table({"kafka_partition": [0], "kafka_offset": [1], "who": [[{"id": 7}]], "id": [[{"id": 7}]]}, schema)
    )
    declared = replace(declaration, persons=(Subject("customer", (column,)),))
    with pytest.raises(UserError, match=f"the column {column}, which is a list or inside one"):
        erase.find(catalog, [declared], [Person("customer", "7")])
