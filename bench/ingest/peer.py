"""One peer as a process tree: told on stdin to land the topic, measured from outside."""

import subprocess
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil

SAMPLE_SECONDS = 0.2
LOG_LINES = 15


@dataclass(frozen=True)
class Job:
    """One landing of the topic.

    It has what the peer says it landed, wall and CPU seconds and the peak resident bytes of the process tree, and the
    CPU seconds of each batch, if the peer tells of them.
    """

    rows: int
    seconds: float
    cpu_seconds: float
    peak_bytes: int
    batch_cpu_seconds: tuple[float, ...]


class Peer:
    """A running peer. Its first job is cold: it counts from the start of the process."""

    def __init__(self, name: str, command: Sequence[str], log: Path) -> None:
        self.name = name
        self._log = log
        self._started = time.monotonic()
        self._cpu = 0.0
        self._peak = 0
        self._stopped = threading.Event()
        with log.open("ab") as file:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=file, text=True
            )
        self._tree = psutil.Process(self._process.pid)
        self._sampler = threading.Thread(target=self._sample, daemon=True)
        self._sampler.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._stopped.set()
        self._process.stdin.close()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            for process in self._members():
                process.kill()

    def land(self, table: str, batch_records: int) -> Job:
        """Land the topic in a new table, in batches of at most so many records.

        Raises:
            SystemExit: the peer died.
        """
        started = self._started or time.monotonic()
        self._started = 0.0
        self._process.stdin.write(f"{table} {batch_records}\n")
        self._process.stdin.flush()
        cpu = [self._cpu]
        answer = self._process.stdout.readline()
        while answer == "batch\n":
            cpu.append(self._cpu_seconds())
            answer = self._process.stdout.readline()
        seconds = time.monotonic() - started
        if not answer:
            raise SystemExit(f"error: {self.name} died; its log ends with\n{self._end_of_log()}")
        self._cpu = self._cpu_seconds()
        peak, self._peak = self._peak, 0
        batches = tuple(after - before for before, after in pairwise(cpu))
        return Job(int(answer), seconds, self._cpu - cpu[0], peak, batches)

    def _end_of_log(self) -> str:
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-LOG_LINES:])

    def _members(self) -> list[psutil.Process]:
        try:
            return [self._tree, *self._tree.children(recursive=True)]
        except psutil.NoSuchProcess:
            return []

    def _cpu_seconds(self) -> float:
        # What ended children used stands in the times of whoever waited for them.
        return sum(sum(process.cpu_times()[:4]) for process in self._members())

    def _sample(self) -> None:
        while not self._stopped.wait(SAMPLE_SECONDS):
            resident = 0
            for process in self._members():
                try:
                    resident += process.memory_info().rss
                except psutil.NoSuchProcess:
                    continue
            self._peak = max(self._peak, resident)
