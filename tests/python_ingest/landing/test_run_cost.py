"""What a batch and a check without new records cost: zstd files and few requests."""

import re

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from python_ingest.bronze.schema_state import Decoder
from python_ingest.kafka import consumer
from python_ingest.kafka.admin import Broker
from python_ingest.kafka.offset_range import OffsetRange
from python_ingest.landing import decode
from tests.support.topic_fixture import TopicFixture, produce


def test_files_are_zstd_and_raw_values_have_no_dictionary(topic: TopicFixture) -> None:
    # Equal ones, of which the writer would keep a dictionary.
    for _ in range(40):
        produce(topic, 1)
    topic.land_well()
    paths = [task.file.file_path.removeprefix("file:") for task in topic.table().scan().plan_files()]
    row_groups = [pq.read_metadata(path).row_group(0) for path in paths]
    columns = [row_group.column(number) for row_group in row_groups for number in range(row_group.num_columns)]
    assert {column.compression for column in columns} == {"ZSTD"}
    with_dictionary = {column.path_in_schema for column in columns if column.has_dictionary_page}
    assert "kafka_raw_key" in with_dictionary
    assert with_dictionary.isdisjoint({"kafka_offset", "kafka_raw_value"})


def test_a_run_without_news_reads_no_file_and_asks_once(topic: TopicFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    other = topic.declaring(topic=f"{topic.name}.2", table=f"{topic.name[5:]}_2")
    other.make_topic()
    for made in (topic, other):
        produce(made, 6)
        made.land_well()
        for file in made.directory.rglob("*.avro"):
            file.unlink()
    asked, ask = [], Broker._ask
    ingester = topic.ingester()
    monkeypatch.setattr(Broker, "_ask", lambda *arguments: asked.append(arguments) or ask(*arguments))
    results = ingester.catch_up([topic.declaration, other.declaration])
    assert [(result.error, result.records, result.lag) for result in results] == [(None, 0, 0)] * 2
    # Identity of the cluster, topics, first and last offsets.
    assert len(asked) == 4


def test_missing_topics_are_omitted_where_all_are_described(topic: TopicFixture) -> None:
    broker = Broker(topic.settings, 10)
    assert broker.describe_all([topic.name, "missing"]) == {topic.name: broker.describe(topic.name)}
    assert broker.describe_all(["missing"]) == broker.describe_all([]) == {}


def test_the_newest_schema_is_compared_first(spark: SparkSession) -> None:
    compared = str(decode._schema_id("value", Decoder({7: "int", 300: "int", 9: "int"})))
    assert re.findall(r"THEN (\d+)", compared) == ["300", "9", "7"]


def test_a_look_at_a_range_does_not_read_the_records_behind_it(
    topic: TopicFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic.produce(b"\x00\x00\x00\x00\x01", 0)
    for _ in range(1000):
        topic.produce(b"\x00\x00\x00\x00\x02", 0)
        topic.produce(b"\x00\x00\x00\x00\x03", 1)
    topic.flush()
    monkeypatch.setattr(consumer, "RECORDS_PER_CALL", 1)
    looked = consumer.schema_ids(topic.settings, topic.name, [OffsetRange(0, 0, 1), OffsetRange(1, 0, 1000)], 10)
    assert looked == ({1: 1, 3: 1000}, {None: 1001})
