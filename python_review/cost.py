"""What the statements of each node cost: sums over the tasks in Spark's event log.

dbt names the node in a comment at the start of a statement, which Spark keeps as the description of its stages.
"""

import json
from collections import defaultdict
from pathlib import Path

from python_common import private_files

Cost = dict[str, int]
"""Rows read from tables, bytes written for shuffles and nanoseconds of CPU, by FIGURES."""
FIGURES = "rows_read", "bytes_shuffled", "cpu_ns"


def spark_properties(directory: Path) -> dict[str, str]:
    """Make the directory of an event log, and return the properties that have Spark write it."""
    private_files.directory(directory)
    log = {"enabled": "true", "dir": directory.as_uri(), "rolling.enabled": "false", "compress": "false"}
    return {f"spark.eventLog.{name}": value for name, value in log.items()}


def costs(directory: Path, until: float) -> dict[str, tuple[Cost, Cost]]:
    """Return costs by unique_id of node: of stages submitted up to a Unix time in seconds, and of later ones.

    Spark has stopped, so that the log is whole.
    """
    found: dict[str, tuple[Cost, Cost]] = defaultdict(lambda: (dict.fromkeys(FIGURES, 0), dict.fromkeys(FIGURES, 0)))
    stages: dict[int, Cost] = {}
    [log] = directory.iterdir()
    for line in log.read_text().rstrip("\n").split("\n"):
        match json.loads(line):
            case {
                "Event": "SparkListenerStageSubmitted",
                "Stage Info": {"Stage ID": stage, "Submission Time": at},
                "Properties": {"spark.job.description": statement},
            }:
                stages[stage] = found[_node(statement)][at > until * 1000]
            case {
                "Event": "SparkListenerTaskEnd",
                "Stage ID": stage,
                "Task Metrics": {
                    "Executor CPU Time": cpu,
                    "Input Metrics": {"Records Read": rows},
                    "Shuffle Write Metrics": {"Shuffle Bytes Written": shuffled},
                },
            } if stage in stages:
                for name, figure in zip(FIGURES, (rows, shuffled, cpu), strict=True):
                    stages[stage][name] += figure
    return found


def _node(statement: str) -> str:
    """Return the unique_id of the node that a statement names, or nothing."""
    try:
        return str(json.loads(statement.partition("*/")[0].removeprefix("/*"))["node_id"])
    except (ValueError, KeyError, TypeError):
        return ""
