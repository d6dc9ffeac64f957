"""A run whose producers never stop writing; test_run_kills.py has those that are killed."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from python_ingest.landing.run import Options
from tests.support.topic_fixture import Messages, TopicFixture, produce


@dataclass
class Producing(Messages):
    """A Reporter that has something produced whenever a batch is planned."""

    produce: Callable[[], Any] = lambda: None

    def waiting(self, topic: str, offsets_left: int) -> None:
        self.produce()


def test_what_comes_while_a_run_plans_waits_for_the_next_one(topic: TopicFixture) -> None:
    """Through retries, gaps and partitions that are new, and in a topic whose turn is later."""
    later = topic.declaring(topic=f"{topic.name}.later", table=f"{topic.declaration.table}_later")
    later.make_topic()
    produce(topic, 9)
    topic.land_well(Options(max_records=3, wait=10))
    topic.sql("delete from {table} where kafka_partition = 1 and kafka_offset < 2")
    produce(topic, 9)
    produce(later, 5)
    added: list[int] = []

    def more() -> None:
        if not added:
            topic.add_partitions(4)
            topic.delete_records(0, 1)
        produce(replace(topic), 4, partitions=(0, 1, 2, 3))  # a producer that knows the new partition
        produce(later, 4)
        added.append(4)

    options = Options(max_records=4, wait=10, from_earliest=True, topics_at_once=1)
    ingester = topic.ingester(options, messages=Producing(produce=more))
    results = ingester.catch_up([topic.declaration, later.declaration])
    assert [(result.error, result.records, result.lag) for result in results] == [(None, 11, 0), (None, 5, 0)]
    assert len(added) > 3
    assert {row["kafka_partition"] for row in topic.rows()} == {0, 1, 2}
    for one in (topic, later):
        assert one.land_well(replace(options, max_records=1000)).records == sum(added)
        assert one.verify().issues == []
