"""Topics that a scaffold writes models for, into a copy of this project."""

import json
import random
from pathlib import Path
from typing import Any

from python_dbt.pii import masks
from python_dev.scaffold import columns, files, schema
from python_dev.scaffold.files import New
from python_dev.scaffold.schema import ScaffoldedTopic
from python_ingest.kafka.registry import Registered
from tests.support.schemas import random_record
from tests.support.seeds import SEED
from tests.support.topic_fixture import record

TIME = {"type": "long", "logicalType": "timestamp-micros"}
KEYS = [("string", "string"), ("bytes", "binary"), ("avro", "struct<`order`: bigint>"), ("avro", "bigint")]


def topic_of(avro: Any, name: str = "topic", **of_key: str) -> ScaffoldedTopic:
    return ScaffoldedTopic(name, *schema.landed("value", "subject", Registered("AVRO", json.dumps(avro))), **of_key)


def new(avro: Any, key: str | None = None, at: str | None = None, **classes: str) -> New:
    topic = topic_of(avro, "shop.returns")
    return files.new_topic(topic, "crm2", "product_returns", columns.columns(topic, classes, {}), key, at)


def new_at_random(seed: str, project: Path) -> New:
    """Return a topic of any schema, with classes that are offered, and any key that can be one."""
    rng = random.Random(seed)
    key_format, key_type = rng.choice(KEYS)
    topic = topic_of(random_record(rng), f"{seed}.Topic", key_format=key_format, key_type=key_type)
    described = files.described(project)
    classes = {
        one.name: rng.choice([*columns.offered(one.leaf.type), *[masks.AS_IS] * 6])
        for one in columns.columns(topic, {}, described)
    }
    payload = columns.columns(topic, classes, described)
    keys = [one.name for one in payload if one.pii == masks.AS_IS and one.type in ("string", "bigint")]
    entity = f"views_{''.join(rng.choices('abcdefghij', k=8))}s"
    return files.new_topic(topic, f"crm{rng.randrange(3)}", entity, payload, rng.choice([None, *keys]))


def written_topics(project: Path, seed: int) -> list[Path]:
    """Write topics of any schema into a project, one with long names, and return the files."""
    symbols = [f"{'LONG' * 5}_{number}" for number in range(20)]
    long = new(record("one", colour={"type": "enum", "name": "Many", "symbols": symbols}), colour="none")
    written = dict.fromkeys(files.write(project, long))
    for number in range(2):
        written |= dict.fromkeys(files.write(project, new_at_random(f"{SEED}-{seed}-{number}", project)))
    return [*written]
