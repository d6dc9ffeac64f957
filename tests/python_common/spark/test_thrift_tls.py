"""The Thrift server over TLS: our client checks its certificate, dbt connects, no client gets in without TLS."""

import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from python_common.config.security import ThriftSecurity
from python_common.config.settings import Settings, from_environment
from python_common.errors import UserError
from python_common.process import free_ports
from python_common.spark import thrift
from python_dev.stack import stack
from python_dev.stack.temporary import own_environment
from tests.support.commands import LAKEHOUSE, run_dbt
from tests.support.services.secured import Authority

pytestmark = pytest.mark.slow

ALL = "0.0.0.0"
KEY_PASSWORD = "thrift-key-secret"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[subprocess.Popen[str]]:
    """A server for other machines, with a certificate of a separate authority; the environment is that of a client."""
    directory = tmp_path_factory.mktemp("thrift_tls")
    authority = Authority(directory / "ca")
    certificate, key = authority.issue("thrift", KEY_PASSWORD)
    with own_environment(directory / "home"):
        os.environ.update(
            stack.variables(()),
            LAKEHOUSE_THRIFT_HOST=ALL,
            LAKEHOUSE_THRIFT_PORT=str(free_ports(1)[0]),
            LAKEHOUSE_THRIFT_TLS="true",
            LAKEHOUSE_THRIFT_SSL_CA_LOCATION=str(authority.ca),
            LAKEHOUSE_THRIFT_SSL_CERTIFICATE_LOCATION=str(certificate),
            LAKEHOUSE_THRIFT_SSL_KEY_LOCATION=str(key),
            LAKEHOUSE_THRIFT_SSL_KEY_PASSWORD=KEY_PASSWORD,
        )
        stack.prepare(stack.variables(()))
        server = subprocess.Popen([LAKEHOUSE, "thrift"], stderr=subprocess.PIPE, text=True)
        os.environ["LAKEHOUSE_THRIFT_HOST"] = "127.0.0.1"
        try:
            yield server
        finally:
            server.kill()
            server.communicate()


def answer(settings: Settings) -> list[tuple[int]]:
    with thrift.connect(settings) as cursor:
        return thrift.rows(cursor, "select 1")


def first_answer(server: subprocess.Popen[str]) -> list[tuple[int]]:
    """Return the server's answer once it does."""
    deadline = time.monotonic() + 120
    while True:
        try:
            return answer(from_environment())
        except UserError:
            assert server.poll() is None, server.communicate()[1]
            assert time.monotonic() < deadline
            time.sleep(1)


def test_who_lacks_trust_or_password_does_not_get_in(
    server: subprocess.Popen[str], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert first_answer(server) == [(1,)]
    result = run_dbt("--quiet", "show", "--output", "json", "--inline", "select 41 + 1 as answer")
    assert '"answer": 42' in result.stdout, result.stdout
    capfd.readouterr()
    settings, stranger = from_environment(), Authority(tmp_path / "other")
    with pytest.raises(UserError, match=r"does not answer.*LAKEHOUSE_THRIFT_SSL_CA_LOCATION"):
        answer(settings.changed(thrift_security=ThriftSecurity(tls="true", ca=str(stranger.ca))))
    with pytest.raises(UserError, match="refused the password"):
        answer(settings.changed(thrift_password="wrong"))
    with pytest.raises(UserError, match="does not answer"):
        answer(settings.changed(thrift_security=ThriftSecurity()))
    assert "Traceback" not in capfd.readouterr().err


def test_a_server_listens_as_configured_and_a_signal_ends_it(server: subprocess.Popen[str]) -> None:
    assert first_answer(server) == [(1,)]
    port = from_environment().thrift_port
    listening = [
        connection.laddr.ip
        for connection in psutil.Process(server.pid).net_connections()
        if connection.status == psutil.CONN_LISTEN and connection.laddr.port == port
    ]
    assert listening in ([ALL], ["::"])
    server.terminate()
    assert server.wait(60) == 143
