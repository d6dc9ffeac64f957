"""The command `lakehouse` itself: it knows its sub-commands without their modules."""

import socket
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner

from python_common.config.environment import PROJECT_ROOT
from python_jobs import cli
from tests.conftest import LAKEHOUSE
from tests.support.in_process import lakehouse

pytestmark = pytest.mark.stack

# What the sub-commands import, and what takes long to.
HEAVY = {"boto3", "confluent_kafka", "duckdb", "httpx2", "pyarrow", "pyiceberg", "pyspark", "sqlglot"}
PACKAGES = {"local_stack", "python_dbt", "python_export", "python_ingest"}


def test_the_list_of_commands_imports_none_of_them() -> None:
    script = "import sys\nfrom python_jobs import cli\nsys.argv[1:] = ['--help']\ntry:\n    cli.main()\nfinally:\n"
    script += "    print(*sorted({name.split('.')[0] for name in sys.modules}), file=sys.stderr)"
    listed = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert not (HEAVY | PACKAGES) & set(listed.stderr.split())
    assert all(name in listed.stdout for name in cli.COMMANDS)


def test_the_version_is_that_of_the_project() -> None:
    project = tomllib.loads((PROJECT_ROOT / "pyproject.toml").read_text())["project"]
    assert lakehouse("--version").stdout == f"lakehouse {project['version']}\n"


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_the_list_has_the_summary_of_each_command(name: str) -> None:
    summary = (cli.load(name).help or "").split("\n\n")[0]
    assert " ".join(summary.split()) == cli.COMMANDS[name][1]


@pytest.mark.parametrize("content", ["", "[]", '{"bronze.t": {"location": "file:/t"}}', '{"bronze.t": "file:/t"}'])
def test_a_file_that_was_not_saved_is_refused_by_restore(
    content: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", "127.0.0.1:1")
    monkeypatch.setenv("SCHEMA_REGISTRY_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("LAKEHOUSE_HOME", str(tmp_path))
    monkeypatch.setenv("LAKEHOUSE_CATALOG_URI", f"jdbc:sqlite:{tmp_path / 'catalog.db'}")
    monkeypatch.setenv("LAKEHOUSE_WAREHOUSE", str(tmp_path))
    (tmp_path / "saved.json").write_text(content)
    for name in ("saved.json", "nowhere.json"):
        done = lakehouse("backup", "restore", str(tmp_path / name))
        assert (done.returncode, done.stderr.count("is not a file of `lakehouse backup save`")) == (1, 1), done.stderr


def test_a_mistyped_command_is_wrong_usage_and_named() -> None:
    done = CliRunner().invoke(cli.app, ["ingst"])
    assert done.exit_code == 2
    assert "Did you mean 'ingest'" in done.output


def test_a_sigterm_ends_a_command_as_ctrl_c_does(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """So it gives back the leases that it holds. The command waits for a broker that does not answer."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(60)
        for name, value in {
            "KAFKA_BOOTSTRAP_SERVERS": f"127.0.0.1:{silent.getsockname()[1]}",
            "SCHEMA_REGISTRY_URL": "http://127.0.0.1:1",
            "LAKEHOUSE_HOME": str(tmp_path),
            "LAKEHOUSE_WAREHOUSE": str(tmp_path),
            "LAKEHOUSE_CATALOG_URI": f"jdbc:sqlite:{tmp_path}/catalog.db",
        }.items():
            monkeypatch.setenv(name, value)
        command = subprocess.Popen([LAKEHOUSE, "ingest", "run"], stderr=subprocess.PIPE, text=True)
        silent.accept()
        command.terminate()
        _, errors = command.communicate(timeout=60)
    log = tmp_path / "errors.log"
    assert (command.returncode, errors) == (130, ""), log.read_text() if log.exists() else ""
