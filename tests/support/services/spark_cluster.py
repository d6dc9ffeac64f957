"""A Spark standalone cluster on this machine: a master and workers of the installed PySpark, who authenticate."""

import os
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx2

from python_common.process import Service, free_ports
from python_common.spark.spark_conf import SPARK_HOME

CORES = 3
"""Of a worker: one for the Thrift server, two for ingesters; all still run when the other worker is lost."""
CORES_OF_A_PROGRAM = 2
"""Spread over all workers."""
MEMORY_OF_A_PROGRAM_MIB = 2_048
PACKAGE = "org.apache.spark.deploy"


@dataclass
class SparkCluster:
    """A master and its workers, each a process that can be killed and started again."""

    directory: Path
    environment: Mapping[str, str]
    """What workers have besides the tests' variables: standalone executors inherit it."""
    size: int = CORES_OF_A_PROGRAM
    """How many workers there are."""
    secret: str = field(default_factory=lambda: secrets.token_urlsafe(16))

    def __post_init__(self) -> None:
        self.port, self._page, *ports = free_ports(2 + 2 * self.size)
        self.master = self._service("master", self.port, self._page, "Master")
        self.workers = [
            self._service(
                f"worker{number}",
                ports[2 * number],
                ports[2 * number + 1],
                "Worker",
                *("--cores", str(CORES), "--memory", "4g", "--work-dir", str(self.directory / "work"), self.address),
            )
            for number in range(self.size)
        ]

    @property
    def address(self) -> str:
        return f"spark://127.0.0.1:{self.port}"

    def user_file(self, *more: str) -> Path:
        """Return the file that LAKEHOUSE_SPARK_CONF names, with `more` lines."""
        return self._write(
            "lake.conf",
            f"spark.master {self.address}",
            "spark.driver.host 127.0.0.1",
            "spark.driver.bindAddress 127.0.0.1",
            f"spark.cores.max {CORES_OF_A_PROGRAM}",
            f"spark.executor.cores {CORES_OF_A_PROGRAM // self.size}",
            f"spark.executor.memory {MEMORY_OF_A_PROGRAM_MIB // self.size}m",
            f"spark.default.parallelism {CORES_OF_A_PROGRAM}",
            *more,
        )

    def _write(self, name: str, *lines: str) -> Path:
        """Write properties and the secret."""
        path = self.directory / name
        secret = f"spark.authenticate.secret {self.secret}"
        path.write_text("".join(f"{line}\n" for line in ("spark.authenticate true", secret, *lines)))
        path.chmod(0o600)
        return path

    def _service(self, name: str, port: int, page: int, program: str, *options: str) -> Service:
        return Service(
            name=name,
            directory=self.directory,
            command=lambda: [
                *(str(SPARK_HOME / "bin" / "spark-class"), f"{PACKAGE}.{program.lower()}.{program}"),
                *("--host", "127.0.0.1", "--port", str(port), "--webui-port", str(page)),
                *("--properties-file", str(self._properties()), *options),
            ],
            ports={name: port},
            answers=lambda: self._answers(name),
            env=lambda: {
                **os.environ,
                **self.environment,
                "SPARK_HOME": str(SPARK_HOME),
                "SPARK_DAEMON_MEMORY": "256m",
                "SPARK_LOCAL_IP": "127.0.0.1",
            },
        )

    def _properties(self) -> Path:
        """Return the configuration file of master and workers: who may come, and where a master finds what it knew."""
        recovery = f"spark.deploy.recoveryDirectory {self.directory / 'recovery'}"
        return self._write(
            "daemons.conf", "spark.master.rest.enabled false", "spark.deploy.recoveryMode FILESYSTEM", recovery
        )

    def _answers(self, name: str) -> bool:
        """Return whether the master answers and counts on a worker."""
        try:
            alive = int(httpx2.get(f"http://127.0.0.1:{self._page}/json/").json()["aliveworkers"])
        except (httpx2.HTTPError, ValueError):
            return False
        return name == "master" or alive > int(name.removeprefix("worker"))


@contextmanager
def running_cluster(
    directory: Path, environment: Mapping[str, str], size: int = CORES_OF_A_PROGRAM
) -> Iterator[SparkCluster]:
    """Run a cluster of so many workers with its files in a directory."""
    cluster = SparkCluster(directory, environment, size)
    services = [cluster.master, *cluster.workers]
    try:
        for service in services:
            service.start()
        yield cluster
    finally:
        for service in reversed(services):
            service.stop()
