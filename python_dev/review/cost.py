"""How Spark plans the query of a node, by its own answer, and what its statements cost, by tasks in its event log.

dbt names the node in a comment at the start of a statement, which Spark keeps as the description of its stages.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

# Operators that compare each row of one side with each of the other.
PAIRWISE = ("BroadcastNestedLoopJoin", "CartesianProduct")
NS_PER_SECOND = 1_000_000_000


@dataclass(frozen=True)
class QueryPlan:
    """How Spark runs a query: operators by how often, and by table the columns of filters that reach Iceberg."""

    operators: Counter[str]
    filters: dict[str, set[str]]

    def worse(self, after: "QueryPlan") -> Iterator[str]:
        """Yield why the plan after a change costs more on larger tables: pairwise joins, lost filters, shuffles."""
        for name in PAIRWISE:
            if after.operators[name] > self.operators[name]:
                change = f"{name} {self.operators[name]} to {after.operators[name]}"
                yield f"a join compares all pairs of rows ({change})"
        for table, columns in sorted(after.filters.items()):
            if lost := self.filters.get(table, set()) - columns:
                yield f"a filter on {table} no longer skips files: Iceberg gets none of {', '.join(sorted(lost))}"
        if after.operators["Exchange"] > self.operators["Exchange"]:
            yield f"a shuffle is new ({self.operators['Exchange']} to {after.operators['Exchange']})"


def plan(answer: str) -> QueryPlan | None:
    """Return the plan that `lakehouse_plan` answers with; None of a query that Spark cannot plan."""
    made = json.loads(answer)
    if not made:
        return None
    return QueryPlan(Counter(made["operators"]), {table: {*columns} for table, columns in made["filters"].items()})


@dataclass
class Cost:
    """Rows read, bytes shuffled, and nanoseconds of CPU."""

    rows_read: int = 0
    bytes_shuffled: int = 0
    cpu_ns: int = 0

    def more_cpu(self, after: "Cost") -> Iterator[str]:
        """Yield that CPU seconds more than double; less than a second more is noise."""
        if after.cpu_ns > max(2 * self.cpu_ns, self.cpu_ns + NS_PER_SECOND):
            seconds = [cpu / NS_PER_SECOND for cpu in (self.cpu_ns, after.cpu_ns)]
            yield f"CPU seconds more than double ({seconds[0]:.1f} to {seconds[1]:.1f})"


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
    return by_node


def _node(statement: str) -> str:
    """Return the unique_id of the node that a statement names, or nothing."""
    try:
        return str(json.loads(statement.partition("*/")[0].removeprefix("/*"))["node_id"])
    except (ValueError, KeyError, TypeError):
        return ""
