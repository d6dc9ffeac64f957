"""CPU seconds and memory of processes and all that they start, seen from outside."""

import threading

import psutil

SAMPLE_SECONDS = 0.2


class Watch:
    """Watches process trees from now on, until the end."""

    def __init__(self, *pids: int) -> None:
        self._roots = [psutil.Process(pid) for pid in pids]
        self._peak = 0
        self._ended = threading.Event()
        threading.Thread(target=self._sample, daemon=True).start()

    def cpu_seconds(self) -> float:
        """Return what all have used since they started."""
        return sum(map(_cpu_seconds, self._members()))

    def peak_bytes(self) -> int:
        """Return the most resident memory that all had together since this was asked last."""
        peak, self._peak = self._peak, 0
        return peak

    def end(self) -> None:
        """Watch no longer."""
        self._ended.set()

    def _sample(self) -> None:
        while not self._ended.wait(SAMPLE_SECONDS):
            self._peak = max(self._peak, sum(map(_resident, self._members())))

    def _members(self) -> list[psutil.Process]:
        return [process for root in self._roots for process in tree(root)]


def tree(root: psutil.Process) -> list[psutil.Process]:
    """Return a process and all that it started and that run now; nothing if it has ended."""
    try:
        return [root, *root.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def cpu_seconds_of(process: psutil.Process) -> float:
    """Return what a process has used, with its ended children that it waited for."""
    return float(sum(process.cpu_times()[:4]))


def _cpu_seconds(process: psutil.Process) -> float:
    try:
        return cpu_seconds_of(process)
    except psutil.NoSuchProcess:
        return 0


def _resident(process: psutil.Process) -> int:
    try:
        # A JVM that starts a program shares its memory with it until that runs, and so its command line.
        parent = process.parent()
        is_same = parent is not None and parent.cmdline() == process.cmdline()
        return 0 if is_same else process.memory_info().rss
    except psutil.NoSuchProcess:
        return 0
