"""A batch is proven by reading its offsets again: equal until a stored row is changed, lost or doubled."""

import json
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition
from py4j.protocol import Py4JError

from lakehouse.errors import UserError
from python_ingest import decode
from python_ingest.broker import Broker
from python_ingest.reproduce import Proof, reproduce
from python_ingest.run import Options
from tests.conftest import run_lakehouse
from tests.ingest.lab import Lab, record

TAGS = {"type": "map", "values": "string"}
MICROS = {"type": "long", "logicalType": "timestamp-micros"}
SALE = record("sale", id="int", tags=TAGS, at=MICROS)


def land_batches(lab: Lab) -> None:
    schema_id = lab.register(SALE)
    for index in range(18):
        value = {"id": index, "tags": {"b": "x", "a": str(index)}, "at": 1_700_000_000_000_001 + index}
        lab.produce(lab.encode(schema_id, value), index % 3, key=str(index).encode(), headers={"trace": b"t"})
    lab.produce(b"foreign bytes", 0)
    assert lab.land_well(Options(max_records=9, wait=10)).batches == 3


def proofs(lab: Lab, number: int) -> list[Proof]:
    return reproduce(lab.lander(), Broker(lab.settings, 10).describe(lab.topic), number)


def test_every_batch_is_equal_until_a_row_of_it_is_touched(lab: Lab, models_dir: Path) -> None:
    land_batches(lab)
    for number in (1, 2, 3):
        assert all(each.equal for each in proofs(lab, number))
    assert sum(each.rows_stored for number in (1, 2, 3) for each in proofs(lab, number)) == 19
    lab.sql("update {table} set at = at + interval 1 microsecond where kafka_partition = 1 and kafka_offset = 4")
    lab.sql("insert into {table} select * from {table} where kafka_partition = 2 and kafka_offset = 0")
    lab.sql("delete from {table} where kafka_partition = 0 and kafka_offset = 1")
    assert {each.partition: each.equal for each in proofs(lab, 1)} == {0: False, 1: True, 2: False}
    assert {each.partition: each.equal for each in proofs(lab, 2)} == {0: True, 1: False, 2: True}
    result = run_lakehouse("ingest", "reproduce", lab.topic, "--batch", "2", "--json", "--models", str(models_dir))
    assert result.returncode == 1
    assert "batch 2 differs from the topic" in result.stderr
    assert [(each["partition"], each["equal"]) for each in json.loads(result.stdout)] == [
        (0, True),
        (1, False),
        (2, True),
    ]


def test_a_spark_that_fails_is_named(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    lab.produce(b"foreign bytes", 0)
    lab.land_well()

    def fail(*_: object) -> None:
        raise Py4JError("the JVM is gone")

    monkeypatch.setattr(decode, "rows", fail)
    with pytest.raises(UserError, match=rf"{lab.topic}: Spark failed \(Py4JError\)\. See .*spark\.log"):
        proofs(lab, 1)


def test_a_batch_whose_snapshot_expired_is_found_by_its_rows(lab: Lab) -> None:
    land_batches(lab)
    name = lab.declaration.identifier
    lab.sql(f"call lake.system.expire_snapshots(table => '{name}', older_than => now(), retain_last => 1)")
    first = proofs(lab, 1)
    assert [(each.partition, each.start, each.until, each.equal) for each in first] == [
        (0, 0, 3, True),
        (1, 0, 3, True),
        (2, 0, 3, True),
    ]


def test_what_cannot_be_proven_is_named(lab: Lab) -> None:
    land_batches(lab)
    with pytest.raises(UserError, match=f"{lab.declaration.identifier} has no batch 9"):
        proofs(lab, 9)
    for deleted in lab.admin.delete_records([TopicPartition(lab.topic, 1, 2)]).values():
        deleted.result()
    with pytest.raises(UserError, match="no longer has all of offsets 0 to 2 of partition 1"):
        proofs(lab, 1)
