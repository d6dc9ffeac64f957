"""The entity-relationship diagram of marts and exports, drawn from dbt's relationship tests (`make docs`)."""

import sys
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

from python_dbt.manifest import DbtManifest, load


@dataclass(frozen=True)
class Reference:
    """A relationship test: both ends are a unique id and a column."""

    child: tuple[str, str]
    parent: tuple[str, str]


def references(manifest: DbtManifest) -> list[Reference]:
    """Return what the relationship tests of columns state."""
    return [
        Reference((test.attached_node, test.column_name), (parent_id, test.test_arguments["field"]))
        for test in manifest.nodes.values()
        if test.test_name == "relationships" and test.attached_node and test.column_name
        for parent_id in {*test.parents} - {test.attached_node}
    ]


def mermaid(manifest: DbtManifest) -> str:
    """Return a Mermaid erDiagram.

    It has a line for each relationship test, and a box with the keys of each model that has one.
    """
    unique = {(test.attached_node, test.column_name) for test in manifest.nodes.values() if test.test_name == "unique"}
    keys: dict[str, dict[str, str]] = defaultdict(dict)
    lines = []
    for reference in references(manifest):
        child, parent = reference.child, reference.parent
        keys[child[0]][child[1]] = "PK, FK" if child in unique else "FK"
        keys[parent[0]].setdefault(parent[1], "PK" if parent in unique else "")
        ends = f"{'|o' if child in unique else '}o'}--{'||' if parent in unique else '|{'}"
        names = [manifest.nodes[unique_id].name for unique_id, _ in (child, parent)]
        lines.append(f"    {names[0]} {ends} {names[1]} : {child[1]}")
    boxes = []
    for model in (manifest.nodes[unique_id] for unique_id in sorted(keys)):
        columns = [
            f"        {(column.data_type or '').partition('(')[0]} {name} {keys[model.unique_id][name]}".rstrip()
            for name, column in model.columns.items()
            if name in keys[model.unique_id]
        ]
        boxes += [f"    {model.name} {{", *columns, "    }"]
    return "\n".join(["erDiagram", *boxes, *sorted(lines)]) + "\n"


if __name__ == "__main__":
    print(mermaid(load(Path(sys.argv[1]))), end="")
