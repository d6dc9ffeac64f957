"""A table that is partitioned and sorted as its source declares, from its beginning or later: each claim holds."""

from dataclasses import replace
from datetime import timedelta

import pyarrow.parquet as pq
import pytest
from pyiceberg.types import IntegerType, StringType

from python_common.catalog.catalog import load_catalog
from python_ingest.declare import spark_types
from python_ingest.declare.persons import Subject
from python_ingest.declare.table_layout import partition_field, sort_field
from python_ingest.landing.run import Options
from python_ingest.maintenance import erase, replay
from python_ingest.maintenance.erase import Person
from python_ingest.maintenance.maintain import Retention
from python_ingest.maintenance.replay import Replayed
from tests.support.topic_fixture import SALE, TopicFixture, assert_exactly_once, produce

pytestmark = pytest.mark.slow


def test_a_layout_declared_later_is_that_of_new_files(topic: TopicFixture, caplog: pytest.LogCaptureFixture) -> None:
    produce(topic, 12)
    topic.land_well()
    old_files = {file["file_path"] for file in topic.table().inspect.data_files().to_pylist()}
    topic.declaration = replace(
        topic.declaration,
        columns=spark_types.struct({"id": IntegerType(), "note": StringType()}),
        partition_spec=(*map(partition_field, ("days(kafka_timestamp)", "bucket(4, id)", "note")),),
        sort_order=(*map(sort_field, ("id desc nulls last", "kafka_offset")),),
        persons=(Subject("seller", ("id",)),),
    )

    # Dead letters of another partition, two that land and two that fill a gap.
    missing = topic.register(SALE | {"doc": f"{topic.name} first"}) + 1
    for index in range(12, 16):
        value = topic.encode(missing - 1, {"id": index, "note": "late"})
        topic.produce(b"\x00" + missing.to_bytes(4, "big") + value[5:], index % 3)
    produce(topic, 24, start=16)
    result = topic.land_well(Options(max_records=10, wait=10))
    assert (result.records, result.dead_letters) == (28, 4)
    assert "new files use partition spec" in caplog.text
    files = topic.table().inspect.data_files().to_pylist()
    assert {file["spec_id"] for file in files if file["file_path"] in old_files} == {0}
    assert {file["spec_id"] for file in files if file["file_path"] not in old_files} == {1}
    assert {"n" * 20, None} == {file["partition"]["note"] for file in files}
    assert not [file["file_path"] for file in files if "note" in file["file_path"] or "n" * 20 in file["file_path"]]
    topic.sql("delete from {table} where kafka_partition = 1 and kafka_offset = 5")
    assert topic.land_well(Options(from_earliest=True, wait=10)).records == 1

    # A replay moves rows to the partitions of what they turn out to hold, an erasure to that of NULL.
    assert topic.register(SALE | {"doc": f"{topic.name} late"}) == missing
    assert replay.replay(topic.batch_writer(), None) == Replayed(4, 4)
    assert_exactly_once(topic, 40)
    topic.maintain(Retention(timedelta(0)))
    for file in topic.table().inspect.data_files().to_pylist():
        rows = pq.read_table(file["file_path"].removeprefix("file:")).to_pylist()
        ids = [row["id"] for row in rows]
        assert ids == sorted(ids, reverse=True)
        assert len({row["kafka_partition"] for row in rows}) == 1
    catalog = load_catalog(topic.settings)
    [layouts] = erase.find(catalog, [topic.declaration], (Person("seller", "14"),))
    assert erase.erase(catalog, topic.spark, layouts, "test") == 1
    report = topic.verify(decoded=True)
    assert (report.issues, report.records, report.erased, report.decoded) == ([], 40, 1, 39)
    assert topic.land_well(Options(from_earliest=True, wait=10)).records == 0
