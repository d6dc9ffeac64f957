"""Nothing is left of a local stack that ends."""

import os
import sys
from pathlib import Path

import psutil
import pytest

from python_common.process import free_ports
from tests.support.commands import run_lakehouse

pytestmark = pytest.mark.slow


def test_down_stops_what_up_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("LAKEHOUSE_") or name.startswith("KAFKA_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("LAKEHOUSE_HOME", str(tmp_path))
    [free] = free_ports(1)
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", f"127.0.0.1:{free}")
    started = run_lakehouse("stack", "up", "--only", "kafka")
    assert started.returncode == 0, started.stderr
    pid = int((tmp_path / "kafka" / "kafka.pid").read_text().split()[0])
    assert psutil.pid_exists(pid)
    assert "kafka: stopped" in run_lakehouse("stack", "down").stdout
    assert not psutil.pid_exists(pid)
    assert "kafka: was not running" in run_lakehouse("stack", "down").stdout
    assert run_lakehouse("stack", "status").returncode == 1


def test_a_command_on_a_temporary_stack_finds_sample_data(tmp_path: Path) -> None:
    program = (
        "from python_common.catalog.catalog import load_catalog; from python_common.config.settings import *;"
        "s = from_environment(); print(load_catalog(s).load_table('bronze.payments').scan().count(), s.home); exit(7)"
    )
    options = ("--orders", "20", "--weeks", "1")
    ran = run_lakehouse("stack", "temporary", *options, "--", sys.executable, "-c", program)
    assert ran.returncode == 7, ran.stderr
    rows, directory = ran.stdout.splitlines()[-1].split()
    assert int(rows) > 0
    assert not Path(directory).exists()
    assert not [process for process in psutil.process_iter(["cmdline"]) if directory in str(process.info["cmdline"])]
