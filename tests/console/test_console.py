"""The command `lakehouse` itself: it knows its sub-commands without their modules."""

import subprocess
import sys

import pytest
from typer.testing import CliRunner

from console import cli

# What the sub-commands import, and what takes long to.
HEAVY = {"boto3", "confluent_kafka", "duckdb", "httpx2", "pyarrow", "pyiceberg", "pyspark", "sqlglot"}
ROOMS = {"local_stack", "python_export", "python_ingest", "sample_data", "spark_server", "weekly_job"}


def test_the_list_of_commands_imports_none_of_them() -> None:
    script = "import sys\nfrom console import cli\nsys.argv[1:] = ['--help']\ntry:\n    cli.main()\nfinally:\n"
    script += "    print(*sorted({name.split('.')[0] for name in sys.modules}), file=sys.stderr)"
    listed = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert not (HEAVY | ROOMS) & set(listed.stderr.split())
    assert all(name in listed.stdout for name in cli.COMMANDS)


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_the_list_says_of_a_command_what_the_command_says(name: str) -> None:
    said = (cli.load(name).help or "").split("\n\n")[0]
    assert " ".join(said.split()) == cli.COMMANDS[name][1]


def test_a_mistyped_command_is_wrong_usage_and_named() -> None:
    done = CliRunner().invoke(cli.app, ["ingst"])
    assert done.exit_code == 2
    assert "Did you mean 'ingest'" in done.output
