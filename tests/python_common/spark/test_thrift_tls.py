"""The Thrift server over TLS: our client checks its certificate, dbt connects, no client gets in without TLS."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from python_common.config.environment import env_file, read_env_file
from python_common.config.security import ThriftSecurity
from python_common.config.settings import Settings, from_environment
from python_common.errors import UserError
from python_common.spark import thrift
from python_dev.stack.temporary import own_environment
from tests.support.commands import run_dbt, run_lakehouse
from tests.support.services.secured import Authority

pytestmark = [pytest.mark.stack, pytest.mark.slow]

KEY_PASSWORD = "thrift-key-secret"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Settings, Authority]]:
    """A Thrift server with a certificate of a separate authority."""
    directory = tmp_path_factory.mktemp("thrift_tls")
    authority = Authority(directory / "ca")
    certificate, key = authority.issue("thrift", KEY_PASSWORD)
    with own_environment(directory / "home"):
        os.environ.update(
            LAKEHOUSE_THRIFT_TLS="true",
            LAKEHOUSE_THRIFT_SSL_CA_LOCATION=str(authority.ca),
            LAKEHOUSE_THRIFT_SSL_CERTIFICATE_LOCATION=str(certificate),
            LAKEHOUSE_THRIFT_SSL_KEY_LOCATION=str(key),
            LAKEHOUSE_THRIFT_SSL_KEY_PASSWORD=KEY_PASSWORD,
        )
        try:
            up = run_lakehouse("stack", "up", "--only", "thrift")
            assert up.returncode == 0, up.stderr
            os.environ.update(read_env_file(env_file()))
            yield from_environment(), authority
        finally:
            run_lakehouse("stack", "down")


def answer(settings: Settings) -> list[tuple[int]]:
    with thrift.connect(settings) as cursor:
        return thrift.rows(cursor, "select 1")


def test_who_trusts_the_authority_gets_in(served: tuple[Settings, Authority]) -> None:
    settings, _ = served
    assert answer(settings) == [(1,)]
    result = run_dbt("--quiet", "show", "--output", "json", "--inline", "select 41 + 1 as answer")
    assert '"answer": 42' in result.stdout, result.stdout


def test_others_do_not(served: tuple[Settings, Authority], tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    settings, _ = served
    stranger = Authority(tmp_path / "other")
    strange = settings.changed(thrift_security=ThriftSecurity(tls="true", ca=str(stranger.ca)))
    with pytest.raises(UserError, match=r"does not answer.*LAKEHOUSE_THRIFT_SSL_CA_LOCATION"):
        answer(strange)
    with pytest.raises(UserError, match="refused the password"):
        answer(settings.changed(thrift_password="wrong"))
    with pytest.raises(UserError, match="does not answer"):
        answer(settings.changed(thrift_security=ThriftSecurity()))
    assert "Traceback" not in capfd.readouterr().err
