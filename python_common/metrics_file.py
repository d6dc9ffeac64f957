"""Writes metrics to a text file for Prometheus' node exporter."""

from pathlib import Path

from prometheus_client import CollectorRegistry, generate_latest

from python_common import private_files
from python_common.errors import UserError


def write(path: Path, registry: CollectorRegistry) -> None:
    """Replace the file atomically; a UserError if it cannot be written. The exporter, another user, may read it."""
    try:
        private_files.write(path, generate_latest(registry), private_files.for_readers(0o666))
    except OSError as error:
        raise UserError(f"{path} cannot be written ({type(error).__name__})", "Check --metrics-file") from None
