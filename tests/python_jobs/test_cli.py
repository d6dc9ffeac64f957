"""The command `lakehouse` itself: it knows its sub-commands without their modules."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from python_common.config.environment import PROJECT_ROOT
from python_dev.review import report
from python_jobs import cli
from tests.support.in_process import lakehouse

pytestmark = pytest.mark.integration

# What the sub-commands import, and what takes long to.
HEAVY = {"boto3", "confluent_kafka", "duckdb", "httpx2", "pyarrow", "pyiceberg", "pyspark", "sqlglot"}
PACKAGES = {"python_dbt", "python_export", "python_ingest"}


def test_the_list_of_commands_imports_none_of_them() -> None:
    script = "import sys\nfrom python_jobs import cli\nsys.argv[1:] = ['--help']\ntry:\n    cli.main()\nfinally:\n"
    script += "    print(*sorted({name.split('.')[0] for name in sys.modules}), file=sys.stderr)"
    listed = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert not (HEAVY | PACKAGES) & set(listed.stderr.split())
    assert all(name in listed.stdout for name in cli.COMMANDS)


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_the_list_has_the_summary_of_each_command(name: str) -> None:
    summary = (cli.load(name).help or "").split("\n\n")[0]
    assert " ".join(summary.split()) == cli.COMMANDS[name][1]


# They have no result, a table has it, or they print one line, a file or what another program prints.
WITHOUT_JSON = {
    *("stack up", "stack down", "stack logs", "stack mail", "stack sample-data", "stack temporary", "ingest rebind"),
    *("export skip", "export notify", "export approve", "erase", "fork create", "fork drop", "review", "scaffold"),
    *("thrift", "pii create", "pii rotate", "check pii"),
}


def leaves(name: str, command: Any) -> Iterator[tuple[str, Any]]:
    """Yield each command by its name, groups that are run without a sub-command too; typer's types are private."""
    children = getattr(command, "commands", {})
    if not children or command.invoke_without_command:
        yield name, command
    for child in children:
        yield from leaves(f"{name} {child}", children[child])


ALL_COMMANDS = {name: command for part in cli.COMMANDS for name, command in leaves(part, cli.load(part))}


def test_a_command_has_json_or_a_reason_against_it() -> None:
    lacking = {name for name, command in ALL_COMMANDS.items() if "as_json" not in {one.name for one in command.params}}
    assert lacking == WITHOUT_JSON


def test_the_exit_codes_of_the_docs_are_those_of_help() -> None:
    page = (PROJECT_ROOT / "docs" / "commands.md").read_text()
    table = {
        (int(code), name)
        for codes, names in re.findall(r"^\| ([\d, ]+) \| (`.*?`) \|", page, re.MULTILINE)
        for code in codes.split(", ")
        for name in re.findall("`(.*?)`", names)
    }
    # Each command has 0, 1 and 2.
    assert table == {
        (int(code), name)
        for name, command in ALL_COMMANDS.items()
        for code in re.findall(r"(?:^s?:? |[;,]\s)(\d+)\b", (command.help or "").partition("xit code")[2])
        if int(code) > 2
    }
    assert {code for code, name in table if name == "review"} == {code for code in report.EXIT_CODES.values() if code}


def test_options_of_the_log_may_follow_a_command() -> None:
    behind = ["--", "lakehouse", "review", "--log-level", "debug"]
    assert cli.options_first(["stack", "temporary", "--log-format=json", "--log-level", "error", *behind]) == [
        *("--log-format=json", "--log-level", "error"),
        *("stack", "temporary", *behind),
    ]


def test_options_of_a_run_are_refused_before_the_list_of_runs() -> None:
    refused = lakehouse("weekly", "--week", "2026-W46", "runs")
    assert (refused.returncode, "options of `runs` come after it" in refused.stderr) == (2, True)


def test_builds_are_listed_as_lines_and_json(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = "running dbt with arguments\nnode state: model.a: old\nrunning dbt with arguments\n"
    (tmp_path / "dbt.log").write_text(log + "12:00:00 node state: model.b: its SQL changed\n")
    monkeypatch.setenv("DBT_LOG_PATH", str(tmp_path))
    assert lakehouse("check", "builds").stdout == "model.b: its SQL changed\n"
    assert json.loads(lakehouse("check", "builds", "--json").stdout) == {"model.b": "its SQL changed"}
    # dbt's log is full in the middle of a build.
    for full in ("dbt.log.2", "dbt.log.1", "dbt.log"):
        (tmp_path / full).write_text(f"{log if full == 'dbt.log.2' else ''}node state: model.{full}: unchanged\n")
    listed = ["model.dbt.log.2: unchanged", "model.dbt.log.1: unchanged", "model.dbt.log: unchanged"]
    assert lakehouse("check", "builds").stdout.splitlines() == listed
