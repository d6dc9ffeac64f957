"""Topics that a scaffold writes models for."""

import json
from typing import Any

from python_dev.scaffold import columns, files, schema
from python_dev.scaffold.files import New
from python_dev.scaffold.schema import ScaffoldedTopic
from python_ingest.kafka.registry import Registered

TIME = {"type": "long", "logicalType": "timestamp-micros"}


def topic_of(avro: Any, name: str = "topic", **of_key: str) -> ScaffoldedTopic:
    return ScaffoldedTopic(name, *schema.landed("value", "subject", Registered("AVRO", json.dumps(avro))), **of_key)


def new(avro: Any, key: str | None = None, at: str | None = None, **classes: str) -> New:
    topic = topic_of(avro, "shop.returns")
    return files.new_topic(topic, "crm2", "product_returns", columns.columns(topic, classes, {}), key, at)
