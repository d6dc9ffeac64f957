"""Ports for services that start later."""

from pathlib import Path

from python_common.process import free_ports


def test_a_free_port_is_outside_of_the_range_of_outgoing_connections() -> None:
    ports = free_ports(100)
    assert len({*ports}) == 100
    first, last = map(int, Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())
    assert not {*ports} & {*range(first, last + 1)}
