"""The schema registry: Apicurio with its Confluent API and an H2 file, so that schema ids survive a restart."""

import urllib.request
from pathlib import Path

from python_common.config.environment import TARGET
from python_common.process import Service
from python_common.spark import java

RUNNER = TARGET / "registry" / "apicurio-registry-app-3.0.9-runner.jar"
URL = "http://127.0.0.1:{}/apis/ccompat/v7"
"""The Confluent-compatible API, by its port."""


def service(directory: Path, port: int) -> Service:
    """Return the registry; its data is `directory`/data."""
    return Service(
        name="registry",
        directory=directory,
        command=lambda: [java.executable(), "-Xmx512m", "-jar", str(RUNNER)],
        ports={"SCHEMA_REGISTRY_URL": port},
        answers=lambda: _answers(port),
        env=lambda: {
            "QUARKUS_HTTP_HOST": "127.0.0.1",
            "QUARKUS_HTTP_PORT": str(port),
            "APICURIO_STORAGE_KIND": "sql",
            "APICURIO_STORAGE_SQL_KIND": "h2",
            "APICURIO_DATASOURCE_URL": f"jdbc:h2:file:{directory / 'data' / 'registry'}",
        },
    )


def _answers(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"{URL.format(port)}/subjects", timeout=2):
            return True
    except OSError:
        return False
