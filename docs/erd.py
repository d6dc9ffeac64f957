"""The entity-relationship diagram of marts and exports, drawn from dbt's relationship tests (`make docs`)."""

import sys
from collections import defaultdict
from pathlib import Path

from python_dbt.manifest import DbtManifest, load


def mermaid(manifest: DbtManifest) -> str:
    """Return a Mermaid erDiagram.

    It has a line for each relationship test, and a box with the keys of each model that has one.
    """
    tests = [
        (test, (test.attached_node, test.column_name))
        for test in manifest.nodes.values()
        if test.attached_node and test.column_name
    ]
    unique = {child for test, child in tests if test.test_name == "unique"}
    keys: dict[str, dict[str, str]] = defaultdict(dict)
    lines = []
    for test, child in tests:
        if test.test_name == "relationships":
            [parent_id] = set(test.parents) - {child[0]}
            parent = (parent_id, test.test_arguments["field"])
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
