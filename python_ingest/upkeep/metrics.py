"""Statuses as a text file that Prometheus' node exporter collects."""

from pathlib import Path

from prometheus_client import CollectorRegistry, Gauge, write_to_textfile

from lakehouse.errors import UserError
from python_ingest.upkeep.status import TopicStatus

HELP = {
    "up": "1 if the topic and its table could be described, 0 if not.",
    "lag_offsets": "Offsets that are not landed yet.",
    "lag_seconds": "Age of the oldest record that is not landed yet; 0 without one.",
    "held_back_offsets": "Offsets behind the last stable one: of an open transaction, and all that came after it.",
    "held_back_seconds": "Age of the oldest record that an open transaction holds back; 0 without one.",
    "rows": "Rows in the bronze table.",
    "dead_letters": "Rows that could not be decoded.",
    "recent_dead_letters": "Rows of the last week's batches that could not be decoded.",
    "over_limit": "1 if these are more than the topic's declaration allows, 0 if not.",
    "erased": "Rows that were erased.",
    "key_errors": "Rows whose key could not be decoded.",
    "omitted_fields": "Fields of landed schemas that no column can hold.",
    "last_batch": "Number of the last batch.",
    "newest_record_timestamp_seconds": "Greatest Kafka timestamp that was landed.",
    "landed_timestamp_seconds": "Time of the last batch.",
    "data_files": "Data files in the bronze table.",
    "small_files": "Data files that compaction could merge.",
    "delete_files": "Delete files in the bronze table.",
    "data_bytes": "Size of data and delete files.",
    "manifests": "Manifests of the bronze table's current snapshot.",
    "snapshots": "Snapshots of the bronze table.",
}


def write(path: Path, statuses: list[TopicStatus]) -> None:
    """Replace the file in one step, without values that are not known; a UserError if it cannot be written."""
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
    try:
        write_to_textfile(str(path), registry)
    except OSError as error:
        raise UserError(f"{path} cannot be written ({type(error).__name__})", "Check --metrics-file") from None
