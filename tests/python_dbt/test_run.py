"""What a person sees when dbt or Spark fails: what and why, but no stack trace and no value of a row."""

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from python_common.errors import UserError
from python_common.spark.spark_sql import reason
from python_dbt.project import Project
from python_dbt.run import build_all, errors, rerun

CAST_ERROR = (
    "Error running query: [CAST_INVALID_INPUT] org.apache.spark.SparkNumberFormatException: [CAST_INVALID_INPUT] The "
    'value \'4111-1111-1111-1111\' of the type "STRING" cannot be cast to "INT" because it is malformed.\n\tat x.Y(Z)'
)
NOT_FOUND = (
    "Error running query: [TABLE_OR_VIEW_NOT_FOUND] org.apache.spark.sql.AnalysisException: [TABLE_OR_VIEW_NOT_FOUND] "
    "The table or view `lake`.`x` cannot be found.\nIf you did not qualify the name\n\tat x.Y(Z)"
)


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (CAST_ERROR, "CAST_INVALID_INPUT"),
        (NOT_FOUND, "[TABLE_OR_VIEW_NOT_FOUND] The table or view `lake`.`x` cannot be found."),
        ("Error running query: org.apache.spark.SparkException: Job aborted: row (1, secret)", "SparkException"),
        ("java.lang.OutOfMemoryError: Java heap space", "OutOfMemoryError"),
        ("secret", "no reason given"),
        ("", "no reason given"),
    ],
)
def test_reason_quotes_no_row(message: str, expected: str) -> None:
    assert reason(message) == expected


def event(name: str, level: str = "info", node: str | None = None, **data: object) -> dict[str, Any]:
    """Return an event as dbt prints it, of a node or of the command."""
    relation = {"schema": "marts", "alias": node}
    node_info = {"node_info": {"node_name": node, "node_relation": relation}} if node else {}
    return {"data": {**node_info, **data}, "info": {"name": name, "level": level, "msg": "4111-1111-1111-1111"}}


def printed_by_dbt(tmp_path: Path, lines: Iterable[str], code: int = 0) -> Project:
    """Return a project for which dbt prints some lines and ends with a code."""
    dbt, output = tmp_path / "dbt", tmp_path / "output"
    output.write_text("".join(f"{line}\n" for line in lines))
    dbt.write_text(f"#!/bin/sh\ncat {output}\nexit {code}\n")
    dbt.chmod(0o755)
    return Project(tmp_path, {"PATH": "/usr/bin:/bin"})


def test_each_table_is_logged_when_it_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    events = [
        event("LogStartLine", node="a", index=1, total=6, description="sql table model marts.a"),
        event("LogModelResult", node="a", index=1, total=6, status="OK"),
        event("LogModelResult", node="b", index=2, total=6, status="unchanged"),
        event("LogModelResult", "error", node="c", index=3, total=6, status="error"),
        event("LogTestResult", node="unique_a_id", index=4, total=6, status="pass"),
        event("LogSeedResult", node="channels", index=5, total=6, status="success", result_message="INSERT 7"),
        event("LogSeedResult", node="unread", index=5, total=6, status="success", result_message="unchanged"),
        event("LogSnapshotResult", node="history", index=6, total=6, status="OK"),
    ]
    lines = ["a warning of a driver: 4111", *map(json.dumps, events), "[]", "1"]
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    assert build_all(printed_by_dbt(tmp_path, lines), []) == []
    assert caplog.messages == ["dbt: 1 of 6 marts.a", "dbt: 5 of 6 marts.channels", "dbt: 6 of 6 marts.history"]


def test_a_dbt_that_fails_without_an_event_has_no_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may print what it cannot read."""
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    project = printed_by_dbt(tmp_path, ["Runtime Error", "  4111-1111-1111-1111"], code=2)
    with pytest.raises(UserError, match=r"dbt could not run a, so nothing is published:\n  exit code 2\n\."):
        rerun(project, [], "a")


def in_model(text: str) -> dict[str, Any]:
    """Return the event of a model that failed."""
    return event("RunResultError", "error", node="a", msg=text)


def in_spark(message: str) -> dict[str, Any]:
    """Return the event of a model that failed in Spark."""
    raised = f"org.apache.hive.service.cli.HiveSQLException: {message}"
    return in_model(f"Runtime Error in model a (models/a.sql)\n  Database Error\n    {raised}")


def at_start(text: str) -> dict[str, Any]:
    """Return the event of a command that could not begin."""
    return event("MainEncounteredError", "error", exc=text)


CONFLICT = "another build wrote the table at the same time, and its rows stay; run the command again"


@pytest.mark.parametrize(
    ("event", "line"),
    [
        (in_spark(CAST_ERROR), "a: CAST_INVALID_INPUT"),
        (in_spark("org.apache.iceberg.CommitFailedException: key 4111"), f"a: CommitFailedException: {CONFLICT}"),
        (in_spark("org.apache.iceberg.ValidationException: key 4111"), f"a: ValidationException: {CONFLICT}"),
        (in_model("Compilation Error in a\n  'x' is undefined"), "a: Compilation Error in a 'x' is undefined"),
        (at_start("Compilation Error\n  Model 'e' reads 'z'"), "Compilation Error Model 'e' reads 'z'"),
        (at_start("Runtime Error\n  Could not find profile named 'x'"), "Could not find profile named 'x'"),
        (at_start("Runtime Error\n  4111-1111-1111-1111"), "no reason given"),
    ],
)
def test_why_dbt_failed_is_named_without_values(event: dict[str, Any], line: str) -> None:
    assert errors([event, event]) == [line]


def test_only_errors_are_reasons() -> None:
    assert errors([event("LogModelResult", "error", node="a", status="error"), event("Note", msg="4111")]) == []
