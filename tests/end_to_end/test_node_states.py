"""What each node has read by the notes of a build, against the tables that a parser finds in its SQL."""

import json
from pathlib import Path
from typing import Any

import sqlglot
from sqlglot import exp

from tests.support.lake import Lake

# Their results, and those of their tests, do not follow from tables alone: they read metadata or the clock.
NEVER_NOTED = {"ops_table_health", "ops_topic_weeks", "ops_export_weeks"}


def tables_read(sql: str) -> set[str]:
    """Return the tables and views that SQL names, as <schema>.<name>; no name may be of a default schema."""
    tree = sqlglot.parse_one(sql, dialect="spark")
    queries = {query.alias for query in tree.find_all(exp.CTE)}
    tables = set()
    for table in tree.find_all(exp.Table):
        names = [part.name for part in table.parts]
        if len(names) == 1:
            assert names[0] in queries, names
        elif names[0] != "spark_catalog":
            # a metadata table begins with the name of its table
            tables.add(".".join(names[:2]))
    return tables


def with_what_is_below(name: str, views: dict[str, str]) -> set[str]:
    """Return a relation, and those that it shows if it is a view; `views` has their SQL."""
    below = tables_read(views[name]) if name in views else set()
    return {name}.union(*(with_what_is_below(other, views) for other in below))


def test_the_inputs_of_every_node_are_those_that_a_parser_finds(lake: Lake, target: Path) -> None:
    nodes: dict[str, dict[str, Any]] = json.loads((target / "manifest.json").read_text())["nodes"]
    views = {
        f"{node['schema']}.{node['alias']}": node["compiled_code"]
        for node in nodes.values()
        if node["config"]["materialized"] == "view" and node["resource_type"] == "model"
    }
    noted = dict(lake.query("ops.node_states", "select unique_id, inputs from rows"))
    for unique_id, inputs in noted.items():
        read = json.loads(inputs).keys() - {"masking key"}
        named = tables_read(nodes[unique_id]["compiled_code"]) if nodes[unique_id]["resource_type"] != "seed" else set()
        assert read == set().union(*(with_what_is_below(name, views) for name in named)), unique_id
    built = {"model", "seed", "snapshot", "test"}
    stored = {name for name, node in nodes.items() if node["config"]["materialized"] != "ephemeral"}
    missing = {name for name in stored - noted.keys() if nodes[name]["resource_type"] in built}
    tested = {name: (nodes[name].get("attached_node") or name).rpartition(".")[2] for name in missing}
    left = {nodes[name]["name"] for name in missing if tested[name] not in NEVER_NOTED}
    # It warns.
    assert left <= {"accepted_values_ops_data_quality_issues_row_count__False__0"}, left
