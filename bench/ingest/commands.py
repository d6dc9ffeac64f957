"""How each peer is started, and whether what it needs is there."""

import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from python_common.config.settings import Settings
from python_common.errors import UserError
from python_common.spark import java

HERE = Path(__file__).parent
TARGET = HERE.parent / "target"
FLINK_JARS = (TARGET / "pyflink" / "pyflink" / "lib", TARGET / "flink")
HEAP = "-Xmx2g"
"""As much as the ingester's Spark driver has."""
# Flink's start script opens these packages; its serializers need them.
OPENED = ("java.lang", "java.lang.reflect", "java.nio", "java.time", "java.util", "java.util.concurrent")
NAMES = ("ingester", "flink", "plain", "floor")


def require(names: Iterable[str]) -> None:
    """Stop if a peer does not exist, or its jars are not there; compile Flink's launcher.

    Raises:
        UserError: with the remedy.
    """
    for name in names:
        if name not in NAMES:
            raise UserError(f"There is no peer '{name}'", f"Choose from {', '.join(NAMES)}")
    if "flink" not in names:
        return
    if not all(any(directory.glob("*.jar")) for directory in FLINK_JARS):
        raise UserError(f"Flink's jars are not in {TARGET}", "Run `make bench-ingest`, or leave the peer out")
    compiler = Path(java.executable()).with_name("javac")
    subprocess.run(
        [compiler, "-d", TARGET / "classes", "-cp", _flink_class_path(), HERE / "FlinkPeer.java"], check=True
    )


def command(name: str, topic: str, settings: Settings) -> list[str]:
    """Return the command that starts a peer for a topic; it takes its jobs on stdin (see peer.py)."""
    if name != "flink":
        return [sys.executable, "-m", f"bench.ingest.peers.{name}", topic]
    return [
        java.executable(),
        HEAP,
        *(f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in OPENED),
        f"-Dlog4j2.configurationFile={HERE / 'log4j2.properties'}",
        "-cp",
        _flink_class_path(),
        "FlinkPeer",
        topic,
        settings.kafka_bootstrap_servers,
        settings.schema_registry_url,
        settings.catalog_uri,
        settings.warehouse,
    ]


def _flink_class_path() -> str:
    return ":".join([str(TARGET / "classes"), *(f"{directory}/*" for directory in FLINK_JARS)])
