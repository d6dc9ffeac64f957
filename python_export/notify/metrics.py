"""Writes metrics of a run and of the newest published weeks, for Prometheus' node exporter."""

from datetime import datetime
from pathlib import Path

from prometheus_client import CollectorRegistry, Gauge

from python_common import metrics_file
from python_common.weeks import IsoWeek
from python_export.notify.exported import Exported

HELP = {
    "newest_week_timestamp_seconds": "Start of the newest published week.",
    "rows": "Rows of its current version.",
    "bytes": "Bytes of its file.",
    "published_timestamp_seconds": "When that version was published.",
}


def write(path: Path, exported: Exported) -> None:
    """Replace the file atomically; a UserError if it cannot be written."""
    registry = CollectorRegistry()
    gauges = [Gauge(f"lakehouse_export_{name}", text, ["dataset"], registry=registry) for name, text in HELP.items()]
    # The oldest first, so that each dataset keeps its newest week.
    for manifest in reversed([manifest for manifest in exported.current if not manifest.withdrawn]):
        start, published = IsoWeek.parse(manifest.week).start, datetime.fromisoformat(manifest.created_at)
        values = (start.timestamp(), manifest.rows, manifest.bytes, published.timestamp())
        for gauge, value in zip(gauges, values, strict=True):
            gauge.labels(manifest.dataset).set(value)
    datasets = Gauge("lakehouse_export_withheld_datasets", "Datasets that the last run withheld.", registry=registry)
    datasets.set(len({withheld.dataset for withheld in exported.withheld}))
    Gauge(
        "lakehouse_export_status_timestamp_seconds", "When this was written.", registry=registry
    ).set_to_current_time()
    metrics_file.write(path, registry)
