"""Machines of a test: processes with separate host names, homes and clocks, on one lake.

The variable CLOCK_AHEAD sets a machine's clock ahead by so many seconds; `set_clock` does so while it works.
"""

import os
import select
import signal
import subprocess
import sys
from pathlib import Path

from python_common.config.environment import PROJECT_ROOT
from python_common.config.settings import Settings

LASTS_SECONDS = 3.0
BEGIN = f"""
import logging, os, socket, sys, time
from datetime import datetime, timedelta
import pyiceberg.table.update
from python_common.locks import lease, lock
from python_common.catalog.catalog import load_catalog
from python_common.config.environment import environment
from python_common.failure import to_user_error
from python_common.process import end_at_sigterm
from python_common.config.settings import from_environment

end_at_sigterm()
logging.basicConfig(stream=sys.stdout, format="%(message)s")
socket.gethostname = lambda: sys.argv[1]
lease.LASTS, lease.RENEWED_AFTER_SECONDS, lease.ASKED_AFTER_SECONDS = timedelta(seconds={LASTS_SECONDS}), 0.5, 0.1
real_time = time.time

def set_clock(seconds):
    global ahead
    ahead = timedelta(seconds=float(seconds))

set_clock(os.environ.get("CLOCK_AHEAD", "0"))
time.time = lambda: real_time() + ahead.total_seconds()

class Clock(datetime):
    @classmethod
    def now(cls, tz=None):
        return datetime.now(tz) + ahead

lease.datetime = pyiceberg.table.update.datetime = Clock
settings = from_environment()
catalog = load_catalog(settings)

def report(line):
    print(line, flush=True)

def wait_for_go():
    report("ready")
    sys.stdin.readline()

def work():
"""
END = """
try:
    work()
except Exception as error:
    report(to_user_error(error, settings))
"""

WORK_IN_STEPS = """
with lease.leased(catalog, "weekly", "weekly 2020-W53") as mine:
    for step in ("first", "second"):
        wait_for_go()
        mine.require()
        report(step)
"""
"""The body of a run with two steps, each of which waits for go."""


class Machine:
    """A process that runs a body with `catalog`, `settings`, `report`, and `wait_for_go`."""

    def __init__(self, settings: Settings, name: str, home: Path, body: str, **env: str) -> None:
        indented = "".join(f"    {line}\n" for line in body.strip().splitlines())
        lake = {
            "LAKEHOUSE_HOME": str(home / name),
            "LAKEHOUSE_CATALOG_URI": settings.catalog_uri,
            "LAKEHOUSE_CATALOG_PROPERTIES": str(settings.catalog_properties or ""),
            "LAKEHOUSE_WAREHOUSE": settings.warehouse,
            "LAKEHOUSE_EXPORT_ROOT": str(settings.export_root),
            "KAFKA_BOOTSTRAP_SERVERS": settings.kafka_bootstrap_servers,
            "SCHEMA_REGISTRY_URL": settings.schema_registry_url,
        }
        self.process = subprocess.Popen(
            [sys.executable, "-c", f"{BEGIN}{indented}{END}", name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=PROJECT_ROOT,
            env={**os.environ, **{name: value for name, value in lake.items() if value}, **env},
        )

    def ready(self) -> None:
        """Wait until it waits for go."""
        while (line := self.line()) != "ready":
            assert line.startswith("waiting for"), line

    def line(self) -> str:
        """Return the next line that it prints, an empty one if it has ended."""
        assert self.process.stdout
        return self.process.stdout.readline().rstrip("\n")

    def go(self) -> None:
        """Let it go on where it waits for go."""
        assert self.process.stdin
        self.process.stdin.write("go\n")
        self.process.stdin.flush()

    def stop(self) -> None:
        """Stop it where it is, as a suspended machine is."""
        self.process.send_signal(signal.SIGSTOP)

    def wake(self) -> None:
        """Let it go on as if no time had passed."""
        self.process.send_signal(signal.SIGCONT)

    def rest(self) -> list[str]:
        """Wait for its end, and return what it has reported since the last line."""
        return self.process.communicate(timeout=60)[0].splitlines()


def first_to_speak(*machines: Machine) -> Machine:
    """Wait until one of some machines prints something, and return it; its line is not read yet."""
    by_output = {machine.process.stdout: machine for machine in machines}
    [speaking, *_] = select.select([*by_output], [], [], 60)[0]
    return by_output[speaking]
