"""Writes metrics to a text file for Prometheus' node exporter."""

from pathlib import Path

from prometheus_client import CollectorRegistry, write_to_textfile

from python_common.errors import UserError


def write(path: Path, registry: CollectorRegistry) -> None:
    """Replace the file atomically; a UserError if it cannot be written."""
    try:
        write_to_textfile(str(path), registry)
    except OSError as error:
        raise UserError(f"{path} cannot be written ({type(error).__name__})", "Check --metrics-file") from None
