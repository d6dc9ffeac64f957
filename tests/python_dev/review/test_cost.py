"""Costs of nodes, from an event log as Spark writes it."""

import json
from pathlib import Path

import pytest

from python_dev.review import cost
from python_dev.review.cost import Cost

pytestmark = pytest.mark.unit


def of(seconds: float = 0, rows: int = 0, shuffled: int = 0) -> Cost:
    return Cost(rows, shuffled, round(seconds * 1e9))


def costs(directory: Path, events: list[dict[str, object]]) -> dict[str, tuple[Cost, Cost]]:
    """Return the costs of nodes before and after second 20 of an event log."""
    (directory / "local-1").write_text("".join(f"{json.dumps(event)}\n" for event in events))
    return cost.costs(directory, until=20)


def submitted(stage: int, second: int, description: str | None) -> dict[str, object]:
    return {
        "Event": "SparkListenerStageSubmitted",
        "Stage Info": {"Stage ID": stage, "Submission Time": second * 1000},
        **({} if description is None else {"Properties": {"spark.job.description": description}}),
    }


def ended(stage: int, seconds: float, rows: int, shuffled: int) -> dict[str, object]:
    return {
        "Event": "SparkListenerTaskEnd",
        "Stage ID": stage,
        "Task Metrics": {
            "Executor CPU Time": int(seconds * 1e9),
            "Input Metrics": {"Bytes Read": 1, "Records Read": rows},
            "Shuffle Write Metrics": {"Shuffle Bytes Written": shuffled},
        },
    }


def of_node(name: str) -> str:
    return f'/* {{"app": "dbt", "node_id": "{name}"}} */ create table t as select 1 /* {{"node_id": "no"}} */'


def test_tasks_count_for_the_node_that_their_statement_names(tmp_path: Path) -> None:
    events = [
        {"Event": "SparkListenerLogStart"},
        submitted(0, 10, of_node("model.a")),
        ended(0, 1.5, 100, 20),
        submitted(1, 11, of_node("model.a")),
        submitted(2, 12, of_node("model.b")),
        ended(2, 0.25, 5, 0),
        ended(1, 0.5, 0, 0),
        submitted(3, 30, of_node("model.a")),
        ended(3, 2, 300, 60),
        # A task that failed has no metrics.
        {"Event": "SparkListenerTaskEnd", "Stage ID": 3},
    ]
    by_node = costs(tmp_path, events)
    assert by_node == {"model.a": (of(2, 100, 20), of(2, 300, 60)), "model.b": (of(0.25, 5), of())}


def plan(operator: str, *children: dict[str, object]) -> dict[str, object]:
    return {"nodeName": operator, "children": [*children], "metrics": []}


def started(execution: int, second: int, name: str, planned: dict[str, object]) -> dict[str, object]:
    statement = {"executionId": execution, "description": of_node(name), "time": second * 1000}
    return {"Event": "SparkListenerSQLExecutionStart", **statement, "sparkPlanInfo": planned}


def ran(stage: int, second: int, name: str) -> list[dict[str, object]]:
    return [submitted(stage, second, of_node(name)), ended(stage, 1, 1, 1)]


def test_the_joins_of_a_node_are_those_of_the_plans_that_ran(tmp_path: Path) -> None:
    read = plan("BatchScan lake.marts.a")
    sorted_first = plan("AppendData", plan("SortMergeJoin", read, plan("BroadcastHashJoin", read, read)))
    hashed = plan("AppendData", plan("ShuffledHashJoin", read, plan("BroadcastHashJoin", read, read)))
    events = [
        started(0, 10, "model.a", plan("AtomicCreateTableAsSelect")),
        started(1, 10, "model.a", sorted_first),
        *ran(0, 10, "model.a"),
        started(2, 11, "model.of_a_view", plan("CreateView")),
        {"Event": "SparkListenerSQLAdaptiveExecutionUpdate", "executionId": 1, "sparkPlanInfo": hashed},
        started(3, 30, "model.a", sorted_first),
        started(4, 31, "model.a", hashed),
    ]
    by_node = costs(tmp_path, events)
    assert [*by_node] == ["model.a"]
    before, after = by_node["model.a"]
    assert before.joins == {"ShuffledHashJoin": 1, "BroadcastHashJoin": 1}
    assert before.other_joins(after) == "BroadcastHashJoin 1 to 2, SortMergeJoin 0 to 1"


@pytest.mark.parametrize(
    "description", [None, "select 1", "/* a comment */ select 1", "/* 1 */", '/* {"app": "dbt"} */']
)
def test_statements_that_name_no_node_count_for_none(tmp_path: Path, description: str | None) -> None:
    events = [submitted(0, 10, description), ended(0, 1, 1, 1)]
    assert not costs(tmp_path, events).keys() - {""}
