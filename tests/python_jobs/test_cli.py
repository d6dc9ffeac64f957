"""The command `lakehouse` itself: it knows its sub-commands without their modules."""

import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from python_common.config.environment import PROJECT_ROOT
from python_dev.review import report
from python_jobs import cli
from tests.support.in_process import lakehouse

pytestmark = pytest.mark.stack

# What the sub-commands import, and what takes long to.
HEAVY = {"boto3", "confluent_kafka", "duckdb", "httpx2", "pyarrow", "pyiceberg", "pyspark", "sqlglot"}
PACKAGES = {"python_dbt", "python_export", "python_ingest"}


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


# The commands that print no JSON, and why.
WITHOUT_JSON = {
    "stack up": "its addresses are those of `stack status`",
    "stack down": "`stack status` shows what is left",
    "stack logs": "it prints lines of another program",
    "stack mail": "it prints a mail",
    "stack sample-data": "for one machine; its figures are in the file that it names",
    "stack temporary": "stdout is the command's",
    "ingest rebind": "it changes a property, and `ingest status` shows the topic",
    "export skip": "it records a row, and `export run --dry-run` shows what is due",
    "export notify": "what is pending are rows of ops.export_outbox",
    "export approve": "it records a row of ops.export_holds",
    "erase": "its report is a receipt, a row of ops.erasures",
    "fork create": "`fork list` shows the fork",
    "fork drop": "`fork list` shows what is left",
    "review": "it writes review.json",
    "scaffold": "it writes files to be edited",
    "thrift": "a service",
    "pii create": "it writes a file",
    "pii rotate": "it writes a file",
    "check java": "one line",
    "check pii": "one line",
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
    assert lacking == WITHOUT_JSON.keys()


def test_datasets_and_topics_are_arguments_weeks_and_versions_are_options() -> None:
    kinds = {
        (parameter.name, parameter.param_type_name) for command in ALL_COMMANDS.values() for parameter in command.params
    }
    arguments = {name for name, kind in kinds if kind == "argument"}
    options = {name for name, kind in kinds if kind == "option"}
    assert {"topic", "topics", "dataset", "datasets"} & options == set()
    assert {"week", "weeks", "version", "versions"} & arguments == set()
    assert {"topics", "datasets"} <= arguments
    assert {"week", "version"} <= options


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


def test_options_of_the_log_may_follow_a_command_but_those_behind_a_dash_stay() -> None:
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


def test_a_mistyped_command_is_wrong_usage_and_named() -> None:
    done = CliRunner().invoke(cli.app, ["ingst"])
    assert done.exit_code == 2
    assert "Did you mean 'ingest'" in done.output
