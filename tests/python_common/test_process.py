"""Ports for services that start later."""

from pathlib import Path

from python_common.process import free_ports


def test_a_free_port_is_none_that_an_outgoing_connection_may_get_meanwhile() -> None:
    ports = free_ports(100)
    assert len({*ports}) == 100
    first, last = map(int, Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())
    assert not {*ports} & {*range(first, last + 1)}
