"""What tests of reviews change: a table, in a project of it before and after, and files of this project."""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from python_dbt.compile import compiled_manifest
from python_dbt.manifest import DbtManifest, Node
from python_dev.review import scope
from python_dev.review.scope import Side
from tests.support.small_project import copy_project

SALES = Node(
    "model.shop.sales",
    "model",
    "sales",
    "marts",
    alias="sales",
    materialized="table",
    unique_key="id",
    partition_by="week",
)


def sides_of_change(*others: Node) -> list[Side]:
    """Return a project of `sales` and other nodes, before and after its SQL changes."""
    versions = (replace(SALES, raw_code=sql, compiled_code=sql) for sql in ("select 1", "select 2"))
    return [Side(DbtManifest({node.unique_id: node for node in (one, *others)}), {}) for one in versions]


def with_nodes(manifest: DbtManifest, *nodes: Node) -> DbtManifest:
    """Return a manifest with other nodes in the place of those of their unique ids."""
    return replace(manifest, nodes={**manifest.nodes, **{node.unique_id: node for node in nodes}})


def edited_project(directory: Path, edits: Iterable[tuple[str, str, str]]) -> Side:
    """Compile a copy of this project in which the first text of a file is another; a text that was '' is a new file."""
    copy_project(directory)
    for file, old, new in edits:
        text = (directory / file).read_text() if old else ""
        assert old in text, file
        (directory / file).write_text(text.replace(old, new, 1))
    return scope.side(compiled_manifest(directory), directory)
