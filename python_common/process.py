"""One background process: start it, wait until it answers, find it again by pid file, stop it."""

import os
import select
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from random import SystemRandom

import psutil

from python_common import private_files
from python_common.errors import UserError

START_SECONDS = 120
STOP_SECONDS = 20
UNHANDLED_SECONDS = 10
INTERRUPTED = 130
# Below those that systems give to outgoing connections, one of which could take a port before its service starts.
SERVER_PORTS = range(16_384, 32_768)


@dataclass(frozen=True)
class Service:
    """A process of the local stack.

    `ports` must be free before the start; `answers` is the health check, polled until it returns True.
    """

    name: str
    directory: Path
    command: Callable[[], list[str]]
    ports: dict[str, int]
    answers: Callable[[], bool]
    env: Callable[[], dict[str, str]] = dict

    @property
    def log(self) -> Path:
        """What it writes to its output goes here."""
        return self.directory / f"{self.name}.log"

    @property
    def pid_file(self) -> Path:
        """Its pid while it runs, and when it started."""
        return self.directory / f"{self.name}.pid"

    def process(self) -> psutil.Process | None:
        """Return the running process. The pid file also holds its start time, because the system reuses pids."""
        try:
            pid, created = self.pid_file.read_text().split()
            process = psutil.Process(int(pid))
            same = abs(process.create_time() - float(created)) < 1
            return process if same and process.status() != psutil.STATUS_ZOMBIE else None
        except (FileNotFoundError, ValueError, psutil.NoSuchProcess):
            return None

    def start(self) -> bool:
        """Start the process and wait until it answers; returns and raises as `launch` and `wait` do."""
        launched = self.launch()
        self.wait()
        return launched

    def launch(self) -> bool:
        """Start the process; return False when it already runs, raise a UserError when a port is in use."""
        if self.process():
            return False
        self.require_ports()
        private_files.directory(self.directory)
        if self.log.exists():
            self.log.replace(self.log.with_suffix(".log.1"))
        with self.log.open("ab") as log:
            child = subprocess.Popen(
                self.command(),
                cwd=self.directory,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, **self.env()},
                start_new_session=True,
                umask=private_files.UMASK,
            )
        self.pid_file.write_text(f"{child.pid} {psutil.Process(child.pid).create_time()}")
        return True

    def wait(self) -> None:
        """Wait until it answers; a UserError with the end of its log when it died or did not answer in time."""
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            if not self.process():
                raise self._failure("died at start")
            if self.answers():
                return
            time.sleep(0.2)
        raise self._failure(f"did not answer within {START_SECONDS} s")

    def require_ports(self) -> None:
        """Raise a UserError if a port is in use."""
        for variable, port in self.ports.items():
            if not is_free(port):
                raise UserError(
                    f"Port {port} for {self.name} is in use by another program",
                    f"Name a free port in {variable}",
                )

    def stop(self) -> bool:
        """Stop the process, with SIGKILL when it does not go; return False when none ran."""
        process = self.process()
        if process:
            process.terminate()
            try:
                process.wait(STOP_SECONDS)
            except psutil.TimeoutExpired:
                process.send_signal(signal.SIGKILL)
                process.wait(STOP_SECONDS)
        self.pid_file.unlink(missing_ok=True)
        return process is not None

    def last_lines(self, count: int) -> list[str]:
        """Return the end of the log."""
        return self.log.read_text(errors="replace").splitlines()[-count:] if self.log.exists() else []

    def _failure(self, what: str) -> UserError:
        tail = "\n".join(f"  {line}" for line in self.last_lines(15))
        return UserError(f"{self.name} {what}; its log ends with\n{tail}\n", f"The whole log is {self.log}")


def end_at_sigterm() -> None:
    """Make SIGTERM end this process as Ctrl-C does: it gives leases back and stops its children.

    Python cannot handle a signal while a library waits outside it, as a client of Kafka does when it is deleted, by the
    wall clock. So a thread ends the process if Python has not handled the signal after UNHANDLED_SECONDS.
    """
    handled = threading.Event()
    reader, writer = os.pipe()

    def interrupt(*_: object) -> None:
        handled.set()
        raise KeyboardInterrupt

    def watch() -> None:
        while os.read(reader, 1) != bytes([signal.SIGTERM]) or signal.getsignal(signal.SIGTERM) is not interrupt:
            pass
        # Unlike a lock, it waits without a clock, which may be what keeps the library waiting.
        select.select((), (), (), UNHANDLED_SECONDS)
        if not handled.is_set():
            os._exit(INTERRUPTED)

    signal.signal(signal.SIGTERM, interrupt)
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer)
    threading.Thread(target=watch, daemon=True).start()


def free_ports(count: int) -> list[int]:
    """Return ports that were free a moment ago, all different, in random order."""
    return list(islice(filter(is_free, SystemRandom().sample(SERVER_PORTS, len(SERVER_PORTS))), count))


def is_free(port: int) -> bool:
    """Return whether no program listens on a port of 127.0.0.1."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
