"""Settings: what is missing is named, and the env file is read as a shell reads it."""

import os
import subprocess
from pathlib import Path

import pytest
from pydantic import ValidationError

from python_common.config.environment import environment, read_env_file
from python_common.config.settings import Settings, from_environment
from python_common.config.variables import fields
from python_common.errors import UserError
from python_dev.stack.stack import write_env
from python_export.publishing.target import open_target
from tests.support.variables import COMPLETE, OF_ALL


@pytest.mark.parametrize("name", OF_ALL)
def test_a_missing_variable_is_named(name: str) -> None:
    with pytest.raises(UserError, match=name):
        from_environment({key: value for key, value in COMPLETE.items() if key != name})


def test_what_only_some_parts_need_is_asked_for_where_it_is_used() -> None:
    ingests = from_environment(OF_ALL)
    with pytest.raises(UserError, match=r"^LAKEHOUSE_EXPORT_ROOT is not set\. Run `lakehouse stack up`, or set it"):
        open_target(ingests)
    with pytest.raises(UserError, match="LAKEHOUSE_PII_KEY_FILE is not set"):
        ingests.needed("pii_key_file")


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("LAKEHOUSE_CATALOG_URI", "/catalog.db", "names no kind of catalog that is known. Write it as jdbc:sqlite:"),
        ("LAKEHOUSE_CATALOG_URI", "jdbc:postgresql://h/d?user=u&password=p", "holds a password"),
        ("LAKEHOUSE_CATALOG_URI", "jdbc:postgresql://h/d?user=u&sslpassword=p", "holds a password"),
        ("LAKEHOUSE_CATALOG_URI", "jdbc:postgresql://h:5432,i:5432/d?user=u", "is not the address of one server"),
        ("LAKEHOUSE_CATALOG_URI", "https://user:secret@h/api", "holds a password"),
        ("LAKEHOUSE_THRIFT_PORT", "65536", "is '65536'. Set it to a port from 1 to 65535"),
        ("LAKEHOUSE_EXPORT_DELAY", "soon", "is 'soon', which is not a duration. Write it like 500ms"),
        ("LAKEHOUSE_REGISTRY_TIMEOUT", "0s", "is '0s'. Set it to a duration above 0"),
        ("LAKEHOUSE_EXPORT_DELAY", "5301w", "is '5301w', which is not a duration"),
        ("LAKEHOUSE_EXPORT_ROOT", "s3://KEY:SECRET@bucket/prefix", "holds credentials"),
        ("LAKEHOUSE_EXPORT_URL", "ftp://files", "is not a URL"),
    ],
)
def test_a_malformed_variable_is_named(name: str, value: str, words: str) -> None:
    with pytest.raises(UserError) as caught:
        from_environment({**COMPLETE, name: value})
    assert str(caught.value).startswith(f"{name} {words}")
    assert "SECRET" not in str(caught.value)


def test_a_variable_that_is_empty_counts_as_not_set() -> None:
    empty = dict.fromkeys(fields(Settings), "")
    assert from_environment({**empty, **COMPLETE}) == from_environment(COMPLETE)


def test_changed_values_are_checked() -> None:
    settings = from_environment(COMPLETE)
    assert settings.changed(thrift_port=1).thrift_port == 1
    assert settings.thrift_port == 10_000
    with pytest.raises(ValidationError, match="catalog_uri"):
        settings.changed(catalog_uri="/catalog.db")
    with pytest.raises(ValidationError, match="export_rot"):
        settings.changed(export_rot="/exports")


def test_the_env_file_means_the_same_to_python_and_a_shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAKEHOUSE_HOME", str(tmp_path))
    values = {**COMPLETE, "ODD": "a b'c\"d$e&f"}
    path = write_env(values)
    assert path.stat().st_mode & 0o777 == 0o600
    assert read_env_file(path) == values
    script = f". {path}; printenv ODD LAKEHOUSE_CATALOG_URI"
    shell = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True)
    assert shell.stdout.splitlines() == [values["ODD"], values["LAKEHOUSE_CATALOG_URI"]]


def test_an_env_file_that_cannot_be_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAKEHOUSE_HOME", str(tmp_path))
    for text in ("export KEY\n", "export KEY='no end\n"):
        (tmp_path / "env").write_text(text)
        with pytest.raises(UserError, match=r"env cannot be read \(not lines of KEY=value\)\. Correct the file"):
            environment()
    (tmp_path / "env").unlink()
    (tmp_path / "env").mkdir()
    with pytest.raises(UserError, match=r"env cannot be read \(Is a directory\)"):
        environment()


def test_a_mail_server_gets_no_settings_of_the_local_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAKEHOUSE_HOME", str(tmp_path))
    for name in [name for name in os.environ if name.startswith("LAKEHOUSE_SMTP_")]:
        monkeypatch.delenv(name)
    write_env({**COMPLETE, "LAKEHOUSE_SMTP_HOST": "127.0.0.1", "LAKEHOUSE_SMTP_TLS": "none"})
    assert environment()["LAKEHOUSE_SMTP_TLS"] == "none"
    monkeypatch.setenv("LAKEHOUSE_SMTP_HOST", "mail.example.com")
    assert "LAKEHOUSE_SMTP_TLS" not in environment()
    assert environment()["LAKEHOUSE_WAREHOUSE"]
