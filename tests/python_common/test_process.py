"""Ports for services that start later, and the end of a process by a signal."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from python_common.process import free_ports


def test_free_ports_are_none_of_outgoing_connections() -> None:
    ports = free_ports(100)
    assert len({*ports}) == 100
    first, last = map(int, Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())
    assert not {*ports} & {*range(first, last + 1)}


STUCK = """
import ctypes, os, signal, sys, time
from python_common import process
process.UNHANDLED_SECONDS = 0.2
process.end_at_sigterm()
"""
HANGS = {
    "in Python": "print('waits', flush=True); time.sleep(600)",
    # A thread that locks a mutex twice waits in C for good, and no signal wakes it up.
    "outside Python": """
lock, mutex = ctypes.CDLL(None).pthread_mutex_lock, ctypes.create_string_buffer(64)
lock(mutex)
print('waits', flush=True)
lock(mutex)
""",
}


@pytest.mark.parametrize("hang", HANGS)
def test_a_sigterm_ends_a_process_that_hangs(hang: str) -> None:
    command = [sys.executable, "-c", STUCK + HANGS[hang]]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as stuck:
        assert stuck.stdout.readline() == b"waits\n"
        assert stuck.poll() is None
        stuck.send_signal(signal.SIGTERM)
        assert stuck.wait(60) in (130, -signal.SIGINT)


def test_a_handler_of_a_command_is_left_the_time_it_needs() -> None:
    own_handler = """
signal.signal(signal.SIGTERM, lambda *_: (time.sleep(2), sys.exit(7)))
print('waits', flush=True)
time.sleep(600)
"""
    with subprocess.Popen([sys.executable, "-c", STUCK + own_handler], stdout=subprocess.PIPE) as command:
        assert command.stdout.readline() == b"waits\n"
        command.send_signal(signal.SIGTERM)
        assert command.wait(60) == 7
