"""What keeps the Thrift server from starting."""

import socket
from pathlib import Path

import pytest

from python_common.config.settings import Settings
from python_common.errors import UserError
from python_common.process import free_ports
from python_common.spark import thrift_server

pytestmark = pytest.mark.integration

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


def test_a_server_that_does_not_listen_is_asked_in_silence(
    offline_settings: Settings, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    settings = offline_settings.changed(thrift_port=free_ports(1)[0], thrift_password="thrift-secret")
    assert not thrift_server.service(tmp_path, settings).answers()
    assert capfd.readouterr().err == ""
