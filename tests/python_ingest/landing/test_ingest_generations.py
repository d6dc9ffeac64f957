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
from python_ingest.maintenance.maintain import Retention, maintain_table
from python_ingest.verify.compare import verify_topic
from python_ingest.verify.report import Report
from tests.support.lab import SALE, Lab, produce, record


def recreate(lab: Lab) -> Lab:
    """Delete the topic and make one of its name, and return a lab with a producer that knows the new one."""
    lab.delete_topic()
    lab = replace(lab)
    lab.make_topic()
    return lab


def rebind(lab: Lab, start: str, directory: Path) -> None:
    ingest.rebind(lab.topic, start=start, wait="10s", models=directory)


def verified(lab: Lab) -> Report:
    report = verify_topic(lab.settings, lab.declaration, 10, decoded=True)
    assert report.problems == []
    return report


def place(row: dict[str, Any]) -> tuple[int, int, int]:
    return row["kafka_generation"] or 0, row["kafka_partition"], row["kafka_offset"]


def test_a_recreated_topic_is_a_generation_of_its_own(lab: Lab, models_dir: Path) -> None:
    produce(lab, 9)
    lab.produce(b"not Avro", 1)
    lab.land_well()
    with pytest.raises(UserError, match=r"has no rows of another .*: nothing changed"):
        rebind(lab, "earliest", models_dir)
    former = lab.rows()

    lab = recreate(lab)
    produce(lab, 6, start=100)
    lab.produce(b"not Avro", 1)
    rebind(lab, "earliest", models_dir)
    assert verified(lab).expired == 10
    assert lab.land_well().records == 7
    retention = Retention(timedelta(0), timedelta(days=3))
    assert maintain_table(lab.settings, lambda: lab.spark, lab.declaration.identifier, retention) is not None
    files = lab.table().inspect.data_files().to_pylist()
    assert {file["spec_id"] for file in files} == {lab.table().spec().spec_id}, "files of generation 0 are merged"
    produce(lab, 3, start=200)
    assert lab.land_well().records == 3
    assert lab.land_well().records == 0

    rows = lab.rows()
    assert [row for row in rows if row["kafka_generation"] is None] == former
    places = [(row["kafka_generation"], row["kafka_partition"], row["kafka_offset"]) for row in rows]
    assert len(set(places)) == len(places) == 20
    assert {generation for generation, *_ in places} == {None, 1}
    assert {row["ingest_batch"] for row in rows} == {1, 2, 3}
    report = verified(lab)
    assert (report.rows, report.records, report.expired, report.decoded) == (20, 10, 10, 20)

    [found] = erase.named(load_catalog(lab.settings), [lab.declaration], [(lab.topic, 1, 1, 0)])
    assert erase.erase(load_catalog(lab.settings), lab.spark, found, "erase-test") == 1
    emptied = {place(row) for row in lab.rows() if (row["decode_error"] or "").startswith("erased: ")}
    assert emptied == {(1, 1, 0)}
    verified(lab)


def test_a_replay_changes_the_row_of_its_own_generation(lab: Lab, models_dir: Path) -> None:
    schema_id = lab.register(SALE)
    unknown = (schema_id + 10_000).to_bytes(4, "big")
    lab.produce(b"\0" + unknown + b"body")
    lab.land_well()
    lab = recreate(lab)
    other = lab.register_under("elsewhere-value", record("later", id="int", color="string"))
    lab.produce(lab.encode(other, {"id": 7, "color": "red"}))
    lab.flush()
    rebind(lab, "earliest", models_dir)
    lab.land_well()
    assert [row["decode_error"] is None for row in lab.rows()] == [False, False]
    lab.register_under(f"{lab.topic}-value", record("later", id="int", color="string"))
    assert replay.replay(lab.batch_writer(), None).decoded == 1
    assert {place(row): row.get("id") for row in lab.rows()} == {(0, 0, 0): None, (1, 0, 0): 7}
    verified(lab)


def test_a_rebound_topic_begins_at_its_option_and_a_backfill_goes_no_further(lab: Lab, models_dir: Path) -> None:
    produce(lab, 9)
    lab.land_well()
    lab = recreate(lab)
    produce(lab, 6)
    rebind(lab, "latest", models_dir)
    produce(lab, 3, start=6)
    assert lab.land_well(Options(wait=10, from_earliest=True)).records == 3
    assert verified(lab).records == 3
    lab.sql("delete from {table} where kafka_generation = 1 and kafka_partition = 2")
    assert lab.land_well(Options(wait=10, from_earliest=True)).records == 1
    assert verified(lab).records == 3
    assert {place(row) for row in lab.rows() if row["kafka_generation"]} == {(1, 0, 2), (1, 1, 2), (1, 2, 2)}
