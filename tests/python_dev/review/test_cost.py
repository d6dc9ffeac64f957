"""Costs of nodes, from an event log as Spark writes it."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from python_dev.review import cost
from python_dev.review.cost import Cost, Scan

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


def scan(table: str, first: int) -> dict[str, object]:
    names = ("number of result data files", "number of skipped data files", "number of skipped data manifests")
    metrics = [{"name": name, "accumulatorId": first + place} for place, name in enumerate(names)]
    return {**plan(f"BatchScan lake.{table}"), "metrics": metrics}


def reported(*figures: tuple[int, int]) -> dict[str, object]:
    return {"Event": "SparkListenerDriverAccumUpdates", "accumUpdates": [list(pair) for pair in figures]}


def test_shuffles_and_what_scans_skip_are_those_of_the_last_plan(tmp_path: Path) -> None:
    shuffled = plan("AppendData", plan("Exchange", plan("Union", scan("marts.a", 1), scan("marts.b", 4))))
    events = [
        started(0, 10, "model.a", plan("AppendData", plan("Exchange", plan("Exchange")))),
        {"Event": "SparkListenerSQLAdaptiveExecutionUpdate", "executionId": 0, "sparkPlanInfo": shuffled},
        reported((1, 2), (2, 3), (3, 4), (4, 5)),
        *ran(0, 10, "model.a"),
    ]
    before, after = costs(tmp_path, events)["model.a"]
    assert (before.shuffles, before.scans) == (1, {"marts.a": Scan(2, 7), "marts.b": Scan(5, 0)})
    assert (after.shuffles, after.scans) == (0, {})


def test_of_a_rebuilt_node_only_its_last_build_counts(tmp_path: Path) -> None:
    """The first one was of new batches alone; the view of the other node is not built again."""
    one_join = plan("AppendData", plan("SortMergeJoin"))
    events = [
        *(started(number, 5, f"model.{name}", one_join) for number, name in enumerate("ab")),
        *(event for number, name in enumerate("ab") for event in ran(number, 5, f"model.{name}")),
        started(2, 15, "model.a", plan("AppendData", plan("Exchange"))),
        *ran(2, 15, "model.a"),
    ]
    (tmp_path / "local-1").write_text("".join(f"{json.dumps(event)}\n" for event in events))
    by_node = cost.costs(tmp_path, until=20, rebuilt=["model.a"], since=10)
    assert (by_node["model.a"][0].joins, by_node["model.a"][0].shuffles) == ({}, 1)
    assert (by_node["model.b"][0].joins, by_node["model.b"][0].rows_read) == ({"SortMergeJoin": 1}, 1)
    assert by_node["model.a"][0].rows_read == 1


PRUNED = Cost(joins={"SortMergeJoin": 1, "BroadcastHashJoin": 1}, scans={"marts.a": Scan(1, 9)}, shuffles=2)


@pytest.mark.parametrize(
    ("after", "reasons"),
    [
        (PRUNED, []),
        (Cost(joins={"BroadcastHashJoin": 2}, scans={"marts.a": Scan(1, 9)}, shuffles=1), []),
        (
            replace(PRUNED, joins={"CartesianProduct": 1}),
            ["a join compares all pairs of rows (CartesianProduct 0 to 1)"],
        ),
        (
            replace(PRUNED, joins={"BroadcastNestedLoopJoin": 2}),
            ["a join compares all pairs of rows (BroadcastNestedLoopJoin 0 to 2)"],
        ),
        (
            replace(PRUNED, scans={"marts.a": Scan(10, 0)}),
            ["a filter on marts.a no longer skips files: 10 are read instead of 1"],
        ),
        # The table has more or fewer files now; another table is read, too.
        (replace(PRUNED, scans={"marts.a": Scan(3, 9), "marts.b": Scan(5, 0)}), []),
        (replace(PRUNED, scans={"marts.a": Scan(1, 3)}), []),
        (replace(PRUNED, shuffles=3), ["a shuffle is new (2 to 3)"]),
    ],
)
def test_a_plan_is_worse_by_joins_filters_and_shuffles(after: Cost, reasons: list[str]) -> None:
    assert [*PRUNED.worse_plan(after)] == reasons


@pytest.mark.parametrize(
    ("before", "after", "reasons"),
    [
        (0.1, 0.9, []),
        (2, 4, []),
        (2, 4.1, ["CPU seconds more than double (2.0 to 4.1)"]),
        (0.2, 1.3, ["CPU seconds more than double (0.2 to 1.3)"]),
    ],
)
def test_more_than_twice_the_cpu_is_named(before: float, after: float, reasons: list[str]) -> None:
    assert [*of(before).more_cpu(of(after))] == reasons


@pytest.mark.parametrize(
    "description", [None, "select 1", "/* a comment */ select 1", "/* 1 */", '/* {"app": "dbt"} */']
)
def test_statements_that_name_no_node_count_for_none(tmp_path: Path, description: str | None) -> None:
    events = [submitted(0, 10, description), ended(0, 1, 1, 1)]
    assert not costs(tmp_path, events).keys() - {""}
