"""A topic that no model knows, by the commands of docs/your-own-topics.md to its weekly CSV file, in a copy."""

import csv
import io
import json
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient

from python_common.config import connections
from python_common.config.environment import PROJECT_ROOT
from python_common.config.settings import Settings
from python_common.weeks import IsoWeek
from python_dev.stack.temporary import running
from tests.support.commands import LAKEHOUSE
from tests.support.registry_avro import encode
from tests.support.small_project import copy_checkout
from tests.support.topic_fixture import record

pytestmark = pytest.mark.slow

TOPIC, ENTITY = "shop.returns-v1", "product_returns"
JARS = Path("python_common/spark/target")
PAGE = (PROJECT_ROOT / "docs" / "your-own-topics.md").read_text()
WEEK = IsoWeek.last_complete(datetime.now(UTC))
OPTIONAL = ["null", "string"]
RETURN = record(
    "Return",
    returnId="long",
    customerId=["null", "int"],
    e_mail=OPTIONAL,
    phone="long",
    seenAt={"type": "long", "logicalType": "local-timestamp-micros"},
    weight=["null", "float"],
    reason={"type": "enum", "name": "Reason", "symbols": ["BROKEN", "NO"]},
    store=["null", record("Store", order="int", opened={"type": "int", "logicalType": "date"})],
    sku=OPTIONAL,
    remark=OPTIONAL,
    refund="double",
    tags={"type": "array", "items": "string"},
    returnedAt={"type": "long", "logicalType": "timestamp-millis"},
)


def milliseconds(moment: datetime) -> int:
    return int(moment.timestamp() * 1000)


def a_return(number: int, moment: datetime, **fields: Any) -> dict[str, Any]:
    return {
        "returnId": number,
        "customerId": 7,
        "e_mail": f"person{number}@example.com",
        "phone": 41440000000 + number,
        "seenAt": 0,
        "weight": 0.5,
        "reason": "NO",
        "store": {"order": number, "opened": 20000},
        "sku": f"SKU-{number}",
        "remark": f"call +41 44 000 00 0{number}",
        "refund": number + 0.25,
        "tags": ["private"],
        "returnedAt": milliseconds(moment),
        **fields,
    }


MONDAY, SUNDAY = WEEK.start, WEEK.end - timedelta(milliseconds=1)
# Number 2 is there twice, and its earlier record comes later.
RECORDS = [
    a_return(1, MONDAY),
    a_return(2, MONDAY + timedelta(hours=5), sku="SKU-LATER"),
    a_return(2, MONDAY + timedelta(hours=2)),
    a_return(3, SUNDAY, customerId=None, e_mail=None, sku=None, remark=None, store=None),
    a_return(4, MONDAY - timedelta(milliseconds=1)),
    # It shows that the topic is past the week.
    a_return(5, WEEK.end + timedelta(minutes=1)),
]


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the project without its history, on the same jars."""
    directory = tmp_path_factory.mktemp("project")
    copy_checkout(directory)
    shutil.rmtree(directory / JARS, ignore_errors=True)
    (directory / JARS).symlink_to(PROJECT_ROOT / JARS)
    return directory


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Settings]:
    with running(tmp_path_factory.mktemp("topic"), "kafka", "registry", "thrift") as (settings, _):
        registry = SchemaRegistryClient(connections.registry_client(settings))
        schema_id = registry.register_schema(f"{TOPIC}-value", Schema(json.dumps(RETURN), "AVRO"))
        kafka = connections.kafka_client(settings)
        admin = AdminClient(kafka)
        admin.create_topics([NewTopic(TOPIC, 1, 1)])[TOPIC].result()
        producer = Producer(kafka)
        for number, value in enumerate(RECORDS):
            at = max(milliseconds(WEEK.start) + number, value["returnedAt"])
            producer.produce(TOPIC, encode(RETURN, schema_id, value), key=str(number), timestamp=at, partition=0)
        assert producer.flush(30) == 0
        yield settings


def run(copy: Path, command: str) -> str:
    """Run a command of the page on the copy's code, for the week of the test, and return what it prints."""
    name, *arguments = shlex.split(command.replace("2026-W47", str(WEEK)))
    env = {**os.environ, "PYTHONPATH": str(copy)}
    program = LAKEHOUSE.with_name(name)
    done = subprocess.run([program, *arguments], cwd=copy, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    return done.stdout


def test_a_new_topic_becomes_a_weekly_file(settings: Settings, copy: Path) -> None:
    steps = PAGE.partition("## Limits")[0].replace("\\\n", "")
    preview, write, *commands = re.findall(r"^ +((?:lakehouse (?!stack)|dbt ).*)$", steps, re.MULTILINE)
    assert "--pii e_mail=CLASS --pii phone=CLASS" in run(copy, preview)
    assert not list(copy.glob("models/*/returns"))
    run(copy, f"{write} --pii reason=none --pii store_order=none --pii store_opened=birth")
    assert [command.split()[:3] for command in commands] == [
        ["lakehouse", "ingest", "run"],
        ["lakehouse", "ingest", "verify"],
        ["dbt", "build", "--select"],
        ["lakehouse", "export", "run"],
    ]
    for command in commands:
        run(copy, command)

    [file] = Path(settings.export_root).glob(f"{ENTITY}/{WEEK}/v1/*/*_v1.csv")
    text = file.read_text()
    rows = [*csv.DictReader(io.StringIO(text))]
    names = ("return_id", "sku", "refund", "reason", "store_order", "store_opened_year")
    assert [tuple(row[name] for name in names) for row in rows] == [
        ("1", "SKU-1", "1.250000", "NO", "1", "2024"),
        ("2", "SKU-2", "2.250000", "NO", "2", "2024"),
        ("3", "", "3.250000", "NO", "", ""),
    ]
    assert {row["returned_week"] for row in rows} == {str(WEEK)}
    # Customer 7 twice under one pseudonym, and a customer who is unknown.
    assert [row["customer_id_pseudonym"] == rows[0]["customer_id_pseudonym"] for row in rows] == [True, True, False]
    assert not rows[2]["customer_id_pseudonym"]
    assert not rows[0].keys() & {"remark", "tags", "e_mail", "phone", "seen_at", "weight", "customer_id"}
    assert not any(word in text for word in ("example.com", "+41", "41440", "private"))
