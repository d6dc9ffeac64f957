"""What the statements of each node cost, and how they join: tasks and plans in Spark's event log.

dbt names the node in a comment at the start of a statement, which Spark keeps as the description of its stages.
"""

import json
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass
class Cost:
    """Rows read, bytes shuffled, nanoseconds of CPU, joins by operator, and data files that Iceberg planned to read."""

    rows_read: int = 0
    bytes_shuffled: int = 0
    cpu_ns: int = 0
    joins: dict[str, int] = field(default_factory=dict)
    files: int = 0
    bytes_in_files: int = 0

    def other_joins(self, after: "Cost") -> str:
        """Return the operators of joins whose number differs, with both numbers, as text."""
        pairs = [(name, self.joins.get(name, 0), after.joins.get(name, 0)) for name in {**self.joins, **after.joins}]
        return ", ".join(f"{name} {old} to {new}" for name, old, new in sorted(pairs) if old != new)


def spark_properties(directory: Path) -> dict[str, str]:
    """Return the properties that have Spark write its event log to a directory, which is there when it starts."""
    log = {"enabled": "true", "dir": directory.as_uri(), "rolling.enabled": "false", "compress": "false"}
    return {f"spark.eventLog.{name}": value for name, value in log.items()}


def costs(directory: Path, until: float) -> dict[str, tuple[Cost, Cost]]:
    """Return costs by unique_id of node: of stages submitted up to a Unix time in seconds, and of later ones.

    Spark has stopped, so that the log is whole.
    """
    by_node: dict[str, tuple[Cost, Cost]] = defaultdict(lambda: (Cost(), Cost()))
    stages: dict[int, Cost] = {}
    plans: dict[int, tuple[str, bool, Any]] = {}
    planned: dict[int, int] = {}
    [log] = directory.iterdir()
    for line in log.read_text().rstrip("\n").split("\n"):
        match json.loads(line):
            case {
                "Stage Info": {"Stage ID": stage, "Submission Time": at},
                "Properties": {"spark.job.description": sql},
            }:
                stages[stage] = by_node[_node(sql)][at > until * 1000]
            case {"Stage ID": stage, "Task Metrics": metrics} if metrics and stage in stages:
                stages[stage].rows_read += metrics["Input Metrics"]["Records Read"]
                stages[stage].bytes_shuffled += metrics["Shuffle Write Metrics"]["Shuffle Bytes Written"]
                stages[stage].cpu_ns += metrics["Executor CPU Time"]
            case {"executionId": execution, "description": statement, "time": at, "sparkPlanInfo": plan}:
                plans[execution] = _node(statement), at > until * 1000, plan
            # Spark plans again while it runs: the last plan is what ran.
            case {"executionId": execution, "sparkPlanInfo": plan} if execution in plans:
                plans[execution] = *plans[execution][:2], plan
            case {"accumUpdates": updates}:
                planned.update(updates)
    for node, is_later, plan in plans.values():
        # A view is created without a task.
        cost = by_node[node][is_later] if node in by_node else Cost()
        for operator in _operators(plan):
            if operator["nodeName"].endswith(("Join", "CartesianProduct")):
                cost.joins[operator["nodeName"]] = cost.joins.get(operator["nodeName"], 0) + 1
            # A plan that is used twice is in it twice.
            of_scan = {metric["name"]: planned.pop(metric["accumulatorId"], 0) for metric in operator["metrics"]}
            cost.files += of_scan.get("number of result data files", 0)
            cost.bytes_in_files += of_scan.get("total data file size (bytes)", 0)
    return by_node


def _operators(plan: Any) -> Iterator[Any]:
    yield plan
    for child in plan["children"]:
        yield from _operators(child)


def _node(statement: str) -> str:
    """Return the unique_id of the node that a statement names, or nothing."""
    try:
        return str(json.loads(statement.partition("*/")[0].removeprefix("/*"))["node_id"])
    except (ValueError, KeyError, TypeError):
        return ""
