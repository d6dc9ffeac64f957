"""What a person sees when dbt or Spark fails: what and why, but no stack trace and no value of a row."""

import sys
from pathlib import Path

import pytest

from python_common.spark.spark_sql import reason
from python_dbt.project import Project
from python_dbt.run import build_all, error_lines

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


def test_each_table_is_logged_when_it_is_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    lines = [
        "12:06:40  1 of 5 START sql table model marts.a ........................ [RUN]",
        "12:06:41  1 of 5 OK created sql table model marts.a ................... [OK in 0.77s]",
        "12:06:42  2 of 5 OK created sql incremental model marts.b ............. [unchanged in 0.66s]",
        "12:06:43  3 of 5 PASS unique_a_id ..................................... [PASS in 0.10s]",
        "12:06:44  4 of 5 OK loaded seed file reference.channels ............... [INSERT 7 in 1.32s]",
        "12:06:45  5 of 5 OK snapshotted ops.history ........................... [OK in 2.00s]",
    ]
    dbt = tmp_path / "dbt"
    dbt.write_text("#!/bin/sh\n" + "".join(f"echo '{line}'\n" for line in lines) + "echo '4111' >&2\n")
    dbt.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    assert build_all(Project(tmp_path, {"PATH": "/usr/bin:/bin"}), []) == []
    assert caplog.messages == ["dbt: 1 of 5 marts.a", "dbt: 4 of 5 reference.channels", "dbt: 5 of 5 ops.history"]


def test_error_lines_of_failed_nodes() -> None:
    output = f"""\
12:06:40  Running with dbt=1.11.16
12:06:50  1 of 4 START sql table model marts.a .................................... [RUN]
12:06:51  1 of 4 ERROR creating sql table model marts.a ........................... [ERROR in 1.51s]
12:06:52  2 of 4 OK created sql table model marts.b ............................... [OK in 0.77s]
12:06:58  3 of 4 FAIL 1 unique_b_id ............................................... [FAIL 1 in 4.00s]
12:06:58  4 of 4 SKIP relation marts.c ............................................ [SKIP]
12:06:59  Completed with 2 errors, 0 partial successes, and 0 warnings:
12:06:59
12:06:59  Failure in model a (models/a.sql)
12:06:59    Runtime Error in model a (models/a.sql)
  Database Error
    org.apache.hive.service.cli.HiveSQLException: {CAST_ERROR}
    Caused by: org.apache.spark.SparkNumberFormatException: The value '4111-1111-1111-1111'
"""
    assert error_lines(output) == [
        "1 of 4 ERROR creating sql table model marts.a",
        "3 of 4 FAIL 1 unique_b_id",
        "CAST_INVALID_INPUT",
    ]


@pytest.mark.parametrize("conflict", ["CommitFailedException", "ValidationException"])
def test_a_conflict_of_two_builds_is_named_with_its_remedy(conflict: str) -> None:
    raised = f"Error running query: org.apache.iceberg.exceptions.{conflict}: key 4111"
    assert error_lines(f"    org.apache.hive.service.cli.HiveSQLException: {raised}") == [
        f"{conflict}: another build wrote the table at the same time, and its rows stay; run the command again"
    ]


def test_error_lines_of_the_project_itself() -> None:
    output = """\
12:07:05  Registered adapter: spark=1.11.0
12:07:06  Encountered an error:
Compilation Error
  Model 'model.shop.e' (models/e.sql) depends on a node named 'zzz' which was not found

Traceback
"""
    assert error_lines(output) == [
        "Compilation Error",
        "Model 'model.shop.e' (models/e.sql) depends on a node named 'zzz' which was not found",
    ]
