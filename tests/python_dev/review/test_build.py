"""What is built and tested of one side, and which views cannot be read, without a service."""

from dataclasses import replace
from pathlib import Path

import pytest
from pyhive import hive
from thrift.transport.TTransport import TTransportException

from python_common.spark import thrift
from python_dbt.manifest import DbtManifest, Node
from python_dbt.project import Project
from python_dev.review import build as job
from python_dev.review import run, scope
from tests.support.reviewed import SALES, sides_of_change


def test_a_test_of_what_is_not_built_is_named_and_not_run() -> None:
    clock = replace(SALES, unique_id="model.shop.seen", name="seen", compiled_code="select current_timestamp()")
    clock = replace(clock, parents=[SALES.unique_id])
    other = replace(SALES, unique_id="model.shop.other", name="other", compiled_code="select now()")
    tests = [
        Node(f"test.shop.{name}", "test", name, "marts", compiled_code="select 1", parents=[*parents])
        for name, parents in {
            "of_changed": [SALES.unique_id, other.unique_id],
            "of_clock": [clock.unique_id, SALES.unique_id],
            "of_other": [other.unique_id],
        }.items()
    ]
    sides = sides_of_change(clock, other, *tests)
    of_code = run._of_code(*sides, "abc", Project(Path(), {}), is_static=False)
    build = job.Build.of(of_code, sides[1], scope.of_the_moment(of_code.scope, *sides))
    assert ([node.name for node in build.nodes], [test.name for test in build.tests]) == (["sales"], ["of_changed"])
    assert build.unknown == {"of_clock": ["seen"]}


VIEW = replace(SALES, materialized="view")
FULL_DISK, TIMEOUT = hive.OperationalError("No space left on device"), hive.OperationalError(thrift.TIMED_OUT[0])
NO_SERVER = TTransportException(TTransportException.END_OF_FILE)


@pytest.mark.parametrize(
    ("errors", "issues"),
    [
        ({}, []),
        ({"create table": FULL_DISK}, []),
        ({"create table": FULL_DISK, "select sum": FULL_DISK}, ["the view sales cannot be read"]),
        ({"create table": TIMEOUT, "select sum": TIMEOUT}, []),
        ({"create table": NO_SERVER, "select sum": NO_SERVER, "select count": NO_SERVER}, []),
    ],
)
def test_a_view_is_unreadable_only_if_reading_alone_fails(
    errors: dict[str, Exception], issues: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that is full and a server that dies are not made on purpose: here statements fail as they do then."""

    def rows(_: object, sql: str) -> list[object]:
        for start, error in errors.items():
            if sql.startswith(start):
                raise error
        # As Spark answers for what it cannot plan.
        return [("{}",)] if "lakehouse_plan" in sql else []

    monkeypatch.setattr(job.thrift, "rows", rows)
    build = job.Build(scope.Side(DbtManifest({VIEW.unique_id: VIEW}), {}), [VIEW])
    build.ask(None)
    assert [issue.message for issue in build.issues] == issues
