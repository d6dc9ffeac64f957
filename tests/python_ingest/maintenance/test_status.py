"""The status shows how far and how fresh each topic is, also when one of them or the broker is away."""

import json
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from python_common.catalog.catalog import load_catalog
from python_common.errors import UserError
from python_ingest.kafka import admin
from python_ingest.landing.run import Options
from python_ingest.maintenance import metrics
from python_ingest.maintenance.status import TopicStatus, topic_statuses
from tests.support.in_process import Lakehouse
from tests.support.topic_fixture import TopicFixture, configure, declared_in, produce


def status_of(topic: TopicFixture) -> TopicStatus:
    load_catalog(topic.settings, create=True)  # no other test may have landed anything yet
    (status,) = topic_statuses(topic.settings, [topic.declaration], 10)
    return status


def test_lag_freshness_and_files_of_a_topic(topic: TopicFixture, tmp_path: Path) -> None:
    now = int(time.time() * 1000)
    nothing = status_of(topic)
    assert (nothing.lag_offsets, nothing.lag_seconds, nothing.rows, nothing.error) == (0, 0, None, None)
    produce(topic, 12, stamp=now - 100_000)
    topic.produce(b"no schema", 1, timestamp=now - 90_000)
    topic.land_well(Options(max_records=6, wait=10))
    done = status_of(topic)
    assert done.next_offsets == {0: 4, 1: 5, 2: 4}
    assert (done.lag_offsets, done.lag_seconds, done.rows, done.dead_letters, done.last_batch) == (0, 0, 13, 1, 3)
    assert done.newest_record is not None
    assert done.newest_record.timestamp() * 1000 == now - 90_000
    assert done.landed_at == max(row["ingested_at"] for row in topic.rows())
    assert done.size is not None
    assert (done.size.snapshots, done.size.delete_files) == (3, 0)
    assert done.size.small_files == done.size.data_files == len(list(topic.table().scan().plan_files()))
    topic.produce(b"late", 0, timestamp=now - 50_000)
    topic.produce(b"later", 2, timestamp=now - 40_000)
    topic.flush()
    late = status_of(topic)
    assert late.lag_offsets == 2
    assert late.lag_seconds is not None
    assert 50 <= late.lag_seconds < 50 + 600
    configure(topic, "message.timestamp.after.max.ms", str(2**63 - 1))
    produce(topic, 1, stamp=1_800_000_000_000_000)
    topic.land_well()
    far = status_of(topic)
    assert (far.newest_record, far.rows, far.error) == (datetime.max.replace(tzinfo=UTC), 16, None)
    metrics.write(tmp_path / "far.prom", [far])


def test_a_hanging_transaction_is_not_seen_or_counts_as_lag(topic: TopicFixture) -> None:
    producer = topic.transactional_producer()
    producer.begin_transaction()
    producer.produce(topic.name, b"x", partition=0, timestamp=int(time.time() * 1000) - 100_000)
    producer.flush()
    produce(topic, 3)
    status = status_of(topic)
    assert (status.lag_offsets, status.held_back_offsets) == (2, 2)
    assert status.held_back_seconds is not None
    assert 100 <= status.held_back_seconds < 100 + 600
    producer.abort_transaction()
    # The broker answers before it has written the marker.
    for _ in range(100):
        status = status_of(topic)
        # The lag is asked for first, so it may be of before the marker when the other is not.
        if (status.lag_offsets, status.held_back_offsets) == (5, 0):
            break
        time.sleep(0.1)
    assert (status.lag_offsets, status.held_back_offsets, status.held_back_seconds) == (5, 0, 0)
    topic.land_well()
    assert status_of(topic).lag_offsets == 0


def test_a_failed_topic_hides_others_or_exits_with_0(topic: TopicFixture, models_dir: Path, ingest: Lakehouse) -> None:
    produce(topic, 3)
    topic.land_well()
    missing = topic.declaring(topic=f"{topic.name}.missing", table=f"{topic.declaration.table}_missing")
    declared_in(models_dir, topic.declaration, missing.declaration)
    file = models_dir / "lakehouse.prom"
    file.write_text("what was there before")
    result = ingest("status", "--json", "--metrics-file", str(file))
    assert result.returncode == 1
    landed, failed = json.loads(result.stdout)
    assert (landed["rows"], landed["lag_offsets"], landed["error"]) == (3, 0, None)
    assert f"The topic '{topic.name}.missing' does not exist" in failed["error"]
    assert result.stderr == f"error: {topic.name}.missing: {failed['error']}\n"
    families = {family.name: family for family in text_string_to_metric_families(file.read_text())}
    assert all(family.documentation and family.type == "gauge" for family in families.values())
    up = {sample.labels["topic"]: sample.value for sample in families["lakehouse_ingest_up"].samples}
    assert up == {topic.name: 1, f"{topic.name}.missing": 0}
    (rows,) = families["lakehouse_ingest_rows"].samples
    assert (rows.labels, rows.value) == ({"topic": topic.name}, 3)
    assert [path.name for path in models_dir.glob("lakehouse.prom*")] == ["lakehouse.prom"]


def test_what_the_ingester_would_refuse_is_the_status(topic: TopicFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    produce(topic, 3)
    topic.land_well()
    produce(topic, 9)
    topic.delete_records(1, 3)
    status = status_of(topic)
    assert "retention deleted offsets 1 to 2 of partition 1" in str(status.error)
    assert (status.rows, status.over_limit) == (3, False)
    monkeypatch.setattr(admin, "REQUEST_SECONDS", 0.5)
    away = topic.settings.changed(kafka_bootstrap_servers="127.0.0.1:1")
    first, second = topic_statuses(away, [topic.declaration] * 2, 0.5)
    assert first == second
    assert (first.rows, first.lag_offsets) == (3, None)
    assert "Kafka at 127.0.0.1:1 does not answer" in str(first.error)


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"cannot be written \(FileNotFoundError\)\. Check --metrics-file"):
        metrics.write(tmp_path / "missing" / "x.prom", [])
