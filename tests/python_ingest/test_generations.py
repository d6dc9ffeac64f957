"""A recreated topic in the table of the former one: `ingest rebind`, and all that reads positions."""

from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from python_common.catalog.catalog import load_catalog
from python_common.errors import UserError
from python_ingest.cli import ingest
from python_ingest.landing.run import Options
from python_ingest.maintenance import erase, replay
from python_ingest.maintenance.maintain import Retention
from python_ingest.verify.report import Report
from tests.support.topic_fixture import SALE, TopicFixture, produce, record


def recreate(topic: TopicFixture) -> TopicFixture:
    """Delete the topic and make one of its name, and return a topic with a producer that knows the new one."""
    topic.delete_topic()
    topic = replace(topic)
    topic.make_topic()
    return topic


def rebind(topic: TopicFixture, start: str, directory: Path) -> None:
    ingest.rebind(topic.name, start=start, wait="10s", models=directory)


def verified(topic: TopicFixture) -> Report:
    report = topic.verify(decoded=True)
    assert report.issues == []
    return report


def position(row: dict[str, Any]) -> tuple[int, int, int]:
    return row["kafka_generation"] or 0, row["kafka_partition"], row["kafka_offset"]


@pytest.mark.slow
def test_a_recreated_topic_is_another_generation(topic: TopicFixture, models_dir: Path) -> None:
    produce(topic, 9)
    topic.produce(b"not Avro", 1)
    topic.land_well()
    with pytest.raises(UserError, match=r"has no rows of another .*: nothing changed"):
        rebind(topic, "earliest", models_dir)
    former = topic.rows()

    topic = recreate(topic)
    produce(topic, 6, start=100)
    topic.produce(b"not Avro", 1)
    rebind(topic, "earliest", models_dir)
    assert verified(topic).expired == 10
    assert topic.land_well().records == 7
    topic.maintain(Retention(timedelta(0), timedelta(days=3)))
    files = topic.table().inspect.data_files().to_pylist()
    assert {file["spec_id"] for file in files} == {topic.table().spec().spec_id}, "files of generation 0 are merged"
    produce(topic, 3, start=200)
    assert topic.land_well().records == 3
    assert topic.land_well().records == 0

    rows = topic.rows()
    assert [row for row in rows if row["kafka_generation"] is None] == former
    positions = [(row["kafka_generation"], row["kafka_partition"], row["kafka_offset"]) for row in rows]
    assert len(set(positions)) == len(positions) == 20
    assert {generation for generation, *_ in positions} == {None, 1}
    assert {row["ingest_batch"] for row in rows} == {1, 2, 3}
    report = verified(topic)
    assert (report.rows, report.records, report.expired, report.decoded) == (20, 10, 10, 20)

    [to_erase] = erase.named(load_catalog(topic.settings), [topic.declaration], [(topic.name, 1, 1, 0)])
    assert erase.erase(load_catalog(topic.settings), topic.spark, to_erase, "erase-test") == 1
    emptied = {position(row) for row in topic.rows() if (row["decode_error"] or "").startswith("erased: ")}
    assert emptied == {(1, 1, 0)}
    verified(topic)


@pytest.mark.slow
def test_a_replay_changes_the_row_of_its_generation(topic: TopicFixture, models_dir: Path) -> None:
    schema_id = topic.register(SALE)
    unknown = (schema_id + 10_000).to_bytes(4, "big")
    topic.produce(b"\0" + unknown + b"body")
    topic.land_well()
    topic = recreate(topic)
    other = topic.register_under("elsewhere-value", record("later", id="int", color="string"))
    topic.produce(topic.encode(other, {"id": 7, "color": "red"}))
    topic.flush()
    rebind(topic, "earliest", models_dir)
    topic.land_well()
    assert [row["decode_error"] is None for row in topic.rows()] == [False, False]
    topic.register_under(f"{topic.name}-value", record("later", id="int", color="string"))
    assert replay.replay(topic.batch_writer(), None).decoded == 1
    assert {position(row): row.get("id") for row in topic.rows()} == {(0, 0, 0): None, (1, 0, 0): 7}
    verified(topic)


@pytest.mark.slow
def test_a_rebound_topic_begins_at_its_option_and_a_backfill_goes_no_further(
    topic: TopicFixture, models_dir: Path
) -> None:
    produce(topic, 9)
    topic.land_well()
    topic = recreate(topic)
    produce(topic, 6)
    rebind(topic, "latest", models_dir)
    produce(topic, 3, start=6)
    assert topic.land_well(Options(wait=10, from_earliest=True)).records == 3
    assert verified(topic).records == 3
    topic.sql("delete from {table} where kafka_generation = 1 and kafka_partition = 2")
    assert topic.land_well(Options(wait=10, from_earliest=True)).records == 1
    assert verified(topic).records == 3
    assert {position(row) for row in topic.rows() if row["kafka_generation"]} == {(1, 0, 2), (1, 1, 2), (1, 2, 2)}
