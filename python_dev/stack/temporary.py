"""A temporary stack for a benchmark, tests or the set-up, on free ports with an empty lake."""

import os
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from python_common.config.environment import changed_environment
from python_common.config.settings import Settings, from_environment
from python_common.process import Service, free_ports
from python_dev.stack import stack

# A developer's variables could lead to another broker, catalog or bucket.
FOREIGN = ("KAFKA_", "SCHEMA_REGISTRY_", "LAKEHOUSE_", "DBT_", "AWS_", "PG", "PYICEBERG_", "SPARK_")


@contextmanager
def own_environment(home: Path) -> Iterator[None]:
    """Set variables for a home, dbt's output and free ports inside the block."""
    variables = {
        "LAKEHOUSE_HOME": str(home),
        "DBT_TARGET_PATH": str(home / "target"),
        "DBT_LOG_PATH": str(home / "logs"),
    }
    ports = free_ports(len(stack.ADDRESSES))
    for (variable, address, _), port in zip(stack.ADDRESSES.values(), ports, strict=True):
        variables[variable] = address.format(port)
    with changed_environment({}):
        for name in [name for name in os.environ if name.startswith(FOREIGN)]:
            del os.environ[name]
        os.environ.update(variables)
        yield


@contextmanager
def running(
    home: Path, *names: str, more: Mapping[str, str] | None = None
) -> Iterator[tuple[Settings, dict[str, Service]]]:
    """Start services with their data, and dbt's, in a directory; stop them at the end. The environment names them.

    `more` are further variables.
    """
    # So that `timeout` does not leave them running.
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    with own_environment(home):
        # Before the services, some of which read them.
        os.environ.update(more or {})
        values = stack.variables(names)
        stack.prepare(values)
        stack.write_env(values)
        os.environ.update(values)
        services = stack.services(values)
        try:
            for name in names:
                services[name].launch()
            for name in names:
                services[name].wait()
            yield from_environment(), services
        finally:
            for name in reversed(names):
                services[name].stop()
            signal.signal(signal.SIGTERM, before)
