"""`lakehouse thrift`: a server that its parent process watches and ends."""

import os
import socket
import subprocess
import time
from pathlib import Path

import psutil
import pytest

from python_common.config.security import ThriftSecurity
from python_common.config.settings import Settings, from_environment
from python_common.errors import UserError
from python_common.process import free_ports
from python_common.spark import thrift, thrift_server
from python_dev.stack import stack
from python_dev.stack.temporary import own_environment
from tests.support.commands import LAKEHOUSE
from tests.support.services.secured import Authority

pytestmark = pytest.mark.stack

ALL = "0.0.0.0"


def test_a_server_without_a_password_does_not_start(offline_settings: Settings) -> None:
    with pytest.raises(UserError, match="has no password"):
        thrift_server.exec_server(offline_settings)


def test_a_server_that_runs_keeps_its_files(offline_settings: Settings, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        settings = offline_settings.changed(home=tmp_path, thrift_port=port, thrift_password="thrift-secret")
        file = settings.home / "thrift" / "tmp" / "shuffle"
        file.parent.mkdir(parents=True)
        file.touch()
        with pytest.raises(UserError, match=f"Port {port} for thrift is in use"):
            thrift_server.exec_server(settings)
    assert file.exists()


def test_only_with_tls_a_server_listens_for_other_machines(offline_settings: Settings) -> None:
    for bind in (ALL, "10.0.0.5", "thrift"):
        with pytest.raises(UserError, match=f"would listen on {bind} without TLS, and its password"):
            thrift_server.exec_server(
                offline_settings.changed(
                    thrift_host=bind, thrift_port=free_ports(1)[0], thrift_password="thrift-secret"
                )
            )


@pytest.mark.slow
def test_a_server_listens_at_the_configured_address_and_a_signal_ends_it(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "ca")
    certificate, key = authority.issue("thrift")
    with own_environment(tmp_path / "home"):
        os.environ.update(
            stack.variables(()),
            LAKEHOUSE_THRIFT_HOST=ALL,
            LAKEHOUSE_THRIFT_PORT=str(free_ports(1)[0]),
            LAKEHOUSE_THRIFT_TLS="true",
            LAKEHOUSE_THRIFT_SSL_CA_LOCATION=str(authority.ca),
            LAKEHOUSE_THRIFT_SSL_CERTIFICATE_LOCATION=str(certificate),
            LAKEHOUSE_THRIFT_SSL_KEY_LOCATION=str(key),
        )
        settings = from_environment()
        assert settings.thrift_security == ThriftSecurity(
            tls="true", ca=str(authority.ca), certificate=str(certificate), key=str(key)
        )
        server = subprocess.Popen([LAKEHOUSE, "thrift"], stderr=subprocess.PIPE, text=True)
        try:
            assert answer(settings.changed(thrift_host="127.0.0.1"), server) == [(1,)]
            listening = [
                connection.laddr
                for connection in psutil.Process(server.pid).net_connections()
                if connection.status == psutil.CONN_LISTEN and connection.laddr.port == settings.thrift_port
            ]
            assert [address.ip for address in listening] in ([ALL], ["::"])
            server.terminate()
            assert server.wait(60) == 143
        finally:
            server.kill()
            server.communicate()


def answer(settings: Settings, server: subprocess.Popen[str]) -> list[tuple[int]]:
    """Return what the server prints once it does."""
    deadline = time.monotonic() + 120
    while True:
        try:
            with thrift.connect(settings) as cursor:
                return thrift.rows(cursor, "select 1")
        except UserError:
            assert server.poll() is None, server.communicate()[1]
            assert time.monotonic() < deadline
            time.sleep(1)
