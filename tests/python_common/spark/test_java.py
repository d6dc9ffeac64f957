"""Java: missing, too old and too new are distinguished, each with a remedy."""

from pathlib import Path

import pytest

from python_common.errors import UserError
from python_common.spark import java


def fake_java(directory: Path, banner: str) -> None:
    program = directory / "bin" / "java"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\necho '{banner}' >&2\n")
    program.chmod(0o755)


def test_a_missing_java_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(UserError, match=r"Java is missing in JAVA_HOME .*apt-get install"):
        java.executable()
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", "")
    with pytest.raises(UserError, match="Java is missing on the PATH"):
        java.executable()


@pytest.mark.parametrize(
    "banner", ['java version "1.8.0_202"', 'openjdk version "11.0.2"', 'openjdk version "25"', "?"]
)
def test_a_java_that_does_not_run_spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, banner: str) -> None:
    fake_java(tmp_path, banner)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(UserError, match="does not run Spark"):
        java.executable()


def test_java_17_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_java(tmp_path, 'openjdk version "17.0.15" 2025-04-15')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert java.executable() == str(tmp_path / "bin" / "java")
