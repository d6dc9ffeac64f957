"""One peer as a process tree: which lands the topic at a line on stdin, measured from outside."""

import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from types import TracebackType
from typing import IO, Self, cast

import psutil

from bench.watch import Watch, tree

LOG_LINES = 15


@dataclass(frozen=True)
class Job:
    """One landing of the topic.

    It has what the peer reports as landed, wall and CPU seconds, peak resident bytes of the process tree, and the
    CPU seconds of each batch, if the peer reports them.
    """

    rows: int
    seconds: float
    cpu_seconds: float
    peak_bytes: int
    batch_cpu_seconds: tuple[float, ...]


class Peer:
    """A running peer. Its first job is cold: it counts from the start of the process."""

    def __init__(self, name: str, command: Sequence[str], log: Path, *also: int) -> None:
        """Start it; what processes of other pids start and use is counted as of this one."""
        self.name = name
        self._log = log
        self._started = time.monotonic()
        with log.open("ab") as file:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=file, text=True
            )
        # As both are pipes.
        self._stdin, self._stdout = cast(IO[str], self._process.stdin), cast(IO[str], self._process.stdout)
        self._watch = Watch(self._process.pid, *also)
        self._cpu = self._watch.cpu_seconds()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._watch.end()
        self._stdin.close()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            # What it shares with others runs on.
            for process in tree(psutil.Process(self._process.pid)):
                process.kill()

    def land(self, table: str, batch_records: int) -> Job:
        """Land the topic in a new table, in batches of at most so many records.

        Raises:
            SystemExit: the peer died.
        """
        started = self._started or time.monotonic()
        self._started = 0.0
        self._stdin.write(f"{table} {batch_records}\n")
        self._stdin.flush()
        cpu = [self._cpu]
        answer = self._stdout.readline()
        while answer == "batch\n":
            cpu.append(self._watch.cpu_seconds())
            answer = self._stdout.readline()
        seconds = time.monotonic() - started
        if not answer:
            raise SystemExit(f"error: {self.name} died; its log ends with\n{self._end_of_log()}")
        self._cpu = self._watch.cpu_seconds()
        batches = tuple(after - before for before, after in pairwise(cpu))
        return Job(int(answer), seconds, self._cpu - cpu[0], self._watch.peak_bytes(), batches)

    def _end_of_log(self) -> str:
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-LOG_LINES:])
