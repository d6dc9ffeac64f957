"""Plans as Spark answers with them, and costs of nodes from an event log as Spark writes it."""

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from python_dev.review import cost
from python_dev.review.cost import Cost, QueryPlan

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


def test_a_plan_is_not_what_spark_answers() -> None:
    answer = {"operators": {"Exchange": 2}, "filters": {"marts.a": ["s.at", "week"], "marts.b": []}}
    assert cost.plan(json.dumps(answer)) == QueryPlan(
        Counter(Exchange=2), {"marts.a": {"week", "s.at"}, "marts.b": set()}
    )
    assert cost.plan("{}") is None


def plan(filters: str = "week", **operators: int) -> QueryPlan:
    return QueryPlan(Counter({"SortMergeJoin": 1, "Exchange": 2, **operators}), {"marts.a": {*filters.split()}})


@pytest.mark.parametrize(
    ("after", "reasons"),
    [
        (plan(), []),
        (plan(SortMergeJoin=0, BroadcastHashJoin=2, Exchange=1), []),
        (plan(CartesianProduct=1), ["a join compares all pairs of rows (CartesianProduct 0 to 1)"]),
        (plan(BroadcastNestedLoopJoin=2), ["a join compares all pairs of rows (BroadcastNestedLoopJoin 0 to 2)"]),
        (plan(""), ["a filter on marts.a no longer skips files: Iceberg gets none of week"]),
        (plan("amount"), ["a filter on marts.a no longer skips files: Iceberg gets none of week"]),
        (plan("week amount"), []),
        # Another table is read, or this one no more.
        (replace(plan(), filters={"marts.a": {"week"}, "marts.b": set()}), []),
        (replace(plan(), filters={}), []),
        (plan(Exchange=3), ["a shuffle is new (2 to 3)"]),
    ],
)
def test_a_plan_is_worse_by_joins_filters_and_shuffles(after: QueryPlan, reasons: list[str]) -> None:
    assert [*plan().worse(after)] == reasons


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
