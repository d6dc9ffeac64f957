"""A broker, a registry and a lake for one run of the benchmark, on free ports."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lakehouse.settings import Settings, from_environment
from local_stack import stack
from local_stack.process import free_ports

NAMES = ("kafka", "registry")
# A developer's own environment must not lead the benchmark to another broker or warehouse.
FOREIGN = ("KAFKA_", "SCHEMA_REGISTRY_", "LAKEHOUSE_")


@contextmanager
def running(home: Path) -> Iterator[Settings]:
    """Start the services with their data in a directory; stop them at the end. The environment names them."""
    for name in [name for name in os.environ if name.startswith(FOREIGN)]:
        del os.environ[name]
    os.environ["LAKEHOUSE_HOME"] = str(home)
    os.environ.update(zip(stack.PORTS, map(str, free_ports(len(stack.PORTS))), strict=True))
    values = stack.variables(NAMES)
    stack.prepare(values)
    stack.write_env_file(values)
    services = stack.services(values)
    try:
        for name in NAMES:
            services[name].start()
        yield from_environment()
    finally:
        for name in reversed(NAMES):
            services[name].stop()
