"""`lakehouse ingest run --follow` as a process: it lands what comes, writes metrics, and a signal ends it well."""

import signal
import subprocess
from functools import partial
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.support.commands import LAKEHOUSE
from tests.support.race import until
from tests.support.topic_fixture import TopicFixture, assert_exactly_once, declared_in, produce

pytestmark = pytest.mark.slow


def test_a_follower_lands_writes_metrics_and_ends_well(topic: TopicFixture, tmp_path: Path) -> None:
    other = topic.declaring(topic=f"{topic.name}.other", table=f"{topic.declaration.table}_other")
    other.make_topic()
    declared_in(tmp_path, topic.declaration, other.declaration)
    metrics = tmp_path / "ingest.prom"
    options = ["--every", "1s", "--max-records", "20", "--topics-at-once", "1", "--metrics-file", str(metrics)]
    command = [LAKEHOUSE, "--log-level=warning", "ingest", "run", "--follow", *options, "--models", str(tmp_path)]

    def has_landed(wanted: dict[str, float]) -> bool:
        text = metrics.read_text() if metrics.exists() else ""
        families = {family.name: family for family in text_string_to_metric_families(text)}
        rows = families.get("lakehouse_ingest_rows")
        return rows is not None and {sample.labels["topic"]: sample.value for sample in rows.samples} == wanted

    for _ in range(50):
        topic.produce(b"no schema")
    produce(topic, 50)
    follower = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        for count in (6, 12):
            produce(other, 6)
            until(partial(has_landed, {topic.name: 100, other.name: count}), seconds=120)
    finally:
        follower.send_signal(signal.SIGTERM)
        output, log = follower.communicate(timeout=120)
    assert follower.returncode == 0, output
    [warning] = log.splitlines()
    # How many the first batch has depends on the partitions.
    assert f"warning: {topic.name}: " in warning
    assert " of 20 records landed are dead letters, more than max_dead_letters allows" in warning
    assert_exactly_once(other, 12)
    assert topic.verify().issues == []
