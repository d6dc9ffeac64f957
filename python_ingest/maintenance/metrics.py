"""Writes statuses to a text file for Prometheus' node exporter."""

from pathlib import Path
from typing import Annotated, get_args, get_origin, get_type_hints

from prometheus_client import CollectorRegistry, Gauge

from python_common import metrics_file
from python_ingest.bronze.files import TableSize
from python_ingest.maintenance.status import TopicStatus


def _texts(model: type) -> dict[str, str]:
    hints = get_type_hints(model, include_extras=True)
    return {name: get_args(hint)[1] for name, hint in hints.items() if get_origin(hint) is Annotated}


HELP = {
    "up": "1 if the topic and its table could be described, 0 if not.",
    **_texts(TopicStatus),
    "newest_record_timestamp_seconds": "Greatest Kafka timestamp that was landed.",
    "landed_timestamp_seconds": "Time of the last batch.",
    **_texts(TableSize),
}


def write(path: Path, statuses: list[TopicStatus]) -> None:
    """Replace the file atomically, without unknown values; a UserError if it cannot be written."""
    registry = CollectorRegistry()
    gauges = {
        name: Gauge(f"lakehouse_ingest_{name}", text, ["topic"], registry=registry) for name, text in HELP.items()
    }
    offset = Gauge("lakehouse_ingest_next_offset", "Offset to land next.", ["topic", "partition"], registry=registry)
    Gauge(
        "lakehouse_ingest_status_timestamp_seconds", "When this was written.", registry=registry
    ).set_to_current_time()
    for status in statuses:
        values = {"up": status.error is None} | vars(status) | (vars(status.size) if status.size else {})
        values["newest_record_timestamp_seconds"] = status.newest_record and status.newest_record.timestamp()
        values["landed_timestamp_seconds"] = status.landed_at and status.landed_at.timestamp()
        for name, gauge in gauges.items():
            if values.get(name) is not None:
                gauge.labels(status.topic).set(values[name])
        for partition, value in status.next_offsets.items():
            offset.labels(status.topic, partition).set(value)
    metrics_file.write(path, registry)
