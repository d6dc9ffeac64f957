"""The entity-relationship diagram of marts and exports, drawn from dbt's relationship tests (`make docs`)."""

import json
import sys
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def mermaid(manifest: Mapping[str, Any]) -> str:
    """Return a Mermaid erDiagram of a dbt manifest.

    It has a line for each relationship test, and a box with the keys of each model that has one.
    """
    nodes = manifest["nodes"]
    tests = [node for node in nodes.values() if node["resource_type"] == "test" and node.get("column_name")]
    unique = {(test["attached_node"], test["column_name"]) for test in tests if _kind(test) == "unique"}
    keys: dict[str, dict[str, str]] = defaultdict(dict)
    lines = []
    for test in tests:
        if _kind(test) == "relationships":
            child, parent = _ends(test)
            keys[child[0]][child[1]] = "PK, FK" if child in unique else "FK"
            keys[parent[0]].setdefault(parent[1], "PK" if parent in unique else "")
            ends = f"{'|o' if child in unique else '}o'}--{'||' if parent in unique else '|{'}"
            lines.append(f"    {nodes[child[0]]['name']} {ends} {nodes[parent[0]]['name']} : {child[1]}")
    boxes = []
    for model in sorted(keys):
        columns = [
            f"        {declared['data_type'].partition('(')[0]} {column} {keys[model][column]}".rstrip()
            for column, declared in nodes[model]["columns"].items()
            if column in keys[model]
        ]
        boxes += [f"    {nodes[model]['name']} {{", *columns, "    }"]
    return "\n".join(["erDiagram", *boxes, *sorted(lines)]) + "\n"


def _ends(test: Mapping[str, Any]) -> tuple[tuple[str, str], tuple[str, str]]:
    """Return model and column at both ends of a relationship test."""
    child = test["attached_node"]
    (parent,) = set(test["depends_on"]["nodes"]) - {child}
    return (child, test["column_name"]), (parent, test["test_metadata"]["kwargs"]["field"])


def _kind(test: Mapping[str, Any]) -> str:
    return test["test_metadata"]["name"] if test.get("test_metadata") else ""


if __name__ == "__main__":
    print(mermaid(json.loads(Path(sys.argv[1]).read_text())), end="")
