"""Settings: what is missing is named, and the env file is read as a shell reads it."""

import os
import subprocess
from pathlib import Path

import pytest

from lakehouse.errors import UserError
from lakehouse.settings import environment, from_environment, read_env_file
from local_stack.stack import write_env_file

COMPLETE = {
    "KAFKA_BOOTSTRAP_SERVERS": "127.0.0.1:9092",
    "SCHEMA_REGISTRY_URL": "http://127.0.0.1:8081",
    "LAKEHOUSE_WAREHOUSE": "/warehouse",
    "LAKEHOUSE_CATALOG_URI": "jdbc:sqlite:/catalog.db?journal_mode=WAL&busy_timeout=30000",
    "LAKEHOUSE_EXPORT_ROOT": "/exports",
    "LAKEHOUSE_PII_KEY_FILE": "/pii.key",
}


@pytest.mark.parametrize("name", COMPLETE)
def test_a_missing_variable_is_named(name: str) -> None:
    with pytest.raises(UserError, match=name):
        from_environment({key: value for key, value in COMPLETE.items() if key != name})


@pytest.mark.parametrize(
    ("name", "value"), [("LAKEHOUSE_CATALOG_URI", "/catalog.db"), ("LAKEHOUSE_THRIFT_PORT", "ten thousand")]
)
def test_a_malformed_variable_is_named(name: str, value: str) -> None:
    with pytest.raises(UserError, match=name):
        from_environment({**COMPLETE, name: value})


def test_the_env_file_means_the_same_to_python_and_a_shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAKEHOUSE_HOME", str(tmp_path))
    values = {**COMPLETE, "ODD": "a b'c\"d$e&f"}
    path = write_env_file(values)
    assert path.stat().st_mode & 0o777 == 0o600
    assert read_env_file(path) == values
    script = f". {path}; printenv ODD LAKEHOUSE_CATALOG_URI"
    shell = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True)
    assert shell.stdout.splitlines() == [values["ODD"], values["LAKEHOUSE_CATALOG_URI"]]


def test_a_mail_server_that_is_set_gets_nothing_of_the_local_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAKEHOUSE_HOME", str(tmp_path))
    for name in [name for name in os.environ if name.startswith("LAKEHOUSE_SMTP_")]:
        monkeypatch.delenv(name)
    write_env_file({**COMPLETE, "LAKEHOUSE_SMTP_HOST": "127.0.0.1", "LAKEHOUSE_SMTP_TLS": "none"})
    assert environment()["LAKEHOUSE_SMTP_TLS"] == "none"
    monkeypatch.setenv("LAKEHOUSE_SMTP_HOST", "mail.example.com")
    assert "LAKEHOUSE_SMTP_TLS" not in environment()
    assert environment()["LAKEHOUSE_WAREHOUSE"]
