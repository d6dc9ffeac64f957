"""What the statements of each node cost, and how Spark plans them: tasks and plans in Spark's event log.

dbt names the node in a comment at the start of a statement, which Spark keeps as the description of its stages.
"""

import json
from collections import defaultdict
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from python_common.config.settings import CATALOG_NAME

# Operators that compare each row of one side with each of the other.
PAIRWISE = ("BroadcastNestedLoopJoin", "CartesianProduct")
# How the name of a scan begins; the table's follows, with its catalog.
SCAN = f"BatchScan {CATALOG_NAME}."
NS_PER_SECOND = 1_000_000_000


@dataclass
class Scan:
    """Data files of a table that Iceberg planned to read, and how many files and manifests its filters skipped."""

    files: int = 0
    skipped: int = 0


@dataclass
class Cost:
    """Rows read, bytes shuffled, nanoseconds of CPU, joins by operator, and data files that Iceberg planned to read.

    `shuffles` are exchanges of a plan, and `scans` are by table.
    """

    rows_read: int = 0
    bytes_shuffled: int = 0
    cpu_ns: int = 0
    joins: dict[str, int] = field(default_factory=dict)
    files: int = 0
    bytes_in_files: int = 0
    shuffles: int = 0
    scans: dict[str, Scan] = field(default_factory=dict)

    def worse_plan(self, after: "Cost") -> Iterator[str]:
        """Yield why the plan after a change costs more on larger tables: pairwise joins, lost filters, shuffles."""
        for name in PAIRWISE:
            old, new = self.joins.get(name, 0), after.joins.get(name, 0)
            if new > old:
                yield f"a join compares all pairs of rows ({name} {old} to {new})"
        for table, scan in sorted(after.scans.items()):
            former = self.scans.get(table, scan)
            if scan.files > former.files and scan.skipped < former.skipped:
                yield f"a filter on {table} no longer skips files: {scan.files} are read instead of {former.files}"
        if after.shuffles > self.shuffles:
            yield f"a shuffle is new ({self.shuffles} to {after.shuffles})"

    def more_cpu(self, after: "Cost") -> Iterator[str]:
        """Yield that CPU seconds more than double; less than a second more is noise."""
        if after.cpu_ns > max(2 * self.cpu_ns, self.cpu_ns + NS_PER_SECOND):
            seconds = [cpu / NS_PER_SECOND for cpu in (self.cpu_ns, after.cpu_ns)]
            yield f"CPU seconds more than double ({seconds[0]:.1f} to {seconds[1]:.1f})"

    def other_joins(self, after: "Cost") -> str:
        """Return the operators of joins whose number differs, with both numbers, as text."""
        pairs = [(name, self.joins.get(name, 0), after.joins.get(name, 0)) for name in {**self.joins, **after.joins}]
        return ", ".join(f"{name} {old} to {new}" for name, old, new in sorted(pairs) if old != new)


def spark_properties(directory: Path) -> dict[str, str]:
    """Return the properties that have Spark write its event log to a directory, which is there when it starts."""
    log = {"enabled": "true", "dir": directory.as_uri(), "rolling.enabled": "false", "compress": "false"}
    return {f"spark.eventLog.{name}": value for name, value in log.items()}


def costs(
    directory: Path, until: float, rebuilt: Collection[str] = (), since: float = 0
) -> dict[str, tuple[Cost, Cost]]:
    """Return costs by unique_id of node: of stages submitted up to a Unix time in seconds, and of later ones.

    Of the nodes in `rebuilt`, statements up to `since` do not count. Spark has stopped, so that the log is whole.
    """
    by_node: dict[str, tuple[Cost, Cost]] = defaultdict(lambda: (Cost(), Cost()))
    stages: dict[int, Cost] = {}
    plans: dict[int, tuple[str, bool, Any]] = {}
    planned: dict[int, int] = {}

    def is_counted(statement: str, at: float) -> bool:
        return at > since * 1000 or _node(statement) not in rebuilt

    [log] = directory.iterdir()
    for line in log.read_text().rstrip("\n").split("\n"):
        match json.loads(line):
            case {
                "Stage Info": {"Stage ID": stage, "Submission Time": at},
                "Properties": {"spark.job.description": sql},
            } if is_counted(sql, at):
                stages[stage] = by_node[_node(sql)][at > until * 1000]
            case {"Stage ID": stage, "Task Metrics": metrics} if metrics and stage in stages:
                stages[stage].rows_read += metrics["Input Metrics"]["Records Read"]
                stages[stage].bytes_shuffled += metrics["Shuffle Write Metrics"]["Shuffle Bytes Written"]
                stages[stage].cpu_ns += metrics["Executor CPU Time"]
            case {"executionId": execution, "description": statement, "time": at, "sparkPlanInfo": plan} if is_counted(
                statement, at
            ):
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
            name = operator["nodeName"]
            if name.endswith(("Join", "CartesianProduct")):
                cost.joins[name] = cost.joins.get(name, 0) + 1
            cost.shuffles += name == "Exchange"
            # A plan that is used twice is in it twice.
            of_scan = {metric["name"]: planned.pop(metric["accumulatorId"], 0) for metric in operator["metrics"]}
            files = of_scan.get("number of result data files", 0)
            cost.files += files
            cost.bytes_in_files += of_scan.get("total data file size (bytes)", 0)
            if name.startswith(SCAN):
                scan = cost.scans.setdefault(name.removeprefix(SCAN), Scan())
                scan.files += files
                scan.skipped += sum(of_scan.get(f"number of skipped data {what}", 0) for what in ("files", "manifests"))
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
